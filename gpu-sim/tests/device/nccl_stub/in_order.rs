//! Streams of a simulated device for the test's collectives library: transfers execute when their stream reaches them,
//! and can be captured.

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
}

impl InOrder {
    pub fn new(driver: Arc<SimDriver>) -> InOrder {
        InOrder { driver, last_group: Mutex::default(), has_asynchronous_messages: false }
    }

    /// Streams that wait for messages, while the host goes on.
    pub fn with_asynchronous_messages(driver: Arc<SimDriver>) -> InOrder {
        InOrder { has_asynchronous_messages: true, ..InOrder::new(driver) }
    }
}

impl Streams for InOrder {
    fn drain(&self, stream: u64) {
        // A failed device fails again at the next call.
        let _ = self.driver.synchronize(Stream(stream));
    }

    fn record(&self, stream: u64, work: Work) -> bool {
        let (driver, stream) = (&self.driver, Stream(stream));
        let Some(capture) = driver.capture_id(stream) else { return false };
        let mut last_group = self.last_group.lock().unwrap();
        if let Some((before, event)) = last_group.take() {
            if before == capture {
                driver.wait(stream, event).expect("streams of one capture");
            }
            driver.free_event(event).expect("an event of this library");
        }
        driver.submit(stream, move || work()).expect("a stream");
        let event = driver.new_event(false).expect("an event");
        driver.record(event, stream).expect("a stream");
        *last_group = Some((capture, event));
        true
    }

    fn submit_when(&self, stream: u64, is_ready: Condition, work: Work) -> bool {
        if self.has_asynchronous_messages {
            // A failed device fails again at the next call.
            let _ = self.driver.submit_when(Stream(stream), is_ready, move || work());
        }
        self.has_asynchronous_messages
    }
}
