//! Skeleton.

use crate::backend::cuda::Gpu;
use crate::backend::{AdamStep, SgdStep, View, ViewMut};

pub fn adamw(
    gpu: &Gpu,
    step: &AdamStep,
    p: ViewMut,
    g: View,
    m: ViewMut,
    v: ViewMut,
    copy: Option<ViewMut>,
) {
    todo!()
}

pub fn sgd(
    gpu: &Gpu,
    step: &SgdStep,
    p: ViewMut,
    g: View,
    momentum: Option<ViewMut>,
    copy: Option<ViewMut>,
) {
    todo!()
}
