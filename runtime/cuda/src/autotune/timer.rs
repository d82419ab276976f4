//! Timing of work on a device.

use crate::driver::{Driver, DriverCalls, DriverError, Event, Stream};

/// Minimum duration of a round, in milliseconds: launch overhead and timer resolution are small relative to it.
const MIN_ROUND_MS: f32 = 1.0;

/// Maximum number of launches per round.
const MAX_LAUNCHES: usize = 1024;

/// Measures the time of work on a stream by events.
pub struct EventTimer<'a> {
    driver: &'a dyn Driver,
    stream: Stream,
    events: Vec<Event>,
}

impl<'a> EventTimer<'a> {
    pub fn new(driver: &'a dyn Driver, stream: Stream) -> Result<EventTimer<'a>, DriverError> {
        let mut timer = EventTimer { driver, stream, events: Vec::new() };
        for _ in 0..2 {
            timer.events.push(driver.new_event(true)?);
        }
        Ok(timer)
    }

    /// Returns the number of launches for a round of sufficient duration. `launch` receives the index of each launch.
    pub fn launches_per_round(
        &self,
        launch: &dyn Fn(usize) -> Result<(), DriverError>,
    ) -> Result<usize, DriverError> {
        let mut launches = 1;
        loop {
            let milliseconds = self.time_round(launches, launch)?;
            if milliseconds >= MIN_ROUND_MS || launches >= MAX_LAUNCHES {
                return Ok(launches);
            }
            let enough = (MIN_ROUND_MS / milliseconds * launches as f32).ceil() as usize;
            launches = enough.max(2 * launches).min(MAX_LAUNCHES);
        }
    }

    /// Returns the duration of a round, in milliseconds.
    pub fn time_round(
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

impl Drop for EventTimer<'_> {
    fn drop(&mut self) {
        for event in &self.events {
            // Errors cannot be handled here.
            let _ = self.driver.free_event(*event);
        }
    }
}
