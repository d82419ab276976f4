//! How long work on a device takes.

use crate::backend::cuda::driver::{Driver, DriverError, Event, Stream};

/// The least milliseconds of a round: what the host needs to submit it, and what the clock cannot tell apart, are little
/// beside.
const ROUND: f32 = 1.0;

/// The most launches of a round.
const MOST_LAUNCHES: usize = 1024;

/// Measures time on a stream.
pub struct Clock<'a> {
    driver: &'a dyn Driver,
    stream: Stream,
    events: Vec<Event>,
}

impl<'a> Clock<'a> {
    pub fn new(driver: &'a dyn Driver, stream: Stream) -> Result<Clock<'a>, DriverError> {
        let mut clock = Clock { driver, stream, events: Vec::new() };
        for _ in 0..2 {
            clock.events.push(driver.new_event(true)?);
        }
        Ok(clock)
    }

    /// How many launches make a round that is long enough. `launch` is given the number of each.
    pub fn round(
        &self,
        launch: &dyn Fn(usize) -> Result<(), DriverError>,
    ) -> Result<usize, DriverError> {
        let mut launches = 1;
        loop {
            let milliseconds = self.time(launches, launch)?;
            if milliseconds >= ROUND || launches >= MOST_LAUNCHES {
                return Ok(launches);
            }
            let enough = (ROUND / milliseconds * launches as f32).ceil() as usize;
            launches = enough.clamp(2 * launches, MOST_LAUNCHES);
        }
    }

    /// Milliseconds of a round.
    pub fn time(
        &self,
        launches: usize,
        launch: &dyn Fn(usize) -> Result<(), DriverError>,
    ) -> Result<f32, DriverError> {
        let (from, to) = (self.events[0], self.events[1]);
        self.driver.record(from, self.stream)?;
        (0..launches).try_for_each(launch)?;
        self.driver.record(to, self.stream)?;
        self.driver.synchronize(self.stream)?;
        self.driver.elapsed_ms(from, to)
    }
}

impl Drop for Clock<'_> {
    fn drop(&mut self) {
        for event in &self.events {
            // Nobody could act on an error.
            let _ = self.driver.free_event(*event);
        }
    }
}
