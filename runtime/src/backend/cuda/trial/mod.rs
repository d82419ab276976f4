//! Autotuning of matmuls: times the algorithms that a library's heuristic proposes and chooses the fastest.
//!
//! Algorithms differ in tile sizes, and some in the order of summation. Candidates run at full size on synthetic
//! operands: a fixed pattern whose exact results are 0, so that the computed results consist of rounding errors only.
//! Two algorithms with bitwise equal results therefore add in the same order, and are bitwise equal on other operands
//! too. Timings, and so the chosen algorithm, may differ from run to run; results do not.

mod choice;
mod clock;
mod scratch;

use super::driver::{Driver, DriverError, MatMul, MatMulOperands, Stream};
pub use choice::Trial;
use choice::choose;
use clock::Clock;
use scratch::Scratch;

/// Timing rounds per algorithm. Rounds of all algorithms alternate, so that a clock rate that drops as the device warms
/// up affects all of them.
const ROUNDS: usize = 3;

/// Relative time to the fastest algorithm so far above which an algorithm is not timed again.
const HOPELESS: f32 = 1.3;

/// Timings of all candidates, and the choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tried {
    /// Algorithms that were not refused, in the order of their indices.
    pub trials: Vec<Trial>,
    /// Index of the chosen algorithm; `None` if device memory is too short for the operands, or every algorithm was
    /// refused.
    pub chosen: Option<usize>,
}

/// Times candidate algorithms of a matmul and chooses the fastest one whose result is bitwise equal to that of the
/// first, or with `allow_nondeterministic` the fastest of all.
///
/// `run` receives the index of an algorithm and the addresses of the operands, and submits the matmul to `stream`;
/// algorithms that it refuses are skipped. Synchronizes the stream.
///
/// # Errors
/// If the device fails.
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
        // The result of the first algorithm is kept for comparison with the others.
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

/// Measures the minimum time of each algorithm; `run` receives the indices of the algorithm and of the launch.
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
