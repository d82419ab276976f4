//! Streams of a simulated device for the test's collectives library: transfers execute when their stream reaches them,
//! and can be captured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use meshwright_cuda::{DriverCalls, Event, Stream};
use meshwright_gpu_sim::SimDriver;

use super::port::{Condition, Streams, Work};

/// The streams of one rank.
pub struct InOrder {
    driver: Arc<SimDriver>,
    /// The last capture that has captured a group, and the event of its end: on a device that waits for transfers,
    /// groups of one rank execute in capture order, also on different streams.
    last_group: Mutex<Option<(u64, Event)>>,
    /// True if streams wait for messages instead of the host.
    has_asynchronous_messages: bool,
    /// `None` if streams are independent.
    queue: Option<TransferQueue>,
}

/// A queue of the device that executes the groups of all streams one at a time: one that waits holds up all others.
#[derive(Default)]
struct TransferQueue {
    /// The end of the last messages outside of captures, which execute in the order of submission.
    last: Mutex<Option<Event>>,
    /// True while a group of a graph executes: one of those that are ready, in any order.
    is_busy: Arc<AtomicBool>,
}

impl InOrder {
    pub fn new(driver: Arc<SimDriver>) -> InOrder {
        InOrder {
            driver,
            last_group: Mutex::default(),
            has_asynchronous_messages: false,
            queue: None,
        }
    }

    /// Streams that wait for messages, while the host continues.
    pub fn with_asynchronous_messages(driver: Arc<SimDriver>) -> InOrder {
        InOrder { has_asynchronous_messages: true, ..InOrder::new(driver) }
    }

    /// Streams whose messages, and in graphs also collectives, share one queue of the device.
    pub fn with_one_queue(driver: Arc<SimDriver>) -> InOrder {
        let queue = Some(TransferQueue::default());
        InOrder { queue, ..InOrder::with_asynchronous_messages(driver) }
    }

    /// Puts the messages that `submit` submits behind the messages of all other streams, if they share a queue.
    fn in_queue(&self, stream: Stream, submit: impl FnOnce()) {
        let Some(queue) = &self.queue else { return submit() };
        let driver = &self.driver;
        let mut last = queue.last.lock().unwrap();
        if let Some(before) = last.take() {
            driver.wait(stream, before).expect("a stream");
            driver.free_event(before).expect("an event of this library");
        }
        submit();
        let event = driver.new_event(false).expect("an event");
        driver.record(event, stream).expect("a stream");
        *last = Some(event);
    }

    /// Captures a group that `submit` submits, which executes when the queue is free, if there is one.
    fn in_captured_queue(&self, stream: Stream, submit: impl FnOnce()) {
        let Some(queue) = &self.queue else { return submit() };
        let [awaited, taken, released] = [(); 3].map(|()| Arc::clone(&queue.is_busy));
        let is_free = move || !awaited.load(Ordering::SeqCst);
        let take = move || taken.store(true, Ordering::SeqCst);
        self.driver.submit_when(stream, is_free, take).expect("a stream");
        submit();
        self.driver
            .submit_work(stream, move || released.store(false, Ordering::SeqCst))
            .expect("a stream");
    }

    /// Captures work that waits for other ranks, while other streams of the graph go on.
    fn submit_waiting(&self, stream: Stream, work: Work) {
        let is_over = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&is_over);
        let begin = move || {
            begun.store(false, Ordering::SeqCst);
            let (work, over) = (Arc::clone(&work), Arc::clone(&begun));
            std::thread::spawn(move || {
                work();
                over.store(true, Ordering::SeqCst);
            });
        };
        self.driver.submit_work(stream, begin).expect("a stream");
        let is_over = move || is_over.load(Ordering::SeqCst);
        self.driver.submit_when(stream, is_over, || {}).expect("a stream");
    }

    /// Captures work that the device waits for, after the group that was captured before.
    fn submit_blocking(&self, stream: Stream, work: Work) {
        let driver = &self.driver;
        let capture = driver.capture_id(stream).expect("a stream that is being captured");
        let mut last_group = self.last_group.lock().unwrap();
        if let Some((before, event)) = last_group.take() {
            if before == capture {
                driver.wait(stream, event).expect("streams of one capture");
            }
            driver.free_event(event).expect("an event of this library");
        }
        driver.submit_work(stream, move || work()).expect("a stream");
        let event = driver.new_event(false).expect("an event");
        driver.record(event, stream).expect("a stream");
        *last_group = Some((capture, event));
    }
}

impl Streams for InOrder {
    fn drain(&self, stream: u64) {
        // A failed device fails again at the next call.
        let _ = self.driver.synchronize(Stream(stream));
    }

    fn is_capturing(&self, stream: u64) -> bool {
        self.driver.capture_id(Stream(stream)).is_some()
    }

    fn record(&self, stream: u64, work: Work) {
        let stream = Stream(stream);
        if self.has_asynchronous_messages {
            self.in_captured_queue(stream, || self.submit_waiting(stream, work));
        } else {
            self.submit_blocking(stream, work);
        }
    }

    fn submit_messages(&self, stream: u64, steps: Vec<(Condition, Work)>) -> bool {
        if !self.has_asynchronous_messages {
            return false;
        }
        let is_captured = self.is_capturing(stream);
        let stream = Stream(stream);
        let submit = || {
            for (is_ready, work) in steps {
                // A failed device fails again at the next call.
                let _ = self.driver.submit_when(stream, is_ready, move || work());
            }
        };
        if is_captured {
            self.in_captured_queue(stream, submit);
        } else {
            self.in_queue(stream, submit);
        }
        true
    }
}
