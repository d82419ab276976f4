//! Kernels over all parameters.

use half::bf16;
use meshwright::backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright::backend::{AdamGroup, AdamStep, DType, SgdStep, StateRounding};

use crate::report::{Report, Work};
use crate::{Number, PARAMETERS, filled, view, view_mut};

const ADAM: AdamStep = AdamStep {
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    bias_correction1: 0.5,
    bias_correction2: 0.5,
    grad_scale: 1.0,
};

const SGD: SgdStep =
    SgdStep { lr: 1e-3, momentum: 0.9, nesterov: false, weight_decay: 0.1, grad_scale: 1.0 };

/// The optimizer of the model, whose layers read parameters of type `T`.
pub fn rows<T: Number>(report: &mut Report) {
    let mut g = filled::<f32>(PARAMETERS, 0.1);
    report.row("fill, gradients", 1, Work::Bytes(4 * PARAMETERS), |cpu| {
        cpu.fill(view_mut(&mut g), 0.1);
    });
    let mut total = 0.0;
    report.row("sum_squares", 1, Work::Bytes(4 * PARAMETERS), |cpu| {
        total += cpu.sum_squares(view(&g));
    });
    assert!(total.is_finite(), "the gradients are finite");
    adamw::<f32, T>(report, "adamw", 1, PARAMETERS);
}

/// Every optimizer on more parameters than any cache holds.
pub fn beyond_cache(report: &mut Report) {
    const MANY: usize = 1 << 26;
    adamw::<f32, f32>(report, "adamw", 0, MANY);
    adamw::<f32, bf16>(report, "adamw with a bf16 copy", 0, MANY);
    adamw::<bf16, bf16>(report, "adamw with moments and a copy in bf16", 0, MANY);
    let (mut p, mut state) = (filled::<f32>(MANY, 0.5), filled::<f32>(MANY, 0.1));
    let (g, mut copy) = (filled::<f32>(MANY, 0.1), filled::<bf16>(MANY, 0.0));
    report.row("sgd with momentum", 0, Work::Bytes(20 * MANY), |cpu| {
        let momentum = Some(view_mut(&mut state));
        let (p, g) = (view_mut(&mut p), view(&g));
        cpu.sgd(&SGD, SgdArgs { p, g, momentum, copy: None, rounding: &[] });
    });
    report.row("sgd with momentum and a bf16 copy", 0, Work::Bytes(22 * MANY), |cpu| {
        let (momentum, copy) = (Some(view_mut(&mut state)), Some(view_mut(&mut copy)));
        let (p, g) = (view_mut(&mut p), view(&g));
        cpu.sgd(&SGD, SgdArgs { p, g, momentum, copy, rounding: &[] });
    });
    report.row("lerp, moving average", 0, Work::Bytes(12 * MANY), |cpu| {
        cpu.lerp(view_mut(&mut state), view(&p), 0.1);
    });
    report.row("cast f32 to bf16", 0, Work::Bytes(6 * MANY), |cpu| {
        cpu.cast(view(&p), view_mut(&mut copy));
    });
    report.row("cast bf16 to f32", 0, Work::Bytes(6 * MANY), |cpu| {
        cpu.cast(view(&copy), view_mut(&mut p));
    });
    report.row("add_assign of bf16 to f32", 0, Work::Bytes(10 * MANY), |cpu| {
        cpu.add_assign(view_mut(&mut p), view(&copy));
    });
}

/// Parameter and moments, which are of type `S`, are read and written, and the gradient is read; the copy is written
/// unless `T` is f32.
fn adamw<S: Number, T: Number>(report: &mut Report, name: &str, calls: usize, len: usize) {
    let mut p = filled::<f32>(len, 0.5);
    let [mut m, mut v] = [0.1, 0.1].map(|value| filled::<S>(len, value));
    let rounding = [StateRounding::contiguous(1, 0, len)];
    let rounding = if S::DTYPE == DType::F32 { &[] } else { &rounding[..] };
    let g = filled::<f32>(len, 0.1);
    let extra = if T::DTYPE == DType::F32 { 0 } else { size_of::<T>() };
    let group = AdamGroup { len, lr: 1e-3, weight_decay: 0.1 };
    let mut copy = filled::<T>(if extra > 0 { len } else { 0 }, 0.0);
    report.row(name, calls, Work::Bytes((12 + 4 * size_of::<S>() + extra) * len), |cpu| {
        let (p, m, v) = (view_mut(&mut p), view_mut(&mut m), view_mut(&mut v));
        let copy = if extra > 0 { Some(view_mut(&mut copy)) } else { None };
        cpu.adamw(&ADAM, &[group], AdamwArgs { p, g: view(&g), m, v, copy, rounding });
    });
}
