//! Every kernel against its formula in f64, over odd sizes and several thread counts.

mod attention;
mod bf16;
mod elements;
mod loss;
mod map;
mod math;
mod matrix;
mod norm;
mod random;
mod rope;
mod routing;

use super::CpuBackend;
use super::simd::tests::at_every_isa;
use meshwright_backend::Backend;

/// Values in [-1, 1), different for every seed.
fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Every error within `tolerance` of the largest expected element (or of 0.1: operands are of order one).
#[track_caller]
fn assert_close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(0.1, |max: f64, x| max.max(x.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(*got) - expected).abs() / largest;
        // Written so that NaN fails.
        assert!(error <= tolerance, "{what}[{i}]: {got} instead of {expected}, error {error:e}");
    }
}

/// Runs `test` with one thread at every vector width, and with more threads.
fn on_every_backend(test: impl Fn(&dyn Backend)) {
    let one = CpuBackend::new(1).expect("one thread starts nothing");
    at_every_isa(|| test(&one));
    for threads in [2, 3] {
        test(&CpuBackend::new(threads).expect("threads start"));
    }
}

/// The bits of a result for one, two and five threads are the same.
#[track_caller]
fn assert_same_on_any_threads(what: &str, compute: impl Fn(&dyn Backend) -> Vec<f32>) {
    let results = [1, 2, 5].map(|threads| {
        let result = compute(&CpuBackend::new(threads).expect("threads start"));
        result.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    });
    assert!(results[0] == results[1] && results[0] == results[2], "{what} depends on threads");
}
