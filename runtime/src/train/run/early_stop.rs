//! Ends of a run before its last step: the state before the step that fails is saved, if `--save` is given.

use std::path::PathBuf;

use crate::comm::Site;
use crate::os::exit_code::{LOST, code_of_error};
use crate::train::step::NonFinite;
use crate::train::{Error, LanguageModel};

use super::divergence::divergence_origin;
use super::rank_loop::RankLoop;

impl<M: LanguageModel> RankLoop<'_, M> {
    /// Returns an error with the `step` (from 0) and the ranks at which a number was no longer finite. Every rank calls it. The
    /// model is as before the step, and a checkpoint of it is saved if `--save` is given.
    pub(super) fn stop_diverged(&mut self, step: u64, found: &NonFinite) -> Error {
        let NonFinite { quantity, value, local } = found;
        let origin = divergence_origin(&self.state.rank, *local);
        let saved = describe_saved(self.save_state_after(step));
        let advice = match &self.loaded_infinite {
            Some(path) => format!("The loaded `{path}` has elements that are infinite or NaN"),
            None => "A lower --lr, a longer --warmup or cleaner data may help".to_owned(),
        };
        Error::Diverged(format!(
            "step {}: the {quantity} is {value} {origin}; training stopped, {saved}. {advice}",
            step + 1
        ))
    }

    /// Returns the error of a run in which a rank cannot read the batch that follows the first `steps` steps. Every rank calls
    /// it after these, and all get the same result. A checkpoint is saved if `--save` is given.
    pub(super) fn stop_without_data(&mut self, steps: u64) -> Error {
        let world = self.state.rank.comms().world();
        let own = self.data_failure.as_ref();
        let own = own.map(|error| format!("{}{error}", u8::from(code_of_error(error) == LOST)));
        let texts = match world.all_gather_texts(&Site::new("--data"), &own.unwrap_or_default()) {
            Ok(texts) => texts,
            Err(error) => return error.into(),
        };
        let failure = texts.iter().find(|text| !text.is_empty()).map_or("", String::as_str);
        let (is_lost, failure) = (failure.starts_with('1'), failure.get(1..).unwrap_or_default());
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

    /// Saves a checkpoint of the state after `steps` steps if `--save` is given, and returns its folder, or the reason why there
    /// is none.
    fn save_state_after(&mut self, steps: u64) -> std::result::Result<PathBuf, String> {
        let Some(save) = &self.plan.config.save else {
            return Err("nothing was saved (--save DIR keeps the state before such a step)".into());
        };
        let saved = self.finish_background_save().and_then(|()| {
            if self.saved == Some(steps) { Ok(()) } else { self.save_checkpoint(steps, None) }
        });
        match saved {
            Ok(()) => Ok(save.dir.clone()),
            Err(error) => Err(format!("the state before this step could not be saved ({error})")),
        }
    }
}

fn describe_saved(saved: std::result::Result<PathBuf, String>) -> String {
    saved.map_or_else(
        |reason| reason,
        |dir| format!("the state before this step is in {}", dir.display()),
    )
}
