//! Limits of all kernels: a copy and a matmul, in short bursts and sustained until power and temperature determine the
//! clock rate.

use std::sync::Arc;

use meshwright::backend::{Backend, DType, Gemm};
use serde_json::Value;

use super::report::{Effort, Report, Work};
use super::sizes::Sizes;

/// Creates a report as [`Report::new`], and measures the limits of its rows.
pub fn measured_report<'a>(
    backend: Arc<dyn Backend>,
    sizes: &Sizes,
    filter: &str,
    effort: Effort,
    sink: &'a mut dyn FnMut(&Value),
) -> Report<'a> {
    let mut report = Report::new(backend, filter, effort, sink);
    each(&mut report, sizes, |report, _, work, kernel| report.measure_limit(work, kernel));
    report
}

pub fn rows(report: &mut Report, sizes: &Sizes) {
    report.table("limits");
    each(report, sizes, |report, name, work, kernel| report.row(name, work, kernel));
    each(report, sizes, |report, name, work, kernel| {
        report.sustained_row(&format!("{name}, sustained"), work, kernel);
    });
}

/// Calls `run` for the copy and for the matmul.
fn each(
    report: &mut Report,
    sizes: &Sizes,
    run: impl Fn(&mut Report, &str, Work, &mut dyn FnMut(&dyn Backend)),
) {
    let len = sizes.copied;
    let (src, mut dst) = (report.random(DType::F32, len), report.alloc(DType::F32, len));
    let name = format!("copy of {} MB", (4 * len).div_ceil(1_000_000));
    run(report, &name, Work::Bytes(8.0 * len as f64), &mut |backend| {
        backend.cast(src.view(), dst.view_mut());
    });
    drop((src, dst));
    let size = sizes.square;
    let [a, b] = [(); 2].map(|()| report.random(DType::Bf16, size * size));
    let mut c = report.alloc(DType::Bf16, size * size);
    let gemm = Gemm { m: size, n: size, k: size, trans_a: false, trans_b: true, accumulate: false };
    let work = Work::Flops(2.0 * (size * size * size) as f64);
    run(report, &format!("matmul of {size}^3, bf16"), work, &mut |backend| {
        backend.gemm(&gemm, a.view(), b.view(), c.view_mut());
    });
}
