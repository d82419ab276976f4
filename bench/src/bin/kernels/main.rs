//! Cost of every CPU kernel in a training step of the 34M-parameter Llama (hidden 512, feed-forward 1408, 8 layers, 8
//! heads of 64, vocabulary 8192, batch 4, sequence 512), in f32 and bf16, next to the limits of the machine (its
//! roofline: GEMM peak and copy bandwidth); and of the optimizers on more parameters than any cache holds.
//!
//! `kernels [THREADS] [NAME]` prints Markdown tables of the kernels whose names contain NAME. With one thread, times
//! are CPU time of that thread, which does not depend on the machine's load; otherwise they are wall-clock times.

mod attention;
mod elementwise;
mod gemm;
mod loss;
mod optimizer;
mod report;

use half::bf16;
use meshwright::backend::{Element, View, ViewMut};

use report::Report;

const TOKENS: usize = 2048;
const HIDDEN: usize = 512;
const FFN: usize = 1408;
const LAYERS: usize = 8;
const VOCAB: usize = 8192;
const PARAMETERS: usize = 2 * VOCAB * HIDDEN + LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN);

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(1);
    let mut report = Report::new(threads, args.next().unwrap_or_default());
    step::<f32>(&mut report);
    step::<bf16>(&mut report);
    report.table("optimizers, 64M parameters");
    optimizer::beyond_cache(&mut report);
}

/// Measures a training step whose activations and parameters, as layers read them, are of type `T`.
fn step<T: Number>(report: &mut Report) {
    report.table(T::DTYPE.name());
    gemm::rows::<T>(report);
    attention::rows::<T>(report);
    elementwise::rows::<T>(report);
    loss::rows::<T>(report);
    optimizer::rows::<T>(report);
    report.total();
}

/// An element type of activations.
trait Number: Element {
    /// Rounds to this type.
    fn of(x: f32) -> Self;
}

impl Number for f32 {
    fn of(x: f32) -> Self {
        x
    }
}

impl Number for bf16 {
    fn of(x: f32) -> Self {
        bf16::from_f32(x)
    }
}

fn filled<T: Number>(len: usize, value: f32) -> Vec<T> {
    vec![T::of(value); len]
}

fn view<T: Element>(x: &[T]) -> View<'_> {
    x.into()
}

fn view_mut<T: Element>(x: &mut [T]) -> ViewMut<'_> {
    x.into()
}
