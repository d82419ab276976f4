//! The data loader: a thread that prepares the next batch while the ranks compute.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::fetch_ahead::FetchAhead;
use super::interruption::interrupt_by;
use super::{Batch, DataError, Dataset};

/// Time between two looks at the reason to end a wait.
const PERIOD: Duration = Duration::from_millis(200);

/// Capacity of the queue of prefetched batches; one more batch is being read meanwhile.
const WAITING: usize = 1;

/// The batches of a rank, prefetched by a thread.
///
/// At most two batches are held, and a third one that was peeked at. The error of a batch is returned when the batch is
/// taken or [peeked at](Self::peek), and is the same as without prefetch. The thread ends with the last step, after an
/// error, and when this is dropped.
///
/// ```
/// use std::sync::Arc;
/// use meshwright::data::{Dataset, Order, Prefetch, TokenFile, rows_of_rank};
///
/// let file = TokenFile::from_text((0..100).collect(), 256, "numbers")?;
/// let dataset = Arc::new(Dataset::new(file, 4, 2, Order::Sequential, 0)?);
/// let mut batches = Prefetch::start(&dataset, rows_of_rank(2, 1, 0, 1), 0..3)?;
/// for step in 0..3 {
///     assert_eq!(batches.take_batch(step)?, dataset.rows(step, 0..2)?);
/// }
/// # Ok::<_, meshwright::data::DataError>(())
/// ```
pub struct Prefetch {
    read: Arc<Read>,
    ahead: Option<Ahead>,
    /// A result that was awaited and not yet taken.
    received: Option<(u64, Result<Batch, DataError>)>,
    /// A batch that was peeked at and not yet taken.
    next: Option<(u64, Batch)>,
}

type Read = dyn Fn(u64) -> Result<Batch, DataError> + Send + Sync;

/// Prefetch thread, and the batches that it has read.
struct Ahead {
    batches: Receiver<(u64, Result<Batch, DataError>)>,
    /// Ends what the thread waits for.
    interruption: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Prefetch {
    /// Reads the rows of each of the `micro_batches` of a rank in the global batches of `steps`, in order.
    ///
    /// # Errors
    /// A thread that the system does not start.
    pub fn start(
        dataset: &Arc<Dataset>,
        micro_batches: Vec<Range<usize>>,
        steps: Range<u64>,
    ) -> Result<Prefetch, DataError> {
        let interruption = Arc::default();
        let distant = dataset
            .is_distant
            .then(|| FetchAhead::start(dataset, &micro_batches, steps.clone(), &interruption));
        let distant = distant.transpose()?;
        let dataset = Arc::clone(dataset);
        let read = move |step| dataset.micro_batches(step, &micro_batches);
        Prefetch::start_with(Arc::new(read), steps, (distant, interruption))
    }

    fn start_with(
        read: Arc<Read>,
        steps: Range<u64>,
        (mut distant, interruption): (Option<FetchAhead>, Arc<AtomicBool>),
    ) -> Result<Prefetch, DataError> {
        let (sender, batches) = sync_channel(WAITING);
        let (reader, flag) = (Arc::clone(&read), Arc::clone(&interruption));
        let work = move || {
            interrupt_by(flag);
            for step in steps {
                distant.iter_mut().for_each(|distant| distant.wait_for(step));
                let batch = reader(step);
                let failed = batch.is_err();
                // The receiver is gone if the run has ended early.
                if sender.send((step, batch)).is_err() || failed {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("read ahead".into()).spawn(work);
        let ahead = Ahead { batches, interruption, thread: thread.map_err(DataError::Thread)? };
        Ok(Prefetch { read, ahead: Some(ahead), received: None, next: None })
    }

    /// Waits until a batch can be taken, or until `is_over` returns true: then nothing is read any more, and the read
    /// that has not ended is not waited for. Returns true if a batch can be taken.
    pub fn wait_unless(&mut self, is_over: impl Fn() -> bool) -> bool {
        while let (None, None, Some(ahead)) = (&self.next, &self.received, &self.ahead) {
            match ahead.batches.recv_timeout(PERIOD) {
                Ok(received) => self.received = Some(received),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) if is_over() => {
                    ahead.interruption.store(true, Ordering::Relaxed);
                    self.ahead = None;
                    return false;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        true
    }

    /// Returns the batch of `step`, and waits for it.
    ///
    /// Steps are taken in order. Any other one is read on the spot, and from then on nothing is read ahead.
    ///
    /// # Errors
    /// As [`Dataset::rows`].
    pub fn take_batch(&mut self, step: u64) -> Result<Batch, DataError> {
        if let Some((next, batch)) = self.next.take()
            && next == step
        {
            return Ok(batch);
        }
        let receive = || self.ahead.as_ref().and_then(|ahead| ahead.batches.recv().ok());
        match self.received.take().or_else(receive) {
            Some((next, batch)) if next == step => batch,
            _ => {
                self.stop_thread();
                (self.read)(step)
            }
        }
    }

    /// Returns the batch of `step` without taking it.
    ///
    /// # Errors
    /// As [`Dataset::rows`].
    pub fn peek(&mut self, step: u64) -> Result<&Batch, DataError> {
        let batch = self.take_batch(step)?;
        let (_, batch) = self.next.insert((step, batch));
        Ok(batch)
    }

    /// Ends the thread, which does not wait for anything but the end of the batch that it is reading, and not for files
    /// that are far away.
    fn stop_thread(&mut self) {
        if let Some(Ahead { batches, interruption, thread }) = self.ahead.take() {
            interruption.store(true, Ordering::Relaxed);
            drop(batches);
            // If the thread has panicked, reading synchronously fails in the same way.
            let _ = thread.join();
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.stop_thread();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::data::{Order, TokenFile, rows_of_rank};

    fn dataset(order: Order) -> Arc<Dataset> {
        let text = (0..100u8).collect();
        let file = TokenFile::from_text(text, 256, "numbers").unwrap();
        Arc::new(Dataset::new(file, 3, 4, order, 5).unwrap())
    }

    /// Creates a batch with its step in it.
    fn numbered(step: u64) -> Batch {
        let tokens = vec![step as u32];
        let micro_batches = rows_of_rank(1, 1, 0, 1);
        let (targets, places) = (tokens.clone(), Vec::new());
        Batch { targets, tokens, starts: None, streams: None, rows: 1, places, micro_batches }
    }

    fn started(read: Arc<Read>, steps: Range<u64>) -> Result<Prefetch, DataError> {
        Prefetch::start_with(read, steps, (None, Arc::default()))
    }

    #[test]
    fn batches_are_those_of_reading_on_the_spot() {
        for order in [Order::Sequential, Order::Shuffled] {
            let dataset = dataset(order);
            for (ranks, steps) in [(1, 0..40), (2, 7..30), (4, 3..5), (2, 9..9)] {
                let rows = rows_of_rank(4, 2, ranks - 1, ranks);
                let mut batches = Prefetch::start(&dataset, rows.clone(), steps.clone()).unwrap();
                for step in steps {
                    let batch = batches.take_batch(step).unwrap();
                    assert_eq!(batch, dataset.micro_batches(step, &rows).unwrap());
                }
            }
        }
    }

    #[test]
    fn peeked_batches_are_still_taken() {
        let mut batches = started(Arc::new(|step| Ok(numbered(step))), 0..3).unwrap();
        assert_eq!(batches.peek(0).unwrap().tokens, [0]);
        assert_eq!(batches.peek(0).unwrap().tokens, [0]);
        let taken = [0, 1, 2].map(|step| batches.take_batch(step).unwrap().tokens[0]);
        assert_eq!(taken, [0, 1, 2]);
    }

    #[test]
    fn a_wait_ends_without_the_batch() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let receiver = std::sync::Mutex::new(receiver);
        let read = move |step| {
            if step == 2 {
                let _ = receiver.lock().unwrap().recv();
            }
            Ok(numbered(step))
        };
        let mut batches = started(Arc::new(read), 0..9).unwrap();
        for step in 0..2 {
            // Also of what was peeked at.
            assert!(batches.wait_unless(|| false) && batches.peek(step).is_ok());
            assert!(batches.wait_unless(|| true));
            assert_eq!(batches.take_batch(step).unwrap().tokens, [step as u32]);
        }
        assert!(!batches.wait_unless(|| true));
        drop(batches);
        drop(sender);
    }

    #[test]
    fn any_step_can_be_taken() {
        let mut batches = started(Arc::new(|step| Ok(numbered(step))), 2..9).unwrap();
        let taken = [2, 3, 7, 4, 5, 100].map(|step| batches.take_batch(step).unwrap().tokens[0]);
        assert_eq!(taken, [2, 3, 7, 4, 5, 100]);
    }

    #[test]
    fn an_error_waits_for_the_step_that_needs_the_batch() {
        let text = (0..100u8).map(|i| if i == 61 { 200 } else { i }).collect();
        let file = TokenFile::from_text(text, 256, "numbers").unwrap().with_vocab(100);
        let dataset = Arc::new(Dataset::new(file, 10, 1, Order::Sequential, 0).unwrap());
        let mut batches = Prefetch::start(&dataset, rows_of_rank(1, 1, 0, 1), 0..9).unwrap();
        for step in 0..6 {
            batches.take_batch(step).unwrap();
        }
        let expected = dataset.rows(6, 0..1).unwrap_err().to_string();
        assert!(expected.contains("token id 200 at position 61"), "{expected}");
        assert_eq!(batches.take_batch(6).unwrap_err().to_string(), expected);
        // A retry fails in the same way, and other steps can still be read.
        assert_eq!(batches.take_batch(6).unwrap_err().to_string(), expected);
        assert_eq!(batches.take_batch(7).unwrap().rows, 1);
    }

    #[test]
    fn no_more_than_two_batches_are_read_ahead() {
        let reads = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&reads);
        let read = Arc::new(move |step| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(numbered(step))
        });
        let mut batches = started(read, 0..100).unwrap();
        for step in 0..5 {
            batches.take_batch(step).unwrap();
            let ahead = step + 1 + WAITING as u64 + 1;
            let deadline = Instant::now() + Duration::from_secs(20);
            while reads.load(Ordering::SeqCst) < ahead {
                assert!(Instant::now() < deadline, "nothing is read ahead of step {step}");
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(reads.load(Ordering::SeqCst), ahead, "step {step}");
        }
    }

    #[test]
    fn dropping_ends_the_thread_wherever_it_is() {
        for taken in 0..4 {
            let read: Arc<Read> = Arc::new(|step| Ok(numbered(step)));
            let mut batches = started(Arc::clone(&read), 0..1000).unwrap();
            for step in 0..taken {
                batches.take_batch(step).unwrap();
            }
            drop(batches);
            assert_eq!(
                Arc::strong_count(&read),
                1,
                "after {taken} steps the thread still holds it"
            );
        }
    }

    #[test]
    fn a_panic_of_the_thread_reaches_the_step() {
        let read = Arc::new(|step| match step {
            1 => panic!("no batch {step}"),
            step => Ok(numbered(step)),
        });
        let mut batches = started(read, 0..3).unwrap();
        assert_eq!(batches.take_batch(0).unwrap().tokens, [0]);
        let caught =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batches.take_batch(1)));
        let message = caught.unwrap_err();
        assert_eq!(message.downcast_ref::<String>().unwrap(), "no batch 1");
    }
}
