//! Attention by the vendor library.

use crate::backend::cuda::{
    AttentionGradients, AttentionOperands, DenseAttention, FusedAttention, GpuContext,
};
use crate::backend::{DType, StreamKind, View};

use super::super::launch::{aligned, at};
use super::Gradients;

/// Submits the forward pass; returns false if the library does not take these operands.
pub(super) fn forward(
    gpu: &GpuContext,
    s: &DenseAttention,
    operands: [View; 4],
    lse: View,
) -> bool {
    let fused = library(gpu, &operands, lse).filter(|fused| fused.supports(s));
    let Some(fused) = fused else { return false };
    let stream = gpu.stream(StreamKind::Compute);
    let addresses = addresses(operands, lse);
    // SAFETY: the views have the sizes of the shape, and what is submitted to one stream is done in order.
    gpu.retry_after_trim(|| unsafe { fused.forward(stream, s, &addresses) });
    true
}

/// Submits the backward pass; returns false if the library does not take these operands.
pub(super) fn backward(
    gpu: &GpuContext,
    s: &DenseAttention,
    operands: [View; 4],
    (lse, dout): (View, View),
    gradients: &Gradients,
) -> bool {
    let [q, k, v, out] = operands;
    let &Gradients { dq, dk, dv } = gradients;
    let fused = library(gpu, &[q, k, v, out, dout, dq, dk, dv], lse)
        .filter(|fused| fused.supports_backward(s, gpu.free_bytes()));
    let Some(fused) = fused else { return false };
    let stream = gpu.stream(StreamKind::Compute);
    let [dout, dq, dk, dv] = [dout, dq, dk, dv].map(at);
    let gradients = AttentionGradients { dout, dq, dk, dv };
    let operands = addresses(operands, lse);
    // SAFETY: as in `forward`.
    gpu.retry_after_trim(|| unsafe { fused.backward(stream, s, &operands, &gradients) });
    true
}

fn addresses(operands: [View; 4], lse: View) -> AttentionOperands {
    let [q, k, v, out] = operands.map(at);
    AttentionOperands { q, k, v, out, lse: at(lse) }
}

/// Returns the attention of the vendor library, if it takes operands of these dtypes and addresses.
fn library<'a>(
    gpu: &'a GpuContext,
    operands: &[View],
    lse: View,
) -> Option<&'a dyn FusedAttention> {
    let is_bf16 = operands.iter().all(|view| view.dtype() == DType::Bf16);
    if !is_bf16 || !aligned(operands, 8) || !aligned(&[lse], 4) {
        return None;
    }
    gpu.driver().attention()
}
