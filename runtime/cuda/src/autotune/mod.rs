//! Autotuning of matmuls: times the algorithms that a library's heuristic proposes and chooses the fastest.
//!
//! Algorithms differ in tile sizes, and some in the order of summation. Candidates run at full size on synthetic
//! operands: a fixed pattern whose exact results are 0, so that the computed results consist of rounding errors only.
//! Two algorithms with bitwise equal results therefore add in the same order, and are bitwise equal on other operands
//! too. Timings, and so the chosen algorithm, may differ from run to run; results do not.

mod choice;
mod operands;
mod timer;

use super::driver::{Driver, DriverError, Stream};
use super::matmul::{MatMul, MatMulOperands};
pub use choice::AlgorithmTiming;
use choice::choose_algorithm;
use operands::AutotuneOperands;
use timer::EventTimer;

/// Timing rounds per algorithm. Rounds of all algorithms alternate, so that a clock rate that drops as the device warms
/// up affects all of them.
const ROUNDS: usize = 3;

/// Relative time to the fastest algorithm so far above which an algorithm is not timed again.
const RETIME_LIMIT: f32 = 1.3;

/// Timings of all candidates, and the choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AutotuneResult {
    /// Algorithms that were not refused, in the order of their indices.
    pub timings: Vec<AlgorithmTiming>,
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
pub fn autotune_matmul(
    driver: &dyn Driver,
    stream: Stream,
    shape: &MatMul,
    algorithms: usize,
    allow_nondeterministic: bool,
    run: impl Fn(usize, &MatMulOperands) -> Result<(), DriverError>,
) -> Result<AutotuneResult, DriverError> {
    let Some(operands) = AutotuneOperands::new(driver, stream, shape)? else {
        return Ok(AutotuneResult::default());
    };
    let mut timings: Vec<AlgorithmTiming> = Vec::new();
    for algorithm in 0..algorithms {
        // The result of the first algorithm is kept for comparison with the others.
        let is_first = timings.is_empty();
        if run(algorithm, &operands.comparison_operands(is_first)?).is_err() {
            continue;
        }
        let same_bits = is_first || operands.is_bitwise_equal()?;
        timings.push(AlgorithmTiming { algorithm, same_bits, milliseconds: None });
    }
    let permitted = timings.iter_mut().filter(|timing| timing.is_permitted(allow_nondeterministic));
    let permitted: Vec<_> = permitted.collect();
    if permitted.len() > 1 {
        measure_timings(&EventTimer::new(driver, stream)?, permitted, &|algorithm, launch| {
            run(algorithm, operands.rotated_operands(launch))
        })?;
    }
    let chosen = choose_algorithm(&timings, allow_nondeterministic);
    Ok(AutotuneResult { timings, chosen })
}

/// Measures the minimum time of each algorithm; `run` receives the indices of the algorithm and of the launch.
fn measure_timings(
    timer: &EventTimer<'_>,
    mut timings: Vec<&mut AlgorithmTiming>,
    run: &dyn Fn(usize, usize) -> Result<(), DriverError>,
) -> Result<(), DriverError> {
    let rounds = timings
        .iter()
        .map(|timing| timer.launches_per_round(&|launch| run(timing.algorithm, launch)));
    let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
    let mut best = f32::INFINITY;
    for _ in 0..ROUNDS {
        for (timing, &launches) in timings.iter_mut().zip(&rounds) {
            if timing.milliseconds.is_some_and(|least| least > RETIME_LIMIT * best) {
                continue;
            }
            let round = timer.time_round(launches, &|launch| run(timing.algorithm, launch))?;
            let each = round / launches as f32;
            let least = timing.milliseconds.map_or(each, |least| least.min(each));
            timing.milliseconds = Some(least);
            best = best.min(least);
        }
    }
    Ok(())
}
