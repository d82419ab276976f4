//! The events of a supervised run: lines for its user, and the log in the folder of `--save`.

use std::io::Write;
use std::path::Path;

use meshwright::checkpoint::{RunEvent, RunEventKind, RunLog};

use super::Failure;

/// The open log of a run, if it saves.
pub struct Journal {
    log: Option<RunLog>,
    attempt: u32,
}

impl Journal {
    /// Opens the log in the folder `save`.
    ///
    /// # Errors
    /// A log that cannot be written, or that another supervisor writes.
    pub fn open(save: Option<&Path>) -> Result<Journal, Failure> {
        let log = save.map(RunLog::open).transpose();
        let log = log.map_err(|error| Failure::new(format!("--save: {error}"), &error))?;
        Ok(Journal { log, attempt: 0 })
    }

    /// Removes a log of this run, and the folders that were created for it, if nothing else is in them.
    pub fn discard(self) {
        self.log.into_iter().for_each(RunLog::discard);
    }

    /// Begins the next attempt, and returns its number.
    pub fn begin_attempt(&mut self) -> u32 {
        self.attempt += 1;
        self.attempt
    }

    /// Adds an event of the present attempt to the log, with what `complete` adds to it.
    pub fn add(&mut self, kind: RunEventKind, complete: impl FnOnce(RunEvent) -> RunEvent) {
        let Some(log) = &mut self.log else { return };
        if let Err(error) = log.add(&complete(RunEvent::now(kind, self.attempt))) {
            say(&format!("warning: --save: {error}"));
        }
    }

    /// Prints a line, and adds an event with it.
    pub fn report(&mut self, kind: RunEventKind, reason: String) {
        say(&reason);
        self.add(kind, |event| RunEvent { reason: Some(reason), ..event });
    }
}

/// Prints a line among the output of the run. A closed stderr does not stop a run: errors are ignored.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "meshwright run: {line}");
}
