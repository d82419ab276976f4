//! Profile of a rank's device calls: time of each kind of call, and the chosen algorithms.
//!
//! [`ProfiledDriver`] wraps the driver of a rank and records a timed event before and after every call that submits
//! work. Times are read after the work is done, without extra synchronization, and collected in a [`Profile`], which
//! writes a table when its last driver is dropped.

mod driver;
mod table;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::algorithm_choices::AlgorithmChoices;
use super::driver::Driver;
use super::gpu::lock_unpoisoned;
pub use driver::ProfiledDriver;

/// Environment variable with the path of the profile.
pub const PROFILE_VARIABLE: &str = "MESHWRIGHT_PROFILE";

/// Samples per kind of call from which the median is computed: the first ones, to bound the memory of long runs.
const MAX_SAMPLES: usize = 4096;

/// Times of the device calls of all ranks of a process.
#[derive(Debug)]
pub struct Profile {
    file: PathBuf,
    times: Mutex<HashMap<CallKey, CallTimes>>,
    choices: Mutex<Vec<AlgorithmChoices>>,
}

/// A kind of call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CallKey {
    name: Arc<str>,
    shape: String,
    rank: usize,
    /// Number of the stream in the order of creation, and its priority.
    stream: Arc<str>,
}

/// Times of one kind of call, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
struct CallTimes {
    /// Time of the first call, which may include autotuning. It is not part of the other fields.
    first: f32,
    /// Number of calls after the first.
    count: usize,
    total: f64,
    least: f32,
    samples: Vec<f32>,
}

impl Profile {
    /// Creates a profile that is written to `file`.
    pub fn new(file: PathBuf) -> Arc<Profile> {
        Arc::new(Profile { file, times: Mutex::default(), choices: Mutex::default() })
    }

    /// Wraps the driver of `rank` to measure its calls.
    pub fn driver(self: &Arc<Profile>, driver: Arc<dyn Driver>, rank: usize) -> Arc<dyn Driver> {
        Arc::new(ProfiledDriver::new(driver, Arc::clone(self), rank))
    }

    fn record_time(&self, call: CallKey, milliseconds: f32) {
        lock_unpoisoned(&self.times)
            .entry(call)
            .and_modify(|times| times.add_call(milliseconds))
            .or_insert_with(|| CallTimes {
                first: milliseconds,
                least: f32::INFINITY,
                ..CallTimes::default()
            });
    }

    fn note_choices(&self, choices: AlgorithmChoices) {
        let mut all = lock_unpoisoned(&self.choices);
        // Ranks that share a device share its choices.
        if !all.contains(&choices) {
            all.push(choices);
        }
    }
}

impl CallTimes {
    fn add_call(&mut self, milliseconds: f32) {
        self.count += 1;
        self.total += f64::from(milliseconds);
        self.least = self.least.min(milliseconds);
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(milliseconds);
        }
    }

    fn median(&self) -> Option<f32> {
        let mut samples = self.samples.clone();
        samples.sort_by(f32::total_cmp);
        samples.get(samples.len() / 2).copied()
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        use std::io::Write;
        let text = self.table();
        if let Err(error) = std::fs::write(&self.file, text) {
            let file = self.file.display();
            let _ = writeln!(std::io::stderr(), "{PROFILE_VARIABLE}: cannot write {file}: {error}");
        }
    }
}
