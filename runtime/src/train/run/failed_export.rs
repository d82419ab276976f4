//! The way to repeat an export that has failed, from the last checkpoint.

use std::path::Path;

use crate::train::config::{Config, exporting_flags};
use crate::train::plan::Plan;

/// Describes how to repeat the export of a run whose last checkpoint was `saved` after this number of steps.
pub fn describe_repeated_export(plan: &Plan, saved: Option<u64>) -> String {
    let Config { steps, save, export_hf, .. } = &plan.config;
    let folder = export_hf.as_deref().unwrap_or(Path::new("DIR"));
    let repeat = |checkpoint: &Path| {
        let flags = exporting_flags(&plan.config, checkpoint, plan.config.steps, folder);
        format!(
            "the trained model is in the checkpoint {}: remove the cause, such as a full disk, and export it by \
             `{flags}`; nothing is trained again",
            checkpoint.display()
        )
    };
    match (&plan.resume, save) {
        (_, Some(save)) if saved == Some(*steps) => repeat(&save.dir.join(format!("step-{steps:08}"))),
        (Some(checkpoint), _) if plan.first_step() == *steps => repeat(checkpoint.folder()),
        _ => "the trained model is lost, as the run has saved no checkpoint (--save DIR keeps one, from which an \
              export can be repeated)"
            .to_owned(),
    }
}
