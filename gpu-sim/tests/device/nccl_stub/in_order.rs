//! Streams of a simulated device for the test's collectives library: transfers execute when their stream reaches them,
//! and can be captured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use meshwright::backend::cuda::{Driver, Event, Stream};
use meshwright_gpu_sim::SimDriver;

use super::port::{Condition, Streams, Work};

/// The streams of one rank.
pub struct InOrder {
    driver: Arc<SimDriver>,
    /// The last capture in which a group was captured, and the event of its end: groups of one rank execute in capture
    /// order, also on different streams.
    last_group: Mutex<Option<(u64, Event)>>,
    /// True if streams wait for messages instead of the host.
    has_asynchronous_messages: bool,
    /// The end of the last message and its capture, if messages of all streams execute in the order of submission.
    queue: Option<Mutex<Option<MessageEnd>>>,
}

/// The end of a message.
struct MessageEnd {
    capture: Option<u64>,
    event: Event,
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

    /// Streams that wait for messages, while the host goes on.
    pub fn with_asynchronous_messages(driver: Arc<SimDriver>) -> InOrder {
        InOrder { has_asynchronous_messages: true, ..InOrder::new(driver) }
    }

    /// Streams whose messages share one queue of the device: one that waits holds up all that were submitted after it.
    pub fn with_one_message_queue(driver: Arc<SimDriver>) -> InOrder {
        let queue = Some(Mutex::default());
        InOrder { queue, ..InOrder::with_asynchronous_messages(driver) }
    }

    /// Puts the work of a message that `submit` submits behind that of all other streams, if they share a queue.
    fn in_queue(&self, stream: Stream, submit: impl FnOnce()) {
        let Some(queue) = &self.queue else { return submit() };
        let driver = &self.driver;
        let capture = driver.capture_id(stream);
        let mut last = queue.lock().unwrap();
        if let Some(before) = last.take() {
            if before.capture == capture {
                driver.wait(stream, before.event).expect("a stream");
            }
            driver.free_event(before.event).expect("an event of this library");
        }
        submit();
        let event = driver.new_event(false).expect("an event");
        driver.record(event, stream).expect("a stream");
        *last = Some(MessageEnd { capture, event });
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
        self.driver.submit(stream, begin).expect("a stream");
        let is_over = move || is_over.load(Ordering::SeqCst);
        self.driver.submit_when(stream, is_over, || {}).expect("a stream");
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
        let (driver, stream) = (&self.driver, Stream(stream));
        let capture = driver.capture_id(stream).expect("a stream that is being captured");
        let mut last_group = self.last_group.lock().unwrap();
        if let Some((before, event)) = last_group.take() {
            if before == capture {
                driver.wait(stream, event).expect("streams of one capture");
            }
            driver.free_event(event).expect("an event of this library");
        }
        if self.has_asynchronous_messages {
            self.submit_waiting(stream, work);
        } else {
            driver.submit(stream, move || work()).expect("a stream");
        }
        let event = driver.new_event(false).expect("an event");
        driver.record(event, stream).expect("a stream");
        *last_group = Some((capture, event));
    }

    fn submit_when(&self, stream: u64, is_ready: Condition, work: Work) -> bool {
        if self.has_asynchronous_messages {
            let stream = Stream(stream);
            // A failed device fails again at the next call.
            let submit = || drop(self.driver.submit_when(stream, is_ready, move || work()));
            self.in_queue(stream, submit);
        }
        self.has_asynchronous_messages
    }
}
