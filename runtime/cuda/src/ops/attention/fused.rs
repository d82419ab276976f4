//! Attention by the vendor library.

use crate::{
    AttentionGradients, AttentionImplementation, AttentionOperands, DriverCalls, FusedAttention,
    FusedShape, GpuContext, PassDirection,
};
use meshwright_backend::{AttentionShape, DType, StreamKind, View};

use super::super::launch::{address, aligned};
use super::{GradientViews, Operands};

/// The reason why the vendor library does not compute a pass; `None` if it is missing, or reports its reason itself.
pub(super) type Refusal = Option<&'static str>;

/// Optional operands, which fused kernels do not support.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub ranges: bool,
    pub bias: bool,
    pub sinks: bool,
    pub accumulate: bool,
}

/// Returns the shape of a pass for the vendor library.
fn shape(s: &AttentionShape, options: Options) -> Result<FusedShape, &'static str> {
    let Options { ranges, bias, sinks, accumulate } = options;
    let refusals = [
        (ranges, "each query has a range of keys"),
        (bias, "scores have a bias"),
        (sinks, "there are sinks"),
        (accumulate, "gradients are added"),
    ];
    match refusals.iter().find(|(given, _)| *given) {
        Some((_, reason)) => Err(reason),
        None => FusedShape::from_attention(s),
    }
}

/// Submits the forward pass, if the library supports its operands.
pub(super) fn forward(
    gpu: &GpuContext,
    s: &AttentionShape,
    options: Options,
    operands: &Operands,
) -> Result<(), Refusal> {
    let &Operands { q, k, v, out, lse } = operands;
    let fused = library(gpu, &[q, k, v, out], lse)?;
    let s = shape(s, options)?;
    if !fused.supports(&s) {
        return Err(None);
    }
    let stream = gpu.stream(StreamKind::Compute);
    let addresses = operands.addresses();
    // SAFETY: the views have the sizes of the shape, and work submitted to one stream is done in order.
    gpu.retry_after_trim(|| unsafe { gpu.driver().attention_forward(stream, &s, &addresses) });
    gpu.attention.note(PassDirection::Forward, AttentionImplementation::Cudnn);
    Ok(())
}

/// Submits the backward pass, if the library supports its operands.
pub(super) fn backward(
    gpu: &GpuContext,
    s: &AttentionShape,
    options: Options,
    operands: &Operands,
    dout: View,
    gradients: &GradientViews,
) -> Result<(), Refusal> {
    let &Operands { q, k, v, out, lse } = operands;
    let &GradientViews { dq, dk, dv } = gradients;
    let fused = library(gpu, &[q, k, v, out, dout, dq, dk, dv], lse)?;
    let s = shape(s, options)?;
    if !fused.supports_backward(&s, gpu.free_bytes()) {
        return Err(None);
    }
    let stream = gpu.stream(StreamKind::Compute);
    let [dout, dq, dk, dv] = [dout, dq, dk, dv].map(address);
    let gradients = AttentionGradients { dout, dq, dk, dv };
    let operands = operands.addresses();
    // SAFETY: as in `forward`.
    gpu.retry_after_trim(|| unsafe {
        gpu.driver().attention_backward(stream, &s, &operands, &gradients)
    });
    gpu.attention.note(PassDirection::Backward, AttentionImplementation::Cudnn);
    Ok(())
}

impl Operands<'_> {
    fn addresses(&self) -> AttentionOperands {
        let [q, k, v, out, lse] = [self.q, self.k, self.v, self.out, self.lse].map(address);
        AttentionOperands { q, k, v, out, lse }
    }
}

/// Returns the attention of the vendor library, if it supports operands of these dtypes and addresses.
fn library<'a>(
    gpu: &'a GpuContext,
    operands: &[View],
    lse: View,
) -> Result<&'a dyn FusedAttention, Refusal> {
    let fused = gpu.driver().attention().ok_or(None)?;
    if !operands.iter().all(|view| view.dtype() == DType::Bf16) {
        return Err(Some("operands are not bf16"));
    }
    if !aligned(operands, 8) || !aligned(&[lse], 4) {
        return Err(Some("operands are not aligned to 16 bytes"));
    }
    Ok(fused)
}
