//! Checks of the checkpoint to resume from.

use std::collections::BTreeSet;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::data::{DataPosition, Dataset};
use crate::optim::{Ema, ParamGroups, UpdateRule};
use crate::state_dict::{state_kinds_in, training_tensors};
use crate::tensor::ParamRef;

use crate::train::config::{Config, GivenSettings};
use crate::train::console::{counted, print_line};
use crate::train::{Error, Result};

use super::saved_settings::{changed_settings, saved_flags};

/// Opens the checkpoint of `--resume`, if it is given, and adds its settings to those that are given.
pub fn take_saved_settings(settings: GivenSettings) -> Result<(GivenSettings, Option<Checkpoint>)> {
    let Some(path) = settings.resume() else { return Ok((settings, None)) };
    let checkpoint = open_checkpoint(&path)?;
    let settings = match saved_flags(&checkpoint) {
        Some(saved) => settings.with_kept(checkpoint.folder(), saved)?,
        None => settings,
    };
    Ok((settings, Some(checkpoint)))
}

/// Opens the checkpoint at `path`.
pub fn open_checkpoint(path: &Path) -> Result<Checkpoint> {
    Checkpoint::open(path).map_err(Error::of_flag("--resume"))
}

/// Checks a checkpoint to resume from against the settings, the data and the model's parameters.
pub fn check_checkpoint(
    checkpoint: &Checkpoint,
    config: &Config,
    dataset: &Dataset,
    params: &[ParamRef],
) -> Result<()> {
    let in_flag = || Error::of_flag("--resume");
    let (rule, groups) = (config.optimizer.rule(), ParamGroups::default());
    let kinds = |param: &ParamRef| rule.state_kinds(groups.of(param)).to_vec();
    check_optimizer(checkpoint, &rule, params.iter().flat_map(kinds).collect())?;
    let has_average = state_kinds_in(checkpoint).contains(Ema::KIND);
    let average = has_average.then_some(Ema::KIND);
    let expected =
        training_tensors(params, |param| kinds(param).into_iter().chain(average).collect());
    checkpoint.check_tensors(expected).map_err(in_flag())?;
    let state = &checkpoint.manifest().state;
    state.data.check_resume(&DataPosition::after(state.step, dataset))?;
    check_steps_left(checkpoint, config)?;
    for skipped in checkpoint.skipped() {
        print_line(&format!("warning: {skipped}; going on from {}", checkpoint.folder().display()));
    }
    if let Some(other) = checkpoint.other_branch() {
        print_line(&format!(
            "warning: --resume: {0} and {1} are of different branches, as the run was resumed from an earlier step; going on \
             from {0}",
            checkpoint.folder().display(),
            other.display()
        ));
    }
    match (has_average, config.optimizer.ema) {
        (false, Some(_)) => print_line(&format!(
            "warning: --ema: {} holds no average of the parameters; it starts from the parameters of step {}",
            checkpoint.folder().display(),
            state.step
        )),
        (true, None) => print_line(&format!(
            "warning: {} holds an average of the parameters, which is not updated without --ema; set --ema to continue \
             it",
            checkpoint.folder().display()
        )),
        _ => {}
    }
    let changed = changed_settings(checkpoint, config);
    if !changed.is_empty() {
        let folder = checkpoint.folder().display();
        print_line(&format!("warning: --resume: not as in {folder}: {}", changed.join("; ")));
    }
    Ok(())
}

/// Checks that a step is left to train, or that the checkpoint of the last step is resumed for its export: the saved run may
/// have been stopped before it.
fn check_steps_left(checkpoint: &Checkpoint, config: &Config) -> Result<()> {
    let done = checkpoint.manifest().state.step;
    let is_last = done == config.steps;
    // The export needs no steps, but measured times do.
    if done < config.steps || is_last && config.export_hf.is_some() && config.stage_times.is_none()
    {
        return Ok(());
    }
    let or_export =
        if is_last { ", or --export-hf DIR without --stage-times to export the model" } else { "" };
    Err(Error::Input(format!(
        "--resume: {} has {} done, and --steps {} counts from the beginning: nothing is left to train; use a larger \
         --steps{or_export}",
        checkpoint.folder().display(),
        counted(done as usize, "step"),
        config.steps
    )))
}

/// Checks that the checkpoint holds exactly the state of `rule`.
fn check_optimizer(
    checkpoint: &Checkpoint,
    rule: &dyn UpdateRule,
    expected: BTreeSet<&str>,
) -> Result<()> {
    let mut found = state_kinds_in(checkpoint);
    found.remove(Ema::KIND);
    if found == expected {
        return Ok(());
    }
    let (folder, name) = (checkpoint.folder().display(), rule.describe());
    let advice = match checkpoint.manifest().state.config["optimizer"]["optimizer"].as_str() {
        Some(saved) if saved == rule.name() => match rule.settings_for_state(&found) {
            Some(settings) => format!("use --optimizer {saved} {settings}"),
            None => format!("use the settings of {saved} that the checkpoint was saved with"),
        },
        Some(saved) => format!("use --optimizer {saved}"),
        None => format!("it holds state of the kinds [{}]", Vec::from_iter(found).join(", ")),
    };
    Err(Error::Input(format!(
        "--optimizer: {folder} was saved by another optimizer, whose state {name} cannot use; {advice}"
    )))
}
