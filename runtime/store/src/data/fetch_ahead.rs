//! A thread that fetches the rows of later steps from far away, before they are read.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Builder;

use super::interruption::{interrupt_by, is_interrupted};
use super::{DataError, Dataset};

/// Windows of steps that are fetched and not read; one more is being fetched meanwhile.
const WAITING: usize = 1;

/// Rows of later steps, window by window. A row that cannot be fetched is fetched when it is read.
pub struct FetchAhead {
    /// The steps after windows that were fetched.
    ends: Receiver<u64>,
    /// The first step that is not known to be fetched.
    end: u64,
}

impl FetchAhead {
    /// Fetches the rows of the `micro_batches` of `steps` until `interruption` is set.
    ///
    /// # Errors
    /// A thread that the system does not start.
    pub fn start(
        dataset: &Arc<Dataset>,
        micro_batches: &[Range<usize>],
        steps: Range<u64>,
        interruption: &Arc<AtomicBool>,
    ) -> Result<FetchAhead, DataError> {
        let (sender, ends) = sync_channel(WAITING);
        let window = dataset.steps_of_window(micro_batches);
        let (dataset, interruption) = (Arc::clone(dataset), Arc::clone(interruption));
        let (micro_batches, first) = (micro_batches.to_vec(), steps.start);
        let work = move || {
            interrupt_by(interruption);
            let mut next = steps.start;
            while next < steps.end && !is_interrupted() {
                let end = steps.end.min(next + window);
                dataset.prepare_steps(next..end, &micro_batches);
                // The receiver is gone if the run has ended early.
                if sender.send(end).is_err() {
                    return;
                }
                next = end;
            }
        };
        Builder::new().name("fetch ahead".into()).spawn(work).map_err(DataError::Thread)?;
        Ok(FetchAhead { ends, end: first })
    }

    /// Waits until the rows of `step` are fetched.
    pub fn wait_for(&mut self, step: u64) {
        while self.end <= step {
            // After the last window the thread has ended.
            self.end = self.ends.recv().unwrap_or(u64::MAX);
        }
    }
}
