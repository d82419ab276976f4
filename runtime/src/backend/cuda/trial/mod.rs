//! Which of several ways to compute a matrix product is the fastest, found out by trying them.
//!
//! Ways differ in how they cut a product into tiles, and some in the order in which they add. They are tried on numbers
//! that were made for it, at full size: a fixed pattern, whose results are nothing but rounding, so that two ways with the
//! same bits add in the same order, and have the same bits on other numbers too. What is chosen can then differ from run
//! to run, as measured times do, and no result does.

mod choice;
mod clock;
mod scratch;

use super::driver::{Driver, DriverError, MatMul, MatMulOperands, Stream};
pub use choice::Trial;
use choice::choose;
use clock::Clock;
use scratch::Scratch;

/// How often each way is timed, all of them one after the other each time, so that clocks that fall as the device warms up
/// fall for all.
const ROUNDS: usize = 3;

/// A way that has taken so many times as long as the fastest so far is not timed again.
const HOPELESS: f32 = 1.3;

/// How several ways did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tried {
    /// Those that were not refused, in the order of their numbers.
    pub trials: Vec<Trial>,
    /// The number of the way to use; `None` where the device has no memory to spare for operands to try on, or where every
    /// way is refused.
    pub chosen: Option<usize>,
}

/// Tries ways to compute a product, and chooses one: the fastest of those whose results have the bits of the first, or with
/// `any_bits` the fastest of all.
///
/// `run` is given the number of a way and where the operands lie, and submits the product to `stream`; ways that it refuses
/// are left out. Waits for the stream.
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
) -> Result<Tried, DriverError> {
    let Some(scratch) = Scratch::new(driver, stream, shape)? else { return Ok(Tried::default()) };
    let mut trials: Vec<Trial> = Vec::new();
    for way in 0..ways {
        // What the first has written stays, for the others to be compared with.
        let is_first = trials.is_empty();
        if run(way, &scratch.operands(is_first)?).is_err() {
            continue;
        }
        let same_bits = is_first || scratch.is_alike()?;
        trials.push(Trial { way, same_bits, milliseconds: None });
    }
    let allowed: Vec<_> = trials.iter_mut().filter(|trial| trial.is_allowed(any_bits)).collect();
    if allowed.len() > 1 {
        time(&Clock::new(driver, stream)?, allowed, &|way, launch| {
            run(way, scratch.rotated(launch))
        })?;
    }
    let chosen = choose(&trials, any_bits);
    Ok(Tried { trials, chosen })
}

/// Notes the least time of each way; `run` is given its number and that of the launch.
fn time(
    clock: &Clock<'_>,
    mut trials: Vec<&mut Trial>,
    run: &dyn Fn(usize, usize) -> Result<(), DriverError>,
) -> Result<(), DriverError> {
    let rounds = trials.iter().map(|trial| clock.round(&|launch| run(trial.way, launch)));
    let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
    let mut best = f32::INFINITY;
    for _ in 0..ROUNDS {
        for (trial, &launches) in trials.iter_mut().zip(&rounds) {
            if trial.milliseconds.is_some_and(|least| least > HOPELESS * best) {
                continue;
            }
            let round = clock.time(launches, &|launch| run(trial.way, launch))?;
            let each = round / launches as f32;
            let least = trial.milliseconds.map_or(each, |least| least.min(each));
            trial.milliseconds = Some(least);
            best = best.min(least);
        }
    }
    Ok(())
}
