//! Which of several ways to compute a matrix product is the fastest, found out by trying them.
//!
//! Ways differ in how they cut a product into tiles, and some in the order in which they add. They are tried on numbers
//! that were made for it, at full size: a fixed pattern, whose results are nothing but rounding, so that two ways with the
//! same bits add in the same order, and have the same bits on other numbers too. What is chosen can then differ from run
//! to run, as measured times do, and no result does.

mod choice;
mod scratch;

use super::driver::{Driver, DriverError, Event, MatMul, MatMulOperands, Stream};
use choice::{Trial, choose, median};
use scratch::Scratch;

/// How often each way is timed, after one run that is not.
const TIMED_RUNS: usize = 5;

/// Tries ways to compute a product, and gives the number of the one to use: the fastest of those whose results have the
/// bits of the first, or with `any_bits` the fastest of all.
///
/// `run` is given the number of a way and where the operands lie, and submits the product to `stream`; ways that it refuses
/// are left out. Waits for the stream. There is no answer where the device has no memory to spare for
/// operands to try on, or where every way is refused.
///
/// # Errors
/// When the device fails.
pub fn fastest(
    driver: &dyn Driver,
    stream: Stream,
    shape: &MatMul,
    ways: usize,
    any_bits: bool,
    run: impl Fn(usize, &MatMulOperands) -> Result<(), DriverError>,
) -> Result<Option<usize>, DriverError> {
    let Some(scratch) = Scratch::new(driver, stream, shape)? else { return Ok(None) };
    let clock = Clock::new(driver, stream)?;
    let mut trials: Vec<Trial> = Vec::new();
    for way in 0..ways {
        let is_first = trials.is_empty();
        if run(way, &scratch.operands(is_first)?).is_err() {
            continue;
        }
        let same_bits = is_first || scratch.is_alike()?;
        // What the first has written stays, for the others to be compared with.
        let operands = scratch.operands(false)?;
        let times = (0..TIMED_RUNS).map(|_| clock.time(|| run(way, &operands)));
        let milliseconds = median(times.collect::<Result<_, _>>()?);
        trials.push(Trial { way, same_bits, milliseconds });
    }
    Ok(choose(&trials, any_bits))
}

/// Measures time on a stream.
struct Clock<'a> {
    driver: &'a dyn Driver,
    stream: Stream,
    events: Vec<Event>,
}

impl<'a> Clock<'a> {
    fn new(driver: &'a dyn Driver, stream: Stream) -> Result<Clock<'a>, DriverError> {
        let mut clock = Clock { driver, stream, events: Vec::new() };
        for _ in 0..2 {
            clock.events.push(driver.new_event(true)?);
        }
        Ok(clock)
    }

    /// Milliseconds that what `work` submits takes.
    fn time(&self, work: impl FnOnce() -> Result<(), DriverError>) -> Result<f32, DriverError> {
        let (from, to) = (self.events[0], self.events[1]);
        self.driver.record(from, self.stream)?;
        work()?;
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
