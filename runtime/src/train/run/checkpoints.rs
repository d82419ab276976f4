//! The checkpoints that are due in a run, and the check of the parameters in them.

use std::time::Instant;

use crate::checkpoint::{EvaluationRecord, Keep, TrainState};
use crate::train::config::SaveConfig;
use crate::train::run_optimizer::Synchronized;
use crate::train::{Error, Result, Task};

use super::divergence::learning_rates;
use super::evaluations::Evaluations;
use super::finite_params::find_infinite_param;
use super::rank_loop::RankLoop;
use super::save::{save_to_folder, train_state};

impl<T: Task> RankLoop<'_, T> {
    /// Saves a checkpoint after `steps` steps if one is due. Every rank calls it after each step.
    pub(super) fn save_if_due(&mut self, steps: u64) -> Result<()> {
        let config = &self.plan.config;
        let Some(save) = &config.save else { return Ok(()) };
        if self.is_final(steps) {
            return self.save_checkpoint(steps, save.keep);
        }
        if !self.is_save_due(steps) && !self.keeps_best(steps) {
            return Ok(());
        }
        let (limit, start) = (save.max_failed, Instant::now());
        let saved = self.finish_background_save(limit).and_then(|()| {
            let synchronized = self.state.optimizer.synchronized_after(steps)?;
            let saved = self.save(synchronized, save.keep, save.asynchronous);
            self.tolerate_failed_save(saved, limit)
        });
        self.recent_saves.add_wait(start.elapsed());
        saved
    }

    /// Returns true if a checkpoint after `steps` steps is saved whatever its loss is.
    fn is_save_due(&self, steps: u64) -> bool {
        let every = self.plan.config.save.as_ref().and_then(|save| save.every);
        self.is_final(steps) || every.is_some_and(|every| steps.is_multiple_of(every))
    }

    /// Returns true if the checkpoint after `steps` steps is kept for its loss.
    fn keeps_best(&self, steps: u64) -> bool {
        let is_best = self.evaluations.as_ref().is_some_and(|own| own.is_best_after(steps));
        is_best && self.plan.config.save.as_ref().is_some_and(|save| save.best)
    }

    /// Saves the state after `steps` steps that this run has loaded, unless it is in the folder of `--save`. Every rank
    /// calls it.
    pub(super) fn save_loaded(&mut self, steps: u64) -> Result<()> {
        match &self.plan.config.save {
            Some(save) if self.plan.resumes_from(&save.dir) => {
                self.saved = Some(steps);
                Ok(())
            }
            _ => self.save_if_due(steps),
        }
    }

    /// Saves a checkpoint after `steps` steps. Every rank calls it.
    ///
    /// # Errors
    /// Also a step between two synchronizations of replicas that train apart.
    pub(super) fn save_checkpoint(&mut self, steps: u64, keep: Option<usize>) -> Result<()> {
        self.save(self.state.optimizer.synchronized_after(steps)?, keep, false)
    }

    /// Saves a checkpoint of parameters that all replicas have, or begins to save it in the background, when the one
    /// before is complete.
    fn save(
        &mut self,
        synchronized: Synchronized,
        newest: Option<usize>,
        in_background: bool,
    ) -> Result<()> {
        let steps = synchronized.steps();
        self.finish_background_save(usize::MAX)?;
        self.check_finite(steps)?;
        let Some(SaveConfig { dir, .. }) = &self.plan.config.save else { return Ok(()) };
        let params = self.state.built.params();
        let keep = Keep { newest, is_best: self.keeps_best(steps) };
        let is_only_best = keep.is_best && !self.is_save_due(steps);
        let record =
            |own: &Evaluations<'_>| EvaluationRecord { is_only_best, ..own.record.clone() };
        let (evaluation, skipped) = (self.evaluations.as_ref().map(record), self.skipped.total);
        let plan = self.plan;
        let train_state =
            || TrainState { evaluation: evaluation.clone(), skipped, ..train_state(plan, steps) };
        let background_save = &mut self.background_save;
        let bytes = self.state.with_shared_params(synchronized, |state| {
            let (rank, training_state) = (&state.rank, state.training_state(&params));
            let saved = (steps, &train_state as &dyn Fn() -> TrainState);
            if in_background {
                let started = background_save.start(rank, &training_state, dir, saved, keep);
                return started.map(|()| None);
            }
            save_to_folder(rank, &training_state, ("--save", dir), saved, keep).map(Some)
        })?;
        if let Some(bytes) = bytes {
            self.note_saved(steps, bytes);
        }
        Ok(())
    }

    /// Waits for the checkpoint that is being written, if there is one. Every rank calls it.
    ///
    /// # Errors
    /// A failure, if it is the last one of `limit` in a row.
    pub(super) fn finish_background_save(&mut self, limit: usize) -> Result<()> {
        match self.background_save.finish(&self.state.rank) {
            Ok(Some((steps, bytes))) => self.note_saved(steps, bytes),
            Ok(None) => {}
            Err(error) => return self.tolerate_failed_save(Err(error), limit),
        }
        Ok(())
    }

    fn note_saved(&mut self, steps: u64, bytes: u64) {
        self.saved = Some(steps);
        self.recent_saves.add_bytes(bytes);
        self.failed_saves.reset();
    }

    /// Checks that the parameters after `steps` steps are finite. Every rank calls it, when no checkpoint is being
    /// written.
    pub(super) fn check_finite(&self, steps: u64) -> Result<()> {
        if self.loaded_infinite.is_some() {
            return Ok(());
        }
        let params = self.state.built.params();
        let Some(param) = find_infinite_param(&self.state.rank, &params)? else { return Ok(()) };
        let saved = match (&self.plan.config.save, self.saved) {
            (Some(save), Some(saved)) => {
                format!("the state after step {saved} is in {}", save.dir.display())
            }
            _ => "no state was saved (--save DIR --save-every N keeps earlier ones)".to_owned(),
        };
        Err(Error::Diverged(format!(
            "step {steps}: its update has made elements of `{}` infinite or NaN; training stopped, {saved}. A lower \
             {}, a longer --warmup or a larger --eps may help",
            param.path(),
            learning_rates(&self.plan.config)
        )))
    }
}
