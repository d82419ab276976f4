//! Streams of a simulated device for the test's collectives library: transfers execute when their stream reaches them,
//! and can be captured.

use std::sync::{Arc, Mutex};

use meshwright::backend::cuda::{Driver, Event, Stream};
use meshwright_gpu_sim::SimDriver;

use super::port::{Streams, Work};

/// The streams of one rank.
pub struct InOrder {
    driver: Arc<SimDriver>,
    /// The last capture in which a group was captured, and the event of its end: groups of one rank execute in capture
    /// order, also on different streams.
    recorded: Mutex<Option<(u64, Event)>>,
}

impl InOrder {
    pub fn new(driver: Arc<SimDriver>) -> InOrder {
        InOrder { driver, recorded: Mutex::default() }
    }
}

impl Streams for InOrder {
    fn drain(&self, stream: u64) {
        // A failed device fails again at the next call.
        let _ = self.driver.synchronize(Stream(stream));
    }

    fn record(&self, stream: u64, work: Work) -> bool {
        let (driver, stream) = (&self.driver, Stream(stream));
        let Some(recording) = driver.capture_id(stream) else { return false };
        let mut recorded = self.recorded.lock().unwrap();
        if let Some((before, event)) = recorded.take() {
            if before == recording {
                driver.wait(stream, event).expect("streams of one recording");
            }
            driver.free_event(event).expect("an event of this library");
        }
        driver.submit(stream, move || work()).expect("a stream");
        let event = driver.new_event(false).expect("an event");
        driver.record(event, stream).expect("a stream");
        *recorded = Some((recording, event));
        true
    }
}
