//! The optimizer's pass over parameters.

use meshwright::backend::ops::optim::AdamwArgs;
use meshwright::backend::{AdamGroup, AdamStep, DType, StateRounding};

use super::report::{Report, Work};
use super::sizes::Sizes;

pub fn rows(report: &mut Report, sizes: &Sizes) {
    let len = sizes.parameters;
    report.table(&format!("optimizer, {} parameters", len));
    let [mut p, g, mut m, mut v] = [(); 4].map(|()| report.random(DType::F32, len));
    let mut copy = report.alloc(DType::Bf16, len);
    let step = AdamStep {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        bias_correction1: 0.1,
        bias_correction2: 0.05,
        grad_scale: 1.0,
    };
    let group = AdamGroup { len, lr: 1e-6, weight_decay: 0.1 };
    report.row("adamw with a bf16 copy", Work::Bytes(30.0 * len as f64), |backend| {
        let [p, m, v] = [&mut p, &mut m, &mut v].map(|x| x.view_mut());
        let copy = Some(copy.view_mut());
        backend.adamw(&step, &[group], AdamwArgs { p, g: g.view(), m, v, copy, rounding: &[] });
    });
    let [mut m, mut v] = [(); 2].map(|()| report.random(DType::Bf16, len));
    let rounding = [StateRounding::contiguous(1, 0, len)];
    let name = "adamw with moments and a copy in bf16";
    report.row(name, Work::Bytes(22.0 * len as f64), |backend| {
        let [p, m, v] = [&mut p, &mut m, &mut v].map(|x| x.view_mut());
        let (copy, rounding) = (Some(copy.view_mut()), &rounding[..]);
        backend.adamw(&step, &[group], AdamwArgs { p, g: g.view(), m, v, copy, rounding });
    });
    report.row("sum_squares", Work::Bytes(4.0 * len as f64), |backend| {
        std::hint::black_box(backend.sum_squares(g.view()));
    });
}
