//! Loading the state of a training loop, and the checks that it is of this loop.

use std::path::Path;

use crate::checkpoint::{Checkpoint, RunHistory};
use crate::data::DataPosition;
use crate::optim::{Ema, UnitState};
use crate::tensor::{ParamRef, Rank};
use crate::train::console::print_line;
use crate::train::plan::{announce_resumed, open_if_any, other_samples};
use crate::train::run::find_infinite_param;
use crate::train::{Error, Result, TrainingStateMut};
use meshwright_store::__internal::{
    load_checkpoint, saved_kinds_of, state_kinds_in, training_tensors,
};

use super::failure::{fail_together, gather_results};
use super::{LoadedState, LoopCheckpoints};

const LOAD: &str = "load_state";

impl LoopCheckpoints<'_> {
    /// Loads the newest intact checkpoint of the folder into `state`, and returns the rest of it; `None` if there is no
    /// checkpoint. Damaged ones are skipped, with a warning. Every rank calls it, before its first step.
    ///
    /// A moving average that the checkpoint does not have starts from the loaded parameters. The values of rank 0 are
    /// those of all ranks.
    ///
    /// # Errors
    /// On all ranks: checkpoints of which none is intact, of another model, optimizer or data, or a file that cannot be
    /// read. Parameters are as before, except after the last one.
    pub fn load_state(
        &mut self,
        rank: &Rank,
        state: TrainingStateMut<'_>,
    ) -> Result<Option<LoadedState>> {
        let from = self.dir.clone();
        self.load(rank, &from, Some(LOAD), state)
    }

    /// Loads a checkpoint of any folder, also one of the trainer, as [`load_state`](Self::load_state): `DIR/step-N`, or
    /// the newest of `DIR`.
    ///
    /// # Errors
    /// As [`load_state`](Self::load_state), and a path without a checkpoint.
    pub fn load_state_from(
        &mut self,
        rank: &Rank,
        from: impl AsRef<Path>,
        state: TrainingStateMut<'_>,
    ) -> Result<LoadedState> {
        let loaded = self.load(rank, from.as_ref(), None, state)?;
        Ok(loaded.expect("a checkpoint that is not optional is there"))
    }

    fn load(
        &mut self,
        rank: &Rank,
        from: &Path,
        auto: Option<&'static str>,
        state: TrainingStateMut<'_>,
    ) -> Result<Option<LoadedState>> {
        // Ranks may read their files at different speeds, and wait for the slowest one.
        let waits_for_files = rank.comms().extend_time_limit();
        let found = open_if_any(from, LOAD, auto).and_then(|found| match found {
            Some(checkpoint) => self.check(&checkpoint, &state).map(|()| Some(checkpoint)),
            None => Ok(None),
        });
        let checkpoint = fail_together(rank, LOAD, found)?;
        let step = checkpoint.as_ref().map(|checkpoint| checkpoint.manifest().state.step);
        let steps = gather_results(rank, LOAD, Ok(step))?;
        if let Some(other) = steps.iter().position(|step| *step != steps[0]) {
            let text =
                |step: Option<u64>| step.map_or("none".to_owned(), |step| format!("step {step}"));
            return Err(Error::Input(format!(
                "{LOAD}: rank 0 finds {} as the newest checkpoint in {}, and rank {other} finds {}; all processes have \
                 to read the same folder",
                text(steps[0]),
                from.display(),
                text(steps[other])
            )));
        }
        let Some(checkpoint) = checkpoint else { return Ok(None) };
        let params = state.params;
        if rank.index() == 0 {
            announce_resumed(&checkpoint, LOAD);
            warn_of_other_settings(&checkpoint, rank, &state);
        }
        let loaded = load_checkpoint(&checkpoint, state).map_err(Error::of_flag(LOAD));
        fail_together(rank, LOAD, loaded)?;
        let infinite = find_infinite_param(rank, params)?;
        drop(waits_for_files);
        if let (Some(param), 0) = (infinite, rank.index()) {
            print_line(&format!(
                "warning: {LOAD}: the loaded `{}` has elements that are infinite or NaN",
                param.path()
            ));
        }
        self.has_loaded_infinite = infinite.is_some();
        let saved = &checkpoint.manifest().state;
        self.history = RunHistory::begin(Some((&saved.history, saved.step)));
        Ok(Some(LoadedState::of(&checkpoint)))
    }

    /// Checks that a checkpoint is of this model, optimizer and data.
    fn check(&self, checkpoint: &Checkpoint, state: &TrainingStateMut<'_>) -> Result<()> {
        let folder = checkpoint.folder().display();
        let expected = training_tensors(state.params, |param| {
            saved_kinds_of(checkpoint, param).into_iter().map(str::to_owned).collect()
        });
        checkpoint.check_tensors(expected).map_err(Error::of_flag(LOAD))?;
        check_optimizer(checkpoint, state)?;
        let Some(dataset) = self.dataset else { return Ok(()) };
        let saved = &checkpoint.manifest().state;
        let differences = match &saved.data {
            Some(data) => other_samples(data, &DataPosition::after(saved.step, dataset)?),
            None => {
                return Err(Error::Input(format!(
                    "{LOAD}: {folder} has no position in the data, as it was saved without `with_data`; leave \
                     `with_data` out to load it"
                )));
            }
        };
        if differences.is_empty() {
            return Ok(());
        }
        let list: String = differences.iter().map(|line| format!("\n  - {line}")).collect();
        Err(Error::Input(format!(
            "{LOAD}: the samples are others than those that {folder} was saved with, so the loop cannot continue at \
             its position; use the same data and settings:{list}"
        )))
    }
}

/// Checks that a checkpoint of these parameters holds exactly the state of the optimizer.
fn check_optimizer(checkpoint: &Checkpoint, state: &TrainingStateMut<'_>) -> Result<()> {
    let optimizer = &*state.optimizer;
    let kept = |param: &ParamRef| -> Vec<&str> {
        let units = optimizer.states().iter();
        let own = units.filter(|unit| unit.params().iter().any(|own| own.path() == param.path()));
        own.flat_map(|unit: &UnitState| unit.states_of(param)).map(|(kind, _)| kind).collect()
    };
    // Of a parameter without elements on this rank, others compare the state.
    for param in state.params.iter().filter(|param| !param.owned().is_empty()) {
        let [mut saved, mut kept] = [saved_kinds_of(checkpoint, param), kept(param)];
        saved.retain(|kind| *kind != Ema::KIND);
        saved.sort_unstable();
        kept.sort_unstable();
        if saved != kept {
            let manifest = checkpoint.manifest();
            let of_trainer = || manifest.state.config["optimizer"]["optimizer"].as_str();
            let own_loop = manifest.state.own_loop.as_ref();
            let name = own_loop.map(|own| own.optimizer.as_str()).or_else(of_trainer);
            return Err(Error::Input(format!(
                "{LOAD}: {} was saved by another optimizer, {}, which keeps the states [{}] of `{}`; {} keeps [{}]; \
                 create the optimizer with which it was saved",
                checkpoint.folder().display(),
                name.unwrap_or("unknown"),
                saved.join(", "),
                param.path(),
                optimizer.rule().describe(),
                kept.join(", ")
            )));
        }
    }
    Ok(())
}

/// Warns of a seed or a moving average that only the checkpoint has, or only the loop.
fn warn_of_other_settings(checkpoint: &Checkpoint, rank: &Rank, state: &TrainingStateMut<'_>) {
    let (folder, saved) = (checkpoint.folder().display(), &checkpoint.manifest().state);
    if saved.seed != rank.seed() {
        print_line(&format!(
            "warning: {LOAD}: {folder} was saved with the seed {}, and this loop has {}: dropout draws other masks",
            saved.seed,
            rank.seed()
        ));
    }
    let has_average = state_kinds_in(checkpoint).contains(Ema::KIND);
    match (has_average, &state.average) {
        (false, Some(_)) => print_line(&format!(
            "warning: {LOAD}: {folder} holds no average of the parameters; it starts from the parameters of step {}",
            saved.step
        )),
        (true, None) => print_line(&format!(
            "warning: {LOAD}: {folder} holds an average of the parameters, which is neither loaded nor saved again"
        )),
        _ => {}
    }
}
