//! Rules of dtypes.

use crate::optim::Group;

use super::Precision;
use super::problems::Problems;
use super::settings::RunSettings;

pub fn reduce_dtype_keeps_precision(settings: &RunSettings, problems: &mut Problems) {
    if (settings.dtype(), settings.reduce_dtype) == (Precision::F32, Precision::Bf16) {
        let message =
            "bf16 would discard the precision of --dtype f32; use --dtype bf16, or leave it out";
        problems.add(&["reduce-dtype", "dtype"], message);
    }
}

pub fn bf16_state_exists(settings: &RunSettings, problems: &mut Problems) {
    let rule = settings.optimizer_choice().rule;
    let has_state = Group::ALL.into_iter().any(|group| !rule.state_kinds(group).is_empty());
    if settings.state_dtype == Precision::Bf16 && !has_state {
        let message =
            format!("{} keeps no state; use another --optimizer, or leave it out", rule.describe());
        problems.add(&["state-dtype", "optimizer", "momentum"], message);
    }
}
