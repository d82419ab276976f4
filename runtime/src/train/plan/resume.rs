//! Checks of the checkpoint to resume from.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::checkpoint::hf::HfConfig;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::comm::__internal::run_reports::{RunReport, report};
use crate::data::{DataPosition, Dataset};
use crate::optim::{Ema, ParamGroups, UpdateRule};
use crate::tensor::ParamRef;
use meshwright_store::__internal::{state_kinds_in, training_tensors};

use crate::train::config::{Config, RunSettings};
use crate::train::console::{counted, print_shared};
use crate::train::{Error, Result};

use super::resumed_replicas::SavedReplicas;
use super::saved_architecture::{check_architecture, check_family, check_given_family};
use super::saved_settings::{Differences, saved_flags};

/// Opens the checkpoint of `--resume`, if it is given, and adds its settings to those that are given.
///
/// # Errors
/// As [`open_resumed`], and settings that differ from the checkpoint's.
pub fn take_saved_settings<C: HfConfig>(
    settings: RunSettings,
) -> Result<(RunSettings, Option<Checkpoint>)> {
    let Some((path, is_auto)) = settings.resume_path() else { return Ok((settings, None)) };
    let Some(checkpoint) = open_checkpoint::<C>(path, is_auto)? else {
        return Ok((settings, None));
    };
    check_given_family(&checkpoint, &settings)?;
    let settings = match saved_flags(&checkpoint) {
        Some(saved) => settings.with_kept(checkpoint.folder(), saved)?,
        None => settings,
    };
    Ok((settings, Some(checkpoint)))
}

/// Opens the checkpoint of `--resume`, if it is given.
///
/// # Errors
/// A checkpoint that is missing or damaged, and one of another family than `C`.
pub fn open_resumed<C: HfConfig>(config: &Config) -> Result<Option<Checkpoint>> {
    config.resume.as_ref().map_or(Ok(None), |path| open_checkpoint::<C>(path, config.resume_auto))
}

/// Opens the checkpoint at `path`. Returns `None` if there is none, damaged or not, for `--resume auto`.
fn open_checkpoint<C: HfConfig>(path: &Path, is_auto: bool) -> Result<Option<Checkpoint>> {
    let auto = is_auto.then_some("--resume auto");
    let Some(checkpoint) = open_if_any(path, "--resume", auto)? else { return Ok(None) };
    check_trainer(&checkpoint)?;
    check_family::<C>(&checkpoint)?;
    Ok(Some(checkpoint))
}

/// Opens the checkpoint at `path`, which `flag` names. Returns `None` if there is none, damaged or not, and `auto`
/// names a choice that begins without one.
pub fn open_if_any(
    path: &Path,
    flag: &'static str,
    auto: Option<&'static str>,
) -> Result<Option<Checkpoint>> {
    match (Checkpoint::open(path), auto) {
        (Ok(checkpoint), _) => Ok(Some(checkpoint)),
        (Err(CheckpointError::NotFound { .. }), Some(_)) => Ok(None),
        (Err(error @ CheckpointError::NoneUsable { .. }), Some(auto)) => {
            Err(Error::Input(format!(
                "{auto}: {error}\nA run from the beginning would replace them: restore their files, or move {} away to \
                 begin again",
                path.display()
            )))
        }
        (Err(error), _) => Err(Error::of_flag(flag)(error)),
    }
}

/// Returns the step whose batch begins with the first row of the data.
pub fn first_step_of_data(config: &Config, resume: Option<&Checkpoint>) -> u64 {
    resume.map_or(0, |checkpoint| {
        let state = &checkpoint.manifest().state;
        let first = state.data.as_ref().map_or(0, |data| data.first_step);
        if config.new_data { state.step } else { first }
    })
}

/// Checks that the trainer has saved a checkpoint.
fn check_trainer(checkpoint: &Checkpoint) -> Result<()> {
    if checkpoint.manifest().state.own_loop.is_none() {
        return Ok(());
    }
    Err(Error::Input(format!(
        "--resume: {} was saved by `save_state` in a training loop of a program, which continues it by `load_state`; \
         the trainer continues its own checkpoints",
        checkpoint.folder().display()
    )))
}

/// Checks a checkpoint to resume from against the settings, the data, and the `architecture` and parameters of the
/// model.
pub fn check_checkpoint(
    checkpoint: &Checkpoint,
    config: &Config,
    dataset: &Dataset,
    (architecture, params): (&Value, &[ParamRef]),
) -> Result<()> {
    let in_flag = || Error::of_flag("--resume");
    let (rule, groups) = (config.optimizer.rule(), ParamGroups::default());
    let kinds = |param: &ParamRef| {
        if param.is_frozen() { Vec::new() } else { rule.state_kinds(groups.of(param)).to_vec() }
    };
    let replicas = SavedReplicas::check(checkpoint, config)?;
    let found = replicas.kinds_of_rule(&state_kinds_in(checkpoint));
    check_optimizer(checkpoint, &rule, found, params.iter().flat_map(kinds).collect())?;
    let state = &checkpoint.manifest().state;
    let position = DataPosition::after(state.step, dataset)?;
    let differences = Differences::new(state, config, architecture);
    if config.new_data {
        if let Some(other) = state.data.as_ref().and_then(|data| data.other_tokenizer(&position)) {
            return Err(Error::Input(other));
        }
        let changed = differences.changed_samples();
        let changed =
            if changed.is_empty() { String::new() } else { format!("; {}", changed.join("; ")) };
        print_shared(&format!(
            "--new-data: step {} begins with the first row of {}{changed}. The parameters, the state of the optimizer, \
             and the learning rate go on from {}",
            state.step + 1,
            dataset.name(),
            checkpoint.folder().display()
        ));
    } else {
        differences
            .check_samples(state.data.as_ref().and_then(|data| data.other_data(&position)))?;
    }
    // It names what differs; tensors only show it.
    check_architecture(checkpoint, config, architecture)?;
    let has_average = state_kinds_in(checkpoint).contains(Ema::KIND);
    let average = has_average.then_some(Ema::KIND);
    let average_of = |param: &ParamRef| average.filter(|_| !param.is_frozen());
    let expected = training_tensors(params, |param| {
        let held =
            if param.is_frozen() { Vec::new() } else { replicas.kinds_to_hold(&kinds(param)) };
        held.into_iter().chain(average_of(param).map(str::to_owned)).collect()
    });
    checkpoint.check_tensors(expected).map_err(in_flag())?;
    check_steps_left(checkpoint, config)?;
    announce_resumed(checkpoint, "--resume");
    match (has_average, config.optimizer.ema) {
        (false, Some(_)) => print_shared(&format!(
            "warning: --ema: {} holds no average of the parameters; it starts from the parameters of step {}",
            checkpoint.folder().display(),
            state.step
        )),
        (true, None) => print_shared(&format!(
            "warning: {} holds an average of the parameters, which is not updated without --ema; set --ema to continue \
             it",
            checkpoint.folder().display()
        )),
        _ => {}
    }
    let changed = differences.changed_settings();
    if !changed.is_empty() {
        let folder = checkpoint.folder().display();
        print_shared(&format!("warning: --resume: not as in {folder}: {}", changed.join("; ")));
    }
    Ok(())
}

/// Reports the checkpoint from which a run continues to its supervisor. Warns of newer ones that are damaged, and of
/// those of another branch.
pub fn announce_resumed(checkpoint: &Checkpoint, flag: &str) {
    report(RunReport::Resumed(checkpoint.folder().to_owned()));
    for skipped in checkpoint.skipped() {
        print_shared(&format!(
            "warning: {skipped}; going on from {}",
            checkpoint.folder().display()
        ));
    }
    if let Some(other) = checkpoint.other_branch() {
        print_shared(&format!(
            "warning: {flag}: {0} and {1} are of different branches, as the run was resumed from an earlier step; \
             going on from {0}",
            checkpoint.folder().display(),
            other.display()
        ));
    }
}

/// Checks that the run has not more steps already than it is to have. One that has all of them exports and samples.
fn check_steps_left(checkpoint: &Checkpoint, config: &Config) -> Result<()> {
    let done = checkpoint.manifest().state.step;
    if done < config.steps {
        return Ok(());
    }
    let (folder, total) = (checkpoint.folder().display(), config.steps);
    let found = format!("--resume: {folder} has {} done", counted(done as usize, "step"));
    if done > total {
        return Err(Error::Input(format!(
            "{found}, and --steps {total} counts from the beginning; use a larger --steps"
        )));
    }
    if config.stage_times.is_some() {
        return Err(Error::Input(format!(
            "{found}, as many as --steps: nothing is left to train, so --stage-times has nothing to measure; use a \
             larger --steps, or leave it out"
        )));
    }
    print_shared(&format!("{found}, as many as --steps: nothing is left to train"));
    Ok(())
}

/// Checks that the checkpoint, which holds state of the kinds `found`, has exactly the state of `rule`.
fn check_optimizer(
    checkpoint: &Checkpoint,
    rule: &dyn UpdateRule,
    mut found: BTreeSet<&str>,
    expected: BTreeSet<&str>,
) -> Result<()> {
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
