//! Attention of other software.

use meshwright::backend::{Kernel, KernelOp};
use meshwright::sim::cluster::Gpu;
use meshwright::sim::{EventKind, StepLog};

use super::replace;

/// Bytes of a score, and of the element of a mask of dropout.
const SCORE: u64 = 2;
const MASK: u64 = 1;

/// Replaces attention by matmuls over all pairs, with a softmax and dropout in memory.
pub fn unfuse(log: &mut StepLog) {
    replace(log, |_, event, kinds| match event.kind {
        EventKind::Kernel(kernel) if kernel.op == KernelOp::AttentionKernel => {
            forward(&kernel, kinds)
        }
        EventKind::Kernel(kernel) if kernel.op == KernelOp::AttentionBackward => {
            backward(&kernel, kinds);
        }
        kind => kinds.push(kind),
    });
}

/// Computes attention again before its backward pass.
pub fn recompute(log: &mut StepLog) {
    replace(log, |_, event, kinds| {
        if let EventKind::Kernel(kernel) = event.kind
            && kernel.op == KernelOp::AttentionBackward
        {
            // Two of five matmuls.
            let (op, flops) = (KernelOp::AttentionKernel, kernel.flops / 5 * 2);
            kinds.push(EventKind::Kernel(Kernel { op, flops, ..kernel }));
        }
        kinds.push(event.kind);
    });
}

/// Rate of FlashAttention-2 relative to attention that uses the matrix units of a Hopper or newer GPU: Shah et al.,
/// *FlashAttention-3* (2024), 1.5 to 2.0 times as fast.
const OF_NEWER: f64 = 0.6;

/// Sets the rate of attention to that of FlashAttention-2 in programs, `fraction` of its kernel alone.
pub fn use_flash2(log: &mut StepLog, gpu: &Gpu, fraction: f64) {
    // The curves of an A100 are its own.
    let is_newer = ["h100", "h200", "b200", "gb200"].iter().any(|name| gpu.name.starts_with(name));
    let fraction = if is_newer { fraction * OF_NEWER } else { fraction };
    replace(log, |_, event, kinds| {
        kinds.push(match event.kind {
            EventKind::Kernel(mut kernel) if kernel.op.is_attention() => {
                kernel.flops = (kernel.flops as f64 / fraction) as u64;
                EventKind::Kernel(kernel)
            }
            kind => kind,
        });
    });
}

fn forward(attention: &Kernel, kinds: &mut Vec<EventKind>) {
    let scores = scores(attention);
    let queries = queries(attention);
    kinds.push(matmul(attention, 2 * queries, SCORE * scores));
    kinds.push(pass(attention, KernelOp::Softmax, SCORE * scores, SCORE * scores));
    kinds.push(pass(attention, KernelOp::Map, SCORE * scores, (SCORE + MASK) * scores));
    kinds.push(matmul(attention, SCORE * scores + queries, queries));
}

fn backward(attention: &Kernel, kinds: &mut Vec<EventKind>) {
    let scores = scores(attention);
    let queries = queries(attention);
    // Gradients of values, and of scores.
    kinds.push(matmul(attention, SCORE * scores + queries, queries));
    kinds.push(matmul(attention, 2 * queries, SCORE * scores));
    kinds.push(pass(attention, KernelOp::MapBackward, (SCORE + MASK) * scores, SCORE * scores));
    kinds.push(pass(attention, KernelOp::SoftmaxBackward, 2 * SCORE * scores, SCORE * scores));
    // Gradients of queries and keys.
    kinds.push(matmul(attention, SCORE * scores + queries, queries));
    kinds.push(matmul(attention, SCORE * scores + queries, queries));
}

fn scores(attention: &Kernel) -> u64 {
    let [queries, keys, heads, _] = attention.dims.map(u64::from);
    queries * keys * heads
}

/// Returns the bytes of all queries.
fn queries(attention: &Kernel) -> u64 {
    let [queries, _, heads, head_dim] = attention.dims.map(u64::from);
    queries * heads * head_dim * 2
}

fn matmul(attention: &Kernel, read: u64, written: u64) -> EventKind {
    let [queries, keys, heads, head_dim] = attention.dims;
    let flops = 2 * scores(attention) * u64::from(head_dim);
    let dims = [queries.saturating_mul(heads), keys, head_dim, 0];
    let dtype = attention.dtype;
    EventKind::Kernel(Kernel { op: KernelOp::Gemm, dims, dtype, flops, read, written })
}

fn pass(attention: &Kernel, op: KernelOp, read: u64, written: u64) -> EventKind {
    let [queries, keys, heads, _] = attention.dims;
    let dims = [queries.saturating_mul(heads), keys, 0, 0];
    EventKind::Kernel(Kernel { op, dims, dtype: attention.dtype, flops: 0, read, written })
}
