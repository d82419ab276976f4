//! Checkpoints of a training loop of a program.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::checkpoint::{
    Checkpoint, CheckpointFolder, CheckpointWriter, Keep, LoopState, RunHistory, TrainState,
};
use crate::data::{DataPosition, Dataset};
use crate::mesh::AxisOrder;
use crate::optim::{Ema, UnitState};
use crate::tensor::{ParamRef, Rank};
use crate::train::console::print_line;
use crate::train::plan::{open_if_any, other_samples, warn_of_newer_checkpoints};
use crate::train::run::{exchange_results, find_infinite_param, save_to_folder};
use crate::train::{Error, Result, TrainingState, TrainingStateMut};
use meshwright_store::__internal::{
    load_checkpoint, saved_kinds_of, state_kinds_in, training_tensors,
};

use super::LoadedState;

const OPEN: &str = "LoopCheckpoints::open";
const SAVE: &str = "save_state";
const LOAD: &str = "load_state";

/// The folder of the checkpoints of a training loop of a program.
///
/// They are as the trainer's: each rank writes its file, and rank 0 completes the folder with a manifest and hashes, so
/// that a checkpoint is complete or absent, and is loaded on any mesh. On the same mesh, a loop that continues from one
/// computes the bits of a loop that was not stopped, if its batches and learning rates follow from the step. A failure
/// is the same error on all ranks.
///
/// ```
/// use meshwright::optim::{AdamW, AdamWOptions};
/// use meshwright::prelude::*;
/// use meshwright::train::{LoopCheckpoints, TrainingState, TrainingStateMut};
///
/// dims! { Batch @ data, Hidden, Ffn }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path().join("out");
/// let train = |mesh: &str, steps: u64| {
///     run_on(mesh, 0, |rank| {
///         let sizes = Sizes::new().with(Hidden, 8).with(Ffn, 12);
///         let built = build::<Linear<Hidden, Ffn>>(rank, &sizes)?;
///         let params = built.params();
///         let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
///         let mut checkpoints = LoopCheckpoints::open(rank, &folder)?.keep(2);
///         let state = TrainingStateMut { params: &params, optimizer: &mut optimizer, average: None };
///         let (first, mut losses) = match checkpoints.load_state(rank, state)? {
///             Some(loaded) => (loaded.step(), loaded.values()?),
///             None => (0, Vec::new()),
///         };
///         for step in first..steps {
///             let x: Tensor<(Batch, Hidden)> =
///                 Tensor::from_fn(rank, &[4, 8], |at| (at[0] * 8 + at[1]) as f32 * 0.01);
///             let y = built.model.forward(&x);
///             let loss = Loss::mean_of(&(&y * &y));
///             losses.push(loss.reduce().value());
///             optimizer.step(1e-2, loss.backward().reduce());
///             let state = TrainingState { params: &params, optimizer: &optimizer, average: None };
///             checkpoints.save_state(rank, step + 1, &state, &losses)?;
///         }
///         Ok(losses)
///     })
/// };
/// let losses: Vec<f64> = train("fsdp=2", 3)?.remove(0);
/// // Continues after three steps, on another mesh.
/// assert_eq!(train("dp=2", 5)?[0][..3], losses);
/// # Ok::<_, meshwright::Error>(())
/// ```
pub struct LoopCheckpoints<'a> {
    dir: PathBuf,
    history: RunHistory,
    keep: Option<usize>,
    dataset: Option<&'a Dataset>,
    /// True if a loaded parameter has elements that are infinite or NaN. Such elements are then not looked for.
    has_loaded_infinite: bool,
    has_saved: bool,
    /// Locked by rank 0.
    folder: Option<CheckpointFolder>,
}

impl<'a> LoopCheckpoints<'a> {
    /// Opens the folder `dir`, creating it if needed. No other run can save there while rank 0 has this value. Every
    /// rank calls it.
    ///
    /// # Errors
    /// On all ranks: a folder that cannot hold checkpoints, or to which another run saves.
    pub fn open(rank: &Rank, dir: impl AsRef<Path>) -> Result<LoopCheckpoints<'a>> {
        let dir = dir.as_ref();
        let prepared = (rank.index() == 0).then(|| CheckpointFolder::prepare(dir)).transpose();
        let (folder, prepared) = match prepared {
            Ok(folder) => (folder, Ok(())),
            Err(error) => (None, Err(Error::of_flag(OPEN)(error))),
        };
        share(rank, OPEN, prepared)?;
        // Of several processes, each has to be able to write.
        let is_writable = CheckpointFolder::check_writable(dir, rank.index());
        share(rank, OPEN, is_writable.map_err(Error::of_flag(OPEN)))?;
        Ok(LoopCheckpoints {
            dir: dir.to_owned(),
            history: RunHistory::begin(None),
            keep: None,
            dataset: None,
            has_loaded_infinite: false,
            has_saved: false,
            folder,
        })
    }

    /// Keeps the `newest` checkpoints of this loop and of those that it continues, at least one; by default all.
    #[must_use]
    pub fn keep(mut self, newest: usize) -> Self {
        self.keep = Some(newest);
        self
    }

    /// Saves the position in `dataset`, from which each step takes one batch. A state that is loaded has to continue
    /// with the same samples.
    #[must_use]
    pub fn with_data(mut self, dataset: &'a Dataset) -> Self {
        dataset.prepare_position();
        self.dataset = Some(dataset);
        self
    }

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
        let (checkpoint, own) = match found {
            Ok(found) => {
                let step = found.as_ref().map(|checkpoint| checkpoint.manifest().state.step);
                (found, Ok(step))
            }
            Err(error) => (None, Err(error)),
        };
        let steps = share(rank, LOAD, own)?;
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
            warn_of_newer_checkpoints(&checkpoint, LOAD);
            warn_of_other_settings(&checkpoint, rank, &state);
        }
        share(rank, LOAD, load_checkpoint(&checkpoint, state).map_err(Error::of_flag(LOAD)))?;
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
        let expected = training_tensors(state.params, |param| saved_kinds_of(checkpoint, param));
        checkpoint.check_tensors(expected).map_err(Error::of_flag(LOAD))?;
        check_optimizer(checkpoint, state)?;
        let Some(dataset) = self.dataset else { return Ok(()) };
        let saved = &checkpoint.manifest().state;
        let differences = match &saved.data {
            Some(data) => other_samples(data, &DataPosition::after(saved.step, dataset)),
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
            "{LOAD}: the samples are others than those that {folder} was saved with, so the loop cannot continue at its \
             position; use the same data and settings:{list}"
        )))
    }

    /// Saves the `state` after `step` steps, with `values` of the program as JSON, of which those of rank 0 are kept;
    /// NaN and infinity become `null`. Every rank calls it, after its last update.
    ///
    /// # Errors
    /// On all ranks: [`Error::Save`] if the system refuses a file, such as on a full disk: the checkpoint is absent,
    /// those before it are complete, and the loop may go on. Values that are no JSON, parameters that are infinite or
    /// NaN, ranks that save different steps.
    pub fn save_state(
        &mut self,
        rank: &Rank,
        step: u64,
        state: &TrainingState<'_>,
        values: &impl Serialize,
    ) -> Result<()> {
        let values = serde_json::to_value(values).map_err(|error| {
            Error::Input(format!("{SAVE}: values that JSON cannot hold: {error}"))
        });
        let values = share(rank, SAVE, values)?.swap_remove(0);
        self.save(rank, step, state, values)
    }

    fn save(
        &mut self,
        rank: &Rank,
        step: u64,
        state: &TrainingState<'_>,
        values: Value,
    ) -> Result<()> {
        if !self.has_loaded_infinite
            && let Some(param) = find_infinite_param(rank, state.params)?
        {
            return Err(Error::Diverged(format!(
                "{SAVE}: after step {step}, elements of `{}` are infinite or NaN; the state is not saved, and earlier \
                 checkpoints are kept",
                param.path()
            )));
        }
        if !self.has_saved {
            self.warn_of_other_runs();
            self.has_saved = true;
        }
        let shape = *rank.comms().shape();
        let order = *shape.order();
        let optimizer = state.optimizer.rule().name().to_owned();
        let described = || TrainState {
            step,
            seed: rank.seed(),
            mesh: shape.to_string(),
            mesh_order: (order != AxisOrder::DEFAULT).then(|| order.to_string()),
            data: self.dataset.map(|dataset| DataPosition::after(step, dataset)),
            history: self.history.clone(),
            evaluation: None,
            config: Value::Null,
            own_loop: Some(LoopState {
                updates: state.optimizer.steps(),
                optimizer: optimizer.clone(),
                values: values.clone(),
            }),
        };
        let keep = Keep { newest: self.keep, is_best: false };
        let saved = save_to_folder(rank, state, (SAVE, &self.dir), (step, &described), keep);
        if saved.is_err() && rank.index() == 0 {
            CheckpointWriter::abandon(&self.dir);
        }
        saved
    }

    /// Warns of checkpoints in the folder that do not lead to this loop, on rank 0.
    fn warn_of_other_runs(&self) {
        // A folder that cannot be read is an error of the save.
        let others = self.folder.as_ref().and_then(|folder| folder.other_steps(&self.history).ok());
        if let Some(newest) = others.unwrap_or_default().last() {
            print_line(&format!(
                "warning: {SAVE}: {} holds checkpoints that do not lead to this loop, the last one of step {newest}; \
                 those of equal steps will be replaced, and the others are kept, without being counted; `{LOAD}` \
                 continues them",
                self.dir.display()
            ));
        }
    }
}

/// Exchanges a result of each rank. Every rank calls it, and returns the values in the order of ranks.
///
/// # Errors
/// The first one, on all ranks.
fn share<T: Serialize + DeserializeOwned>(
    rank: &Rank,
    call: &'static str,
    own: Result<T>,
) -> Result<Vec<T>> {
    let own = own.map_err(|error| (error.to_string(), error.exit_code()));
    exchange_results(rank, call, &own)?.map_err(|(report, code)| Error::Ranks { report, code })
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
