//! Scaled dot-product attention in tiles (flash attention); no `seq x seq` matrix exists.
//!
//! The first of three implementations that supports the operands is used:
//! - [`FusedAttention`](crate::backend::cuda::FusedAttention) of the vendor library, for bf16;
//! - [`tensor`]: our own kernels for tensor cores, for bf16;
//! - [`plain`]: our own kernels without tensor cores, for f32, and for bf16 of unsupported sizes or alignment.
//!
//! The backward of our own kernels is two passes, one that owns keys and one that owns queries, each of which recomputes
//! the scores: 7 matmuls per score instead of the 5 of a single pass, 1.4 times the arithmetic (8 for heads above 128
//! elements, whose gradients of keys and of values do not fit into registers together). A single pass would sum the
//! gradients of queries with atomics, in an order that differs from run to run, or keep a copy of them for every tile of
//! keys.

mod plain;
mod tensor;

use bytemuck::{Pod, Zeroable};

use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::attention::PLAIN;
use crate::backend::cuda::{
    AttentionGradients, AttentionOperands, CudaBackend, DenseAttention, FusedAttention, GpuContext,
};
use crate::backend::{
    AttentionArgs, AttentionBackwardArgs, AttentionOps, AttentionShape, Backend, DType,
    MergeAttentionArgs, StreamKind, View,
};

use super::launch::{aligned, at, covering, float_name};

/// Matmuls of the forward pass.
const FORWARD_MATMULS: u64 = 2;
/// Matmuls of a backward in one pass, as in the vendor library.
const BACKWARD_MATMULS: u64 = 5;
/// Matmuls of a backward in two passes.
const TWO_PASS_MATMULS: u64 = 7;

impl AttentionOps for CudaBackend {
    /// A NaN in a value may also reach queries that do not attend to it, through their weight of 0.
    fn attention(&self, shape: &AttentionShape, args: AttentionArgs) {
        let shape = &DenseAttention::of(shape).expect("dense");
        self.count_flops(attention(self.gpu(), shape, args));
    }

    /// A NaN may also reach gradients that do not depend on it, through weights of 0.
    fn attention_backward(&self, shape: &AttentionShape, args: AttentionBackwardArgs) {
        let shape = &DenseAttention::of(shape).expect("dense");
        self.count_flops(attention_backward(self.gpu(), shape, args));
    }

    fn merge_attention(&self, _: &AttentionShape, _: MergeAttentionArgs) {
        unimplemented!()
    }
}

/// Launches the forward pass and returns its floating-point operations.
fn attention(gpu: &GpuContext, s: &DenseAttention, args: AttentionArgs) -> u64 {
    let AttentionArgs { q, k, v, out, lse, .. } = args;
    let (out, lse) = (out.as_view(), lse.as_view());
    check(s, [q, out], [k, v], lse);
    if out.is_empty() {
        return 0;
    }
    let operands = [q, k, v, out];
    let fused = fused(gpu, &operands, lse).filter(|fused| fused.supports(s));
    if let Some(fused) = fused {
        let stream = gpu.stream(StreamKind::Compute);
        let addresses = addresses(operands, lse);
        // SAFETY: the views have the sizes of the shape, and what is submitted to one stream is done in order.
        gpu.retry_after_trim(|| unsafe { fused.forward(stream, s, &addresses) });
    } else if tensor::takes(gpu, s, &operands) {
        tensor::forward(gpu, s, operands, lse);
    } else {
        plain::forward(gpu, s, operands, lse);
    }
    FORWARD_MATMULS * matmul_flops(s)
}

/// Launches the backward pass and returns its floating-point operations.
fn attention_backward(gpu: &GpuContext, s: &DenseAttention, args: AttentionBackwardArgs) -> u64 {
    let AttentionBackwardArgs { q, k, v, out, lse, dout, dq, dk, dv, .. } = args;
    let (dq, dk, dv) = (dq.as_view(), dk.as_view(), dv.as_view());
    check(s, [q, out, dout, dq], [k, v, dk, dv], lse);
    if out.is_empty() {
        return 0;
    }
    let operands = [q, k, v, out, dout, dq, dk, dv];
    let fused =
        fused(gpu, &operands, lse).filter(|fused| fused.supports_backward(s, gpu.free_bytes()));
    if let Some(fused) = fused {
        let stream = gpu.stream(StreamKind::Compute);
        let [dout, dq, dk, dv] = [dout, dq, dk, dv].map(at);
        let gradients = AttentionGradients { dout, dq, dk, dv };
        let operands = addresses([q, k, v, out], lse);
        // SAFETY: as in `attention`.
        gpu.retry_after_trim(|| unsafe { fused.backward(stream, s, &operands, &gradients) });
        return BACKWARD_MATMULS * matmul_flops(s);
    }
    let given = Given { q, k, v, dout, lse, delta: deltas(gpu, s, out, dout) };
    let matmuls = if tensor::takes(gpu, s, &operands) {
        tensor::backward(gpu, s, given, [dq, dk, dv])
    } else {
        plain::backward(gpu, s, given, [dq, dk, dv])
    };
    matmuls * matmul_flops(s)
}

/// Inputs of both backward passes.
struct Given<'a> {
    q: View<'a>,
    k: View<'a>,
    v: View<'a>,
    dout: View<'a>,
    lse: View<'a>,
    /// Address of `sum(dout * out)` per row, f32 `[batch, heads, seq]`.
    delta: u64,
}

fn check<const N: usize>(s: &DenseAttention, queries: [View; N], keys: [View; N], lse: View) {
    let rows = s.batch * s.seq;
    assert!(s.scale > 0.0, "the order of scores is that of scaled scores: {s:?}");
    assert!(s.kv_heads > 0 && s.heads.is_multiple_of(s.kv_heads), "kv_heads divide heads: {s:?}");
    assert!(s.seq < 1 << 30, "positions are counted in 32 bits: {s:?}");
    for (views, heads) in [(queries, s.heads), (keys, s.kv_heads)] {
        for view in views {
            assert_eq!(view.len(), rows * heads * s.head_dim, "attention operands fit {s:?}");
            assert_eq!(view.dtype(), queries[0].dtype(), "attention operands have one dtype");
        }
    }
    assert_eq!(lse.len(), rows * s.heads, "attention operands fit {s:?}");
    assert_eq!(lse.dtype(), DType::F32, "statistics are f32");
}

fn addresses(operands: [View; 4], lse: View) -> AttentionOperands {
    let [q, k, v, out] = operands.map(at);
    AttentionOperands { q, k, v, out, lse: at(lse) }
}

/// Returns the attention of the vendor library, if it takes these operands.
fn fused<'a>(gpu: &'a GpuContext, operands: &[View], lse: View) -> Option<&'a dyn FusedAttention> {
    if !are_aligned_bf16(operands) || !aligned(&[lse], 4) {
        return None;
    }
    gpu.driver().attention()
}

fn are_aligned_bf16(operands: &[View]) -> bool {
    operands.iter().all(|view| view.dtype() == DType::Bf16 && aligned(&[*view], 8))
}

/// Returns the floating-point operations of one matmul: two per head element and pair of a query and a visible key.
fn matmul_flops(s: &DenseAttention) -> u64 {
    let seq = s.seq as u64;
    let pairs = if s.causal { seq * (seq + 1) / 2 } else { seq * seq };
    2 * (s.batch * s.heads * s.head_dim) as u64 * pairs
}

/// `Sizes` of the kernels, with the same layout as in `sizes.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Sizes {
    q_len: i32,
    kv_len: i32,
    heads: i32,
    kv_heads: i32,
    reach: i32,
    scale: f32,
}

impl Sizes {
    fn new(s: &DenseAttention) -> Sizes {
        let [seq, heads, kv_heads] = [s.seq, s.heads, s.kv_heads].map(|size| size as i32);
        let reach = if s.causal { 0 } else { seq };
        Sizes { q_len: seq, kv_len: seq, heads, kv_heads, reach, scale: s.scale }
    }
}

/// Returns blocks that each own `tile` positions of one of `heads` heads of one sample.
fn blocks(s: &DenseAttention, heads: usize, tile: usize) -> [u32; 3] {
    let blocks = s.seq.div_ceil(tile) * heads * s.batch;
    [u32::try_from(blocks).expect("a grid has less than 2^31 blocks"), 1, 1]
}

/// Computes `sum(dout * out)` per row into the workspace, and returns the address.
fn deltas(gpu: &GpuContext, s: &DenseAttention, out: View, dout: View) -> u64 {
    let rows = (s.batch * s.seq * s.heads) as u64;
    let delta = gpu.workspace(rows as usize * size_of::<f32>());
    let name = format!("attention_deltas_{}", float_name(out.dtype()));
    let wide = aligned(&[out, dout], 8) && (s.head_dim * out.dtype().bytes()).is_multiple_of(16);
    let [len, heads, head_dim] = [s.seq, s.heads, s.head_dim].map(|size| size as i32);
    let grid = covering(gpu, rows * 8);
    // SAFETY: both operands have a row for every delta, and the workspace has room for these.
    unsafe {
        gpu.launch(
            (&PLAIN, &name),
            grid,
            args![at(out), at(dout), delta, rows, len, heads, head_dim, u32::from(wide)],
        )
    };
    delta
}
