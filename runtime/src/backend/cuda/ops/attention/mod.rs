//! Scaled dot-product attention in tiles; no `seq x seq` matrix exists.
//!
//! There are three ways, of which the first that takes the operands is used:
//! - [`FusedAttention`](crate::backend::cuda::FusedAttention), the vendor's, for bf16;
//! - [`tensor`]: our own kernels for tensor cores, for bf16;
//! - [`plain`]: our own kernels without, for f32, and for bf16 that lies or is cut in a way that tensor cores do not take.
//!
//! Our own kernels go backward in two passes, one that owns keys and one that owns queries, each of which works out the
//! scores again: 7 products per score in place of the 5 that one pass needs, 1.4 times the arithmetic (8 for heads above
//! 128 elements, whose gradients of keys and of values do not fit registers together). One pass would have to add up the
//! gradients of queries by atomics, in an order that differs from run to run, or keep a copy of them for every tile of
//! keys.

mod plain;
mod tensor;

use bytemuck::{Pod, Zeroable};

use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::attention::PLAIN;
use crate::backend::cuda::{AttentionGradients, AttentionOperands, FusedAttention, Gpu};
use crate::backend::{AttentionShape, DType, Queue, View, ViewMut};

use super::launch::{aligned, at, covering, float_name};

/// Products of scores, and by weights.
const FORWARD_PRODUCTS: u64 = 2;
/// Products of backward in one pass, as the vendor's library does it.
const BACKWARD_PRODUCTS: u64 = 5;
/// Products of backward in two passes.
const PRODUCTS_OF_TWO_PASSES: u64 = 7;

/// See [`Backend::attention`](crate::backend::Backend::attention); gives the floating-point operations.
///
/// A NaN in a value may also reach queries that do not see it, but for their weight of 0.
pub fn attention(
    gpu: &Gpu,
    s: &AttentionShape,
    q: View,
    k: View,
    v: View,
    out: ViewMut,
    lse: ViewMut,
) -> u64 {
    let (out, lse) = (out.as_view(), lse.as_view());
    check(s, [q, out], [k, v], lse);
    if out.is_empty() {
        return 0;
    }
    let operands = [q, k, v, out];
    let fused = fused(gpu, &operands, lse).filter(|fused| fused.supports(s));
    if let Some(fused) = fused {
        let stream = gpu.stream(Queue::Compute);
        let addresses =
            AttentionOperands { q: at(q), k: at(k), v: at(v), out: at(out), lse: at(lse) };
        // SAFETY: the views have the sizes of the shape, and what is submitted to one stream is done in order.
        gpu.retry_after_trim(|| unsafe { fused.forward(stream, s, &addresses) });
    } else if tensor::takes(gpu, s, &operands) {
        tensor::forward(gpu, s, operands, lse);
    } else {
        plain::forward(gpu, s, operands, lse);
    }
    FORWARD_PRODUCTS * product_flops(s)
}

/// See [`Backend::attention_backward`](crate::backend::Backend::attention_backward); gives the floating-point operations.
///
/// A NaN may also reach gradients that do not depend on it, by way of weights of 0.
#[allow(clippy::too_many_arguments)]
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
) -> u64 {
    let (dq, dk, dv) = (dq.as_view(), dk.as_view(), dv.as_view());
    check(s, [q, out, dout, dq], [k, v, dk, dv], lse);
    if out.is_empty() {
        return 0;
    }
    let operands = [q, k, v, out, dout, dq, dk, dv];
    let fused =
        fused(gpu, &operands, lse).filter(|fused| fused.supports_backward(s, gpu.free_bytes()));
    if let Some(fused) = fused {
        let stream = gpu.stream(Queue::Compute);
        let [q, k, v, out, dout, dq, dk, dv] = operands.map(at);
        let addresses = AttentionOperands { q, k, v, out, lse: at(lse) };
        let gradients = AttentionGradients { dout, dq, dk, dv };
        // SAFETY: as in `attention`.
        gpu.retry_after_trim(|| unsafe { fused.backward(stream, s, &addresses, &gradients) });
        return BACKWARD_PRODUCTS * product_flops(s);
    }
    let given = Given { q, k, v, dout, lse, delta: deltas(gpu, s, out, dout) };
    let products = if tensor::takes(gpu, s, &operands) {
        tensor::backward(gpu, s, given, [dq, dk, dv])
    } else {
        plain::backward(gpu, s, given, [dq, dk, dv])
    };
    products * product_flops(s)
}

/// What the kernels of both backward passes read.
struct Given<'a> {
    q: View<'a>,
    k: View<'a>,
    v: View<'a>,
    dout: View<'a>,
    lse: View<'a>,
    /// Address of `sum(dout * out)` per row, f32 `[batch, heads, seq]`.
    delta: u64,
}

fn check<const N: usize>(s: &AttentionShape, queries: [View; N], keys: [View; N], lse: View) {
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

/// The vendor's attention, where there is one for these operands.
fn fused<'a>(gpu: &'a Gpu, operands: &[View], lse: View) -> Option<&'a dyn FusedAttention> {
    if !are_aligned_bf16(operands) || !aligned(&[lse], 4) {
        return None;
    }
    gpu.driver().attention()
}

fn are_aligned_bf16(operands: &[View]) -> bool {
    operands.iter().all(|view| view.dtype() == DType::Bf16 && aligned(&[*view], 8))
}

/// Floating-point operations of one product: two for each element of a head and pair of a query and a key that it sees.
fn product_flops(s: &AttentionShape) -> u64 {
    let seq = s.seq as u64;
    let pairs = if s.causal { seq * (seq + 1) / 2 } else { seq * seq };
    2 * (s.batch * s.heads * s.head_dim) as u64 * pairs
}

/// Sizes as kernels take them: the same bytes as `Sizes` in `sizes.cuh`.
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
    fn new(s: &AttentionShape) -> Sizes {
        let [seq, heads, kv_heads] = [s.seq, s.heads, s.kv_heads].map(|size| size as i32);
        let reach = if s.causal { 0 } else { seq };
        Sizes { q_len: seq, kv_len: seq, heads, kv_heads, reach, scale: s.scale }
    }
}

/// Blocks that each own `tile` positions of one of `heads` heads of one sample.
fn blocks(s: &AttentionShape, heads: usize, tile: usize) -> [u32; 3] {
    let blocks = s.seq.div_ceil(tile) * heads * s.batch;
    [u32::try_from(blocks).expect("a grid has less than 2^31 blocks"), 1, 1]
}

/// `sum(dout * out)` per row, in the workspace.
fn deltas(gpu: &Gpu, s: &AttentionShape, out: View, dout: View) -> u64 {
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
