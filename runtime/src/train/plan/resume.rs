//! Checks of the checkpoint to resume from.

use std::collections::BTreeSet;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::data::{DataPosition, Dataset};
use crate::optim::{Ema, OptimizerOptions, ParamGroups};
use crate::state_dict::{state_kinds_in, training_tensors};
use crate::tensor::ParamRef;

use crate::train::config::Config;
use crate::train::console::{counted, say};
use crate::train::{Error, Result};

/// Opens the checkpoint at `path`, and checks it against the settings, the data and the model's parameters.
pub fn open(
    path: &Path,
    config: &Config,
    dataset: &Dataset,
    params: &[ParamRef],
) -> Result<Checkpoint> {
    let in_flag = || Error::of_flag("--resume");
    let checkpoint = Checkpoint::open(path).map_err(in_flag())?;
    let (options, groups) = (config.optimizer.options(), ParamGroups::default());
    let kinds = |param: &ParamRef| options.kinds(groups.of(param)).to_vec();
    check_optimizer(&checkpoint, &options, params.iter().flat_map(kinds).collect())?;
    let has_average = state_kinds_in(&checkpoint).contains(Ema::KIND);
    let average = has_average.then_some(Ema::KIND);
    let expected =
        training_tensors(params, |param| kinds(param).into_iter().chain(average).collect());
    checkpoint.check_tensors(expected).map_err(in_flag())?;
    let state = &checkpoint.manifest().state;
    state.data.check_resume(&DataPosition::after(state.step, dataset))?;
    if state.step >= config.steps {
        return Err(Error::Input(format!(
            "--resume: {} has {} done, and --steps {} counts from the beginning: nothing is left to train; use \
             a larger --steps",
            checkpoint.folder().display(),
            counted(state.step as usize, "step"),
            config.steps
        )));
    }
    for skipped in checkpoint.skipped() {
        say(&format!("warning: {skipped}; going on from {}", checkpoint.folder().display()));
    }
    match (has_average, config.optimizer.ema) {
        (false, Some(_)) => say(&format!(
            "warning: --ema: {} holds no average of the parameters; it begins with those of step {}",
            checkpoint.folder().display(),
            state.step
        )),
        (true, None) => say(&format!(
            "warning: {} holds an average of the parameters, which is not kept up without --ema",
            checkpoint.folder().display()
        )),
        _ => {}
    }
    Ok(checkpoint)
}

/// State can be gone on with by the optimiser that it is of.
fn check_optimizer(
    checkpoint: &Checkpoint,
    options: &OptimizerOptions,
    expected: BTreeSet<&str>,
) -> Result<()> {
    let mut found = state_kinds_in(checkpoint);
    found.remove(Ema::KIND);
    if found == expected {
        return Ok(());
    }
    let folder = checkpoint.folder().display();
    let owner = match found.iter().next() {
        None => "sgd --momentum 0",
        Some(_) if found.contains("muon_momentum") => "muon",
        Some(_) if found.contains("adam_m") => "adamw",
        Some(_) if found.contains("sgd_momentum") => match options {
            OptimizerOptions::Sgd(_) => "sgd with --momentum above 0",
            _ => "sgd",
        },
        Some(kind) => {
            return Err(Error::Input(format!(
                "--resume: {folder} holds state of the kind `{kind}`, which no optimiser of this version has"
            )));
        }
    };
    let name = match options {
        OptimizerOptions::AdamW(_) => "adamw",
        OptimizerOptions::Sgd(options) if options.momentum == 0.0 => "sgd without momentum",
        OptimizerOptions::Sgd(_) => "sgd with momentum",
        OptimizerOptions::Muon(_) => "muon",
    };
    Err(Error::Input(format!(
        "--optimizer: {folder} was saved by another optimiser, whose state {name} cannot go on with; use --optimizer \
         {owner}"
    )))
}
