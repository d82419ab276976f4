//! Goodput: the fraction of the time of a run that its steps take.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::checkpoint::RunLog;
use crate::train::console::print_shared;

use super::metrics::unix_time;

/// The fraction of the time since the start of a run that its steps took.
///
/// Steps that a failure has lost do not count, as they are repeated; nor do restarts, saves and evaluations.
#[derive(Debug)]
pub struct Goodput {
    start: Instant,
    /// Seconds from the start of the run to `start`.
    before: f64,
    /// Seconds of the steps that are done.
    steps: f64,
}

impl Goodput {
    /// Begins to count in a program that has run for `elapsed`. A run whose log of `meshwright run` is in the folder
    /// `save` has begun with the first attempt, and its earlier steps took `earlier` seconds. Returns `None` if a time
    /// is not known.
    pub fn new(save: Option<&Path>, earlier: Option<f64>, elapsed: Duration) -> Option<Goodput> {
        let beginning = save.map_or(Ok(None), RunLog::beginning).unwrap_or_else(|error| {
            print_shared(&format!(
                "warning: --save: {error}; goodput does not count earlier attempts"
            ));
            None
        });
        let start = Instant::now();
        match beginning {
            // A clock that was set back tells nothing.
            Some(beginning) => {
                let before = Some(unix_time() - beginning).filter(|before| *before >= 0.0)?;
                Some(Goodput { start, before, steps: earlier? })
            }
            None => Some(Goodput { start, before: elapsed.as_secs_f64(), steps: 0.0 }),
        }
    }

    /// Returns the goodput after a further step, of some seconds.
    pub fn after_step(&mut self, seconds: f64) -> f64 {
        self.steps += seconds;
        self.steps / (self.before + self.start.elapsed().as_secs_f64())
    }
}
