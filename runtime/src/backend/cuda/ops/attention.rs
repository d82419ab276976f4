//! Skeleton.

use crate::backend::cuda::Gpu;
use crate::backend::{AttentionShape, View, ViewMut};

pub fn attention(
    gpu: &Gpu,
    s: &AttentionShape,
    q: View,
    k: View,
    v: View,
    out: ViewMut,
    lse: ViewMut,
) {
    todo!()
}

pub fn attention_backward(
    gpu: &Gpu,
    s: &AttentionShape,
    q: View,
    k: View,
    v: View,
    out: View,
    lse: View,
    dout: View,
    dq: ViewMut,
    dk: ViewMut,
    dv: ViewMut,
) {
    todo!()
}
