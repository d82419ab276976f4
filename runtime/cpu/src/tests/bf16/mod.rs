//! Every kernel on bf16 against the same kernel on the same values in f32.
//!
//! Inputs are values of bf16. A result that is rounded to bf16 lies within half a unit in the last place of the f32
//! result, plus a stated share of the largest element for kernels that add up in another order; a result in f32 lies
//! within that share.

mod attention;
mod conversion;
mod elements;
mod products;
mod rows;

use half::bf16;

use super::{CpuBackend, on_every_backend, values};
use crate::float::Float;
use meshwright_backend::{Backend, View, ViewMut};

/// A kernel, or some that belong together, with fixed inputs.
trait Kernel {
    /// Results on operands of type `T`, which hold the same values for every `T`.
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T>;
}

struct Results<T> {
    /// Operands and results in the dtype under test.
    rounded: Vec<(&'static str, Vec<T>)>,
    /// Results in f32 for any dtype of the operands.
    wide: Vec<(&'static str, Vec<f32>)>,
}

/// Values in [-factor, factor) that bf16 can hold, different for every seed.
fn input<T: Float>(len: usize, seed: u64, factor: f32) -> Vec<T> {
    values(len, seed)
        .into_iter()
        .map(|x| T::narrow_from_f32(bf16::from_f32(factor * x).to_f32()))
        .collect()
}

fn view<T: Float>(x: &[T]) -> View<'_> {
    x.into()
}

fn view_mut<T: Float>(x: &mut [T]) -> ViewMut<'_> {
    x.into()
}

/// A value that must be overwritten.
fn unwritten<T: Float>(len: usize) -> Vec<T> {
    vec![T::narrow_from_f32(f32::NAN); len]
}

/// Half of the distance between bf16 values around `x`.
fn half_unit(x: f32) -> f32 {
    let power = f32::from_bits(x.to_bits() & 0x7f80_0000);
    (power / 256.0).max(f32::from_bits(1 << 15))
}

/// Asserts the bounds at every vector width and for several threads, and that threads do not change a bit.
#[track_caller]
fn assert_rounds(what: &str, kernel: &impl Kernel, slack: f32) {
    let one = CpuBackend::new(1).expect("one thread starts nothing");
    let reference = kernel.run::<f32>(&one);
    let bits = |cpu: &dyn Backend| -> Vec<Vec<u32>> {
        let results = kernel.run::<bf16>(cpu);
        let rounded = results.rounded.iter();
        let rounded = rounded.map(|(_, x)| x.iter().map(|x| u32::from(x.to_bits())).collect());
        let wide = results.wide.iter().map(|(_, x)| x.iter().map(|x| x.to_bits()).collect());
        rounded.chain(wide).collect()
    };
    let alone = bits(&one);
    for threads in [2, 3] {
        let more = CpuBackend::new(threads).expect("threads start");
        assert!(bits(&more) == alone, "{what} depends on threads");
    }
    on_every_backend(|cpu| {
        let got = kernel.run::<bf16>(cpu);
        for ((name, got), (_, expected)) in got.rounded.iter().zip(&reference.rounded) {
            let got: Vec<f32> = got.iter().map(|x| x.to_f32()).collect();
            assert_within(&format!("{name} of {what}"), &got, expected, slack, half_unit);
        }
        for ((name, got), (_, expected)) in got.wide.iter().zip(&reference.wide) {
            assert_within(&format!("{name} of {what}"), got, expected, slack, |_| 0.0);
        }
    });
}

/// Asserts every error to be within `unit(expected)` plus `slack` times the largest expected element.
#[track_caller]
fn assert_within(what: &str, got: &[f32], expected: &[f32], slack: f32, unit: impl Fn(f32) -> f32) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let bound = unit(*expected) + slack * largest;
        // Written so that NaN fails.
        let near = (got - expected).abs() <= bound;
        assert!(near, "{what}[{i}]: {got} instead of {expected}, bound {bound:e}");
    }
}
