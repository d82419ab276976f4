//! Streams of a simulated device as a library of collectives uses them: transfers come when their stream has come to that
//! point, and can be recorded.

use std::sync::{Arc, Mutex};

use meshwright::backend::cuda::{Driver, Event, Stream};
use meshwright_gpu_sim::SimDriver;

use super::port::{Streams, Work};

/// The streams of one rank.
pub struct InOrder {
    driver: Arc<SimDriver>,
    /// The recording in which a group was recorded last, and when that is done: groups of one rank are done in the order in
    /// which they were recorded, also those of unlike streams.
    recorded: Mutex<Option<(u64, Event)>>,
}

impl InOrder {
    pub fn new(driver: Arc<SimDriver>) -> InOrder {
        InOrder { driver, recorded: Mutex::default() }
    }
}

impl Streams for InOrder {
    fn drain(&self, stream: u64) {
        // A device that has failed fails again at the next call.
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
