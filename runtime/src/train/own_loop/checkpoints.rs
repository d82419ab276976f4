//! Checkpoints of a training loop of a program.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::checkpoint::{
    CheckpointFolder, CheckpointWriter, Keep, LoopState, RunHistory, TrainState,
};
use crate::data::{DataPosition, Dataset};
use crate::mesh::AxisOrder;
use crate::os::ignore_file_size_signal;
use crate::tensor::Rank;
use crate::train::console::print_line;
use crate::train::run::{find_infinite_param, save_to_folder};
use crate::train::{Error, Result, TrainingState};

use super::failure::fail_together;

const OPEN: &str = "LoopCheckpoints::open";
const SAVE: &str = "save_state";

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
    pub(super) dir: PathBuf,
    pub(super) history: RunHistory,
    keep: Option<usize>,
    pub(super) dataset: Option<&'a Dataset>,
    /// True if a loaded parameter has elements that are infinite or NaN. Such elements are then not looked for.
    pub(super) has_loaded_infinite: bool,
    has_saved: bool,
    /// Locked by rank 0.
    folder: Option<CheckpointFolder>,
}

impl<'a> LoopCheckpoints<'a> {
    /// Opens the folder `dir`, creating it if needed. No other run can save there while rank 0 has this value. Every
    /// rank calls it.
    ///
    /// From then on, a write beyond the file size limit of the process is an error instead of its end.
    ///
    /// # Errors
    /// On all ranks: a folder that cannot hold checkpoints, or to which another run saves.
    pub fn open(rank: &Rank, dir: impl AsRef<Path>) -> Result<LoopCheckpoints<'a>> {
        ignore_file_size_signal();
        let dir = dir.as_ref();
        let folder = (rank.index() == 0).then(|| CheckpointFolder::prepare(dir)).transpose();
        let folder = fail_together(rank, OPEN, folder.map_err(Error::of_flag(OPEN)))?;
        // Of several processes, each has to be able to write.
        let is_writable = CheckpointFolder::check_writable(dir, rank.index());
        fail_together(rank, OPEN, is_writable.map_err(Error::of_flag(OPEN)))?;
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
        // An error is that of the first save.
        let _ = dataset.prepare_position();
        self.dataset = Some(dataset);
        self
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
        let values = fail_together(rank, SAVE, values)?;
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
        let data = self.dataset.map(|dataset| DataPosition::after(step, dataset)).transpose()?;
        let described = || TrainState {
            step,
            seed: rank.seed(),
            mesh: shape.to_string(),
            mesh_order: (order != AxisOrder::DEFAULT).then(|| order.to_string()),
            data: data.clone(),
            history: self.history.clone(),
            evaluation: None,
            skipped: 0,
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
        saved.map(drop)
    }

    /// Warns of checkpoints in the folder that do not lead to this loop, on rank 0.
    fn warn_of_other_runs(&self) {
        // A folder that cannot be read is an error of the save.
        let others = self.folder.as_ref().and_then(|folder| folder.other_steps(&self.history).ok());
        if let Some(newest) = others.unwrap_or_default().last() {
            print_line(&format!(
                "warning: {SAVE}: {} holds checkpoints that do not lead to this loop, the last one of step {newest}; \
                 those of equal steps will be replaced, and the others are kept, without being counted; `load_state` \
                 continues them",
                self.dir.display()
            ));
        }
    }
}
