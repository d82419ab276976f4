//! Checkpoints that are written while training goes on: a thread of each rank writes a copy of its state.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use crate::checkpoint::{CheckpointError, CheckpointWriter, Keep, TrainState};
use crate::state_dict::TrainingState;
use crate::tensor::Rank;
use crate::train::{Error, Result};
use meshwright_store::__internal::StateSnapshot;

use super::save::{agree, begin_checkpoint, bytes_of};

/// The checkpoint that is being written, one at a time.
///
/// Each rank writes its file and describes it in the folder. The thread of rank 0 waits for these descriptions and
/// completes the checkpoint, so that the ranks need not communicate for it between two steps. A checkpoint that is not
/// complete when the run fails is given up.
#[derive(Default)]
pub struct BackgroundSave {
    /// The memory of the copy, if no thread reads it.
    snapshot: Option<StateSnapshot>,
    running: Option<RunningSave>,
}

/// A checkpoint whose ranks have copied their states.
struct RunningSave {
    steps: u64,
    thread: WriterThread,
}

/// The result of a thread: the memory of its copy, and the bytes of the checkpoint if this rank has completed it, or the
/// error of a file that could not be written.
type Written = (StateSnapshot, std::result::Result<u64, CheckpointError>);

/// A thread that writes the file of a rank, and completes the checkpoint on rank 0.
struct WriterThread {
    handle: Option<JoinHandle<Written>>,
    /// Receives a message when the file of this rank is on disk.
    written: Receiver<()>,
    is_cancelled: Arc<AtomicBool>,
}

/// The checkpoint of one rank, for its thread.
struct WriterTask {
    writer: CheckpointWriter,
    rank: usize,
    written: Sender<()>,
    is_cancelled: Arc<AtomicBool>,
    /// The operands of the completion, on rank 0.
    completion: Option<Completion>,
}

/// The operands of [`CheckpointWriter::commit`], and the number of ranks.
struct Completion {
    ranks: usize,
    state: TrainState,
    keep: Keep,
}

impl BackgroundSave {
    /// Copies the state after `steps` steps, and begins to write it to the folder `dir`. Every rank calls it, after the
    /// last checkpoint [is complete](Self::finish).
    pub fn start(
        &mut self,
        rank: &Rank,
        training_state: &TrainingState<'_>,
        dir: &Path,
        (steps, state): (u64, &dyn Fn() -> TrainState),
        keep: Keep,
    ) -> Result<()> {
        assert!(self.running.is_none(), "one checkpoint is written at a time");
        let writer = {
            let _waits_for_files = rank.comms().extend_time_limit();
            begin_checkpoint(rank, ("--save", dir), steps)?
        };
        let mut snapshot =
            self.snapshot.take().unwrap_or_else(|| StateSnapshot::new(rank, training_state));
        snapshot.copy(rank, training_state);
        let ranks = rank.comms().shape().world_size();
        let completion = (rank.index() == 0).then(|| Completion { ranks, state: state(), keep });
        let (sender, written) = channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let task = WriterTask {
            writer,
            rank: rank.index(),
            written: sender,
            is_cancelled: Arc::clone(&is_cancelled),
            completion,
        };
        #[cfg(test)]
        let delay = crate::checkpoint::faults::delay();
        let run = move || {
            #[cfg(test)]
            crate::checkpoint::faults::delay_operations(delay);
            let outcome = task.run(&snapshot);
            (snapshot, outcome)
        };
        let handle = Builder::new().name(format!("checkpoint of rank {}", rank.index())).spawn(run);
        let handle = handle.map_err(|source| {
            let (action, path) = ("start a thread that writes", dir.to_owned());
            Error::of_flag("--save")(CheckpointError::Io { action, path, source })
        })?;
        let thread = WriterThread { handle: Some(handle), written, is_cancelled };
        self.running = Some(RunningSave { steps, thread });
        Ok(())
    }

    /// Waits until the checkpoint is complete, and returns its number of steps and its bytes; `None` if there is none.
    /// Every rank calls it.
    ///
    /// # Errors
    /// As [`agree`], after which no rank writes any more.
    pub fn finish(&mut self, rank: &Rank) -> Result<Option<(u64, u64)>> {
        let Some(RunningSave { steps, thread }) = self.running.take() else { return Ok(None) };
        // Ranks wait for the files of the others, and for those that rank 0 writes at the end and removes.
        let _waits_for_files = rank.comms().extend_time_limit();
        // A thread that sends nothing has failed.
        let (written, thread) = match thread.written.recv() {
            Ok(()) => (Ok(()), Some(thread)),
            Err(_) => (self.end_thread(thread).map(drop), None),
        };
        // Rank 0 must not wait for files that a rank which has failed never writes.
        let all_written = agree(rank, ("--save", steps), written).map(drop);
        if let (Err(_), Some(thread)) = (&all_written, &thread) {
            thread.is_cancelled.store(true, Ordering::Relaxed);
        }
        let completed = thread.map_or(Ok(0), |thread| self.end_thread(thread));
        all_written?;
        let bytes = agree(rank, ("--save", steps), completed)?.into_iter().sum();
        Ok(Some((steps, bytes)))
    }

    /// Frees the memory of the copy.
    pub fn free(&mut self) {
        self.snapshot = None;
    }

    fn end_thread(&mut self, thread: WriterThread) -> std::result::Result<u64, CheckpointError> {
        let (snapshot, outcome) = thread.join();
        self.snapshot = Some(snapshot);
        outcome
    }
}

impl WriterThread {
    fn join(mut self) -> Written {
        let handle = self.handle.take().expect("a thread is joined once");
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // The run has failed for another reason, which is the one to report.
            let _ = handle.join();
        }
    }
}

impl WriterTask {
    fn run(self, snapshot: &StateSnapshot) -> std::result::Result<u64, CheckpointError> {
        let is_cancelled = || self.is_cancelled.load(Ordering::Relaxed);
        self.writer.write_described_rank(self.rank, &snapshot.entries(), &is_cancelled)?;
        // The run may have failed and not wait.
        let _ = self.written.send(());
        let Some(Completion { ranks, state, keep }) = self.completion else { return Ok(0) };
        let Some(files) = self.writer.wait_for_ranks(ranks, is_cancelled)? else { return Ok(0) };
        let bytes = bytes_of(&files);
        self.writer.commit(files, state, keep)?;
        Ok(bytes)
    }
}
