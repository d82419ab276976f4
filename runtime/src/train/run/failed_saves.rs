//! Saves that fail, such as on a full disk: the run goes on, unless several fail in a row.

use crate::checkpoint::CheckpointWriter;
use crate::os::exit_code::LOST;
use crate::train::config::SaveConfig;
use crate::train::console::print_line;
use crate::train::{Error, Result, Task};

use super::rank_loop::RankLoop;

impl<T: Task> RankLoop<'_, T> {
    /// Warns of a save that has failed, and removes what it has left. Every rank calls it with the same result.
    ///
    /// # Errors
    /// Other errors, and the failure if it is the last one of `limit` in a row.
    pub(super) fn tolerate_failed_save(&mut self, saved: Result<()>, limit: usize) -> Result<()> {
        let (flag, steps, message, code) = match saved {
            Err(Error::Save { flag, steps, message, code }) => (flag, steps, message, code),
            other => return other,
        };
        let Some(SaveConfig { dir, max_failed, .. }) = &self.plan.config.save else {
            return Ok(());
        };
        let is_first = self.state.rank.index() == 0;
        if is_first {
            CheckpointWriter::abandon(dir);
        }
        let failed = self.failed_saves.count(steps);
        let resumed = self.plan.resume.as_ref().map(|_| self.plan.first_step());
        let last = match self.saved.or(resumed) {
            Some(saved) => format!("the last checkpoint is that of step {saved}"),
            None => "there is no checkpoint before it".to_owned(),
        };
        if failed >= limit {
            let message =
                format!("{message}; saves have failed {failed} times in a row, and {last}");
            // The folder took files when the run began, so it may again.
            let code = if failed > 1 { LOST } else { code };
            return Err(Error::Save { flag, steps, message, code });
        }
        if is_first {
            print_line(&format!(
                "warning: {flag}: {message}; the state after step {steps} is not saved, and {last}; training goes on \
                 (failed saves in a row: {failed}; --max-failed-saves {max_failed} end the run)"
            ));
        }
        Ok(())
    }
}
