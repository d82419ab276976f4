//! Ends of a run before its last step: the state before the next step is saved, if `--save` is given.

use std::path::PathBuf;

use crate::comm::Site;
use crate::train::step::NonFinite;
use crate::train::{Error, Result, Task};

use super::divergence::{divergence_origin, learning_rates};
use super::end_cause::EndCause;
use super::rank_loop::RankLoop;

impl<T: Task> RankLoop<'_, T> {
    /// Saves the state after `steps` steps, of a run that stops for `reason`. Every rank calls it.
    pub(super) fn save_for_stop(&mut self, steps: u64, reason: &str) -> Result<String> {
        let Some(save) = &self.plan.config.save else {
            return Err(Error::Input(format!("stopped by {reason}, without --save DIR")));
        };
        let saved = self.finish_background_save(usize::MAX).and_then(|()| {
            if self.saved == Some(steps) { Ok(()) } else { self.save_checkpoint(steps, save.keep) }
        });
        match saved {
            Ok(()) => Ok(format!(
                "stopped by {reason} after step {steps} of {}; its state is saved in {}, and the same command with \
                 --resume auto continues from it",
                self.plan.config.steps,
                save.dir.join("latest").display()
            )),
            Err(error @ Error::Diverged(_)) => Err(error),
            Err(error) => Err(error.of_stop(format!("stopped by {reason} after step {steps}"))),
        }
    }

    /// Returns an error with the `step` (from 0) and the ranks at which a number was no longer finite. Every rank calls
    /// it. The model is as before the step, and a checkpoint of it is saved if `--save` is given.
    pub(super) fn stop_diverged(&mut self, step: u64, found: &NonFinite) -> Error {
        let NonFinite { quantity, value, local } = found;
        let origin = divergence_origin(&self.state.rank, *local);
        let saved = describe_saved(self.save_state_after(step));
        let advice = match &self.loaded_infinite {
            Some(path) => format!("The loaded `{path}` has elements that are infinite or NaN"),
            None => format!(
                "A lower {}, a longer --warmup or cleaner data may help",
                learning_rates(&self.plan.config)
            ),
        };
        Error::Diverged(format!(
            "step {}: the {quantity} is {value} {origin}; training stopped, {saved}. {advice}",
            step + 1
        ))
    }

    /// Ends a run after `steps` steps, as a rank cannot or need not train another one. Every rank calls it, and all get
    /// the same result: the report of a stop, whose state is saved.
    ///
    /// # Errors
    /// Data that cannot be read, after a checkpoint is saved if `--save` is given, and a stop whose state cannot be
    /// saved.
    pub(super) fn end_early(&mut self, steps: u64) -> Result<String> {
        let world = self.state.rank.comms().world();
        let own = serde_json::to_string(&self.end_cause).expect("texts are JSON");
        let texts = world.all_gather_texts(&Site::new("end of the run"), &own)?;
        let cause_of = |text: &String| -> Option<EndCause> {
            serde_json::from_str(text).expect("ranks send valid JSON")
        };
        // A run whose data have ended must not be continued by the same command.
        let causes = || texts.iter().filter_map(cause_of);
        let data = causes().find(|cause| matches!(cause, EndCause::Data { .. }));
        match data.or_else(|| causes().next()) {
            Some(EndCause::Data { message, is_lost }) => {
                Err(self.stop_without_data(steps, &message, is_lost))
            }
            Some(EndCause::Stop(reason)) => self.save_for_stop(steps, &reason),
            None => unreachable!("a rank has announced its last step"),
        }
    }

    /// Returns the error of a run after `steps` steps, if a rank cannot read the next batch because of `failure`. Every
    /// rank calls it.
    fn stop_without_data(&mut self, steps: u64, failure: &str, is_lost: bool) -> Error {
        let saved = self.save_state_after(steps);
        let advice = match &saved {
            Ok(dir) => {
                let latest = dir.join("latest");
                format!(
                    ". Restore the data, and continue the run with --resume {}",
                    latest.display()
                )
            }
            Err(_) => String::new(),
        };
        let message = format!(
            "{failure}; training stopped before step {}, {}{advice}",
            steps + 1,
            describe_saved(saved)
        );
        Error::DataEnded { message, is_lost }
    }

    /// Saves a checkpoint of the state after `steps` steps if `--save` is given, and returns its folder, or the reason
    /// why there is none.
    fn save_state_after(&mut self, steps: u64) -> std::result::Result<PathBuf, String> {
        let Some(save) = &self.plan.config.save else {
            return Err("nothing was saved (--save DIR keeps the state before such a step)".into());
        };
        let not_saved = |error| format!("the state before this step could not be saved ({error})");
        // What is being written may be the newest state of all replicas.
        self.finish_background_save(usize::MAX).map_err(not_saved)?;
        if let Err(differ) = self.state.optimizer.synchronized_after(steps) {
            let newest = match self.saved {
                Some(saved) => format!("{} has the state after step {saved}", save.dir.display()),
                None => "no state was saved before".to_owned(),
            };
            return Err(format!("the state before this step is not saved ({differ}); {newest}"));
        }
        if self.saved != Some(steps) {
            self.save_checkpoint(steps, None).map_err(not_saved)?;
        }
        Ok(save.dir.clone())
    }
}

fn describe_saved(saved: std::result::Result<PathBuf, String>) -> String {
    saved.map_or_else(
        |reason| reason,
        |dir| format!("the state before this step is in {}", dir.display()),
    )
}
