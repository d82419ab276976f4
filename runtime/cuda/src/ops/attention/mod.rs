//! Scaled dot-product attention in tiles (flash attention); no matrix of queries by keys exists.
//!
//! The first of three implementations that supports the operands is used:
//! - [`FusedAttention`](crate::FusedAttention) of the vendor library, for bf16 and the
//!   [`FusedShape`](crate::FusedShape)s that it supports;
//! - [`tensor`]: our own kernels for tensor cores, for bf16;
//! - [`plain`]: our own kernels without tensor cores, for f32, and for bf16 of unsupported sizes or alignment.
//!
//! The backward of our own kernels is two passes, one that owns keys and one that owns queries. Each recomputes the
//! scores: 7 matmuls per score instead of the 5 of a single pass, 1.4 times the arithmetic (8 for heads above 128
//! elements, whose gradients of keys and of values do not fit into registers together). A single pass would sum the
//! gradients of queries with atomics, in an order that differs from run to run, or keep a copy of them for every tile
//! of keys.

mod auxiliary;
mod check;
mod fused;
mod plain;
mod report;
mod sizes;
mod tensor;

use crate::kernels::attention::Variant;
use crate::{CudaBackend, GpuContext, PassDirection};
use meshwright_backend::ops::attention::{
    AttentionArgs, AttentionBackwardArgs, MergeAttentionArgs,
};
use meshwright_backend::{AttentionOps, AttentionShape, Backend, DType, View};

use auxiliary::AttentionScratch;
use sizes::ExtraArguments;

impl AttentionOps for CudaBackend {
    /// Computes attention. A NaN in a value may also reach queries that do not attend to it, through their weight of 0.
    fn attention(&self, shape: &AttentionShape, args: AttentionArgs) {
        check::forward(shape, &args);
        self.count_flops(attention(self.gpu(), shape, args));
    }

    /// Computes the backward of attention. A NaN may also reach gradients that do not depend on it, through weights of
    /// 0.
    fn attention_backward(&self, shape: &AttentionShape, args: AttentionBackwardArgs) {
        check::backward(shape, &args);
        self.count_flops(attention_backward(self.gpu(), shape, args));
    }

    fn merge_attention(&self, shape: &AttentionShape, args: MergeAttentionArgs) {
        check::merge(shape, &args);
        auxiliary::merge(self.gpu(), shape, args);
    }

    fn check_attention_heads(&self, dims: [usize; 2], dtype: DType) -> Result<(), String> {
        if dtype == DType::Bf16 && tensor::takes_heads(dims) {
            return Ok(());
        }
        plain::check_heads(self.gpu(), dims)
    }

    fn attention_implementations(&self) -> Option<String> {
        self.gpu().attention.describe()
    }
}

/// Launches the forward pass and returns its floating-point operations.
fn attention(gpu: &GpuContext, s: &AttentionShape, args: AttentionArgs) -> u64 {
    let AttentionArgs { q, k, v, ranges, bias, sinks, out, lse } = args;
    if row_count(s) == 0 {
        return 0;
    }
    let operands = Operands { q, k, v, out: out.as_view(), lse: lse.as_view() };
    let options = fused::Options {
        ranges: ranges.is_some(),
        bias: bias.is_some(),
        sinks: sinks.is_some(),
        accumulate: false,
    };
    if let Err(refusal) = fused::forward(gpu, s, options, &operands) {
        let scratch = AttentionScratch::forward(gpu, s, ranges);
        let extras = ExtraArguments::new(s, scratch.bounds, bias, sinks);
        let variant = Variant {
            ranges: scratch.bounds.is_some(),
            soft_cap: s.soft_cap.is_some(),
            bias: bias.is_some(),
            sinks: sinks.is_some(),
            dropout: s.dropout.is_some(),
            ..Variant::default()
        };
        let kernel = tensor::forward_kernel(gpu, s, variant, &operands);
        report::note_attention(
            gpu,
            s,
            PassDirection::Forward,
            q.dtype(),
            refusal,
            &|| match &kernel {
                Some(tiles) => tiles.source().name.to_string(),
                None => plain::source(s).name.to_string(),
            },
        );
        match kernel {
            Some(tiles) => tensor::forward(gpu, s, &tiles, extras, &operands),
            None => plain::forward(gpu, s, extras, &operands),
        }
    }
    s.flops([1, 1])
}

/// Launches the backward pass and returns its floating-point operations.
fn attention_backward(gpu: &GpuContext, s: &AttentionShape, args: AttentionBackwardArgs) -> u64 {
    let AttentionBackwardArgs { q, k, v, ranges, bias, sinks, out, lse, dout, .. } = args;
    let AttentionBackwardArgs { accumulate, dq, dk, dv, dbias, dsinks, .. } = args;
    let gradients = GradientViews { dq: dq.as_view(), dk: dk.as_view(), dv: dv.as_view() };
    let [dbias, dsinks] = [&dbias, &dsinks].map(|view| view.as_ref().map(|view| view.as_view()));
    let options = fused::Options {
        ranges: ranges.is_some(),
        bias: bias.is_some(),
        sinks: sinks.is_some(),
        accumulate,
    };
    let refusal = if row_count(s) == 0 {
        None
    } else {
        let operands = Operands { q, k, v, out, lse };
        match fused::backward(gpu, s, options, &operands, dout, &gradients) {
            Ok(()) => return s.flops([3, 2]),
            Err(refusal) => refusal,
        }
    };
    let scratch = AttentionScratch::backward(gpu, s, ranges, dbias.is_some());
    let extras = ExtraArguments::new(s, scratch.bounds, bias, None).accumulating(accumulate);
    auxiliary::deltas(gpu, s, out, dout, scratch.delta);
    let given = Given { q, k, v, dout, lse, delta: scratch.delta };
    if let (Some(sinks), Some(dsinks)) = (sinks, dsinks) {
        auxiliary::sink_gradients(gpu, s, sinks, dsinks, &given);
    }
    let [mut of_keys, mut of_values] = [4, 3];
    if let (Some(bias), Some(dbias)) = (bias, dbias) {
        let distances = bias.distances;
        auxiliary::bias_gradients(gpu, s, extras, &given, scratch.partials, dbias, distances);
        (of_keys, of_values) = (of_keys + 1, of_values + 1);
    }
    let variant = Variant {
        ranges: scratch.bounds.is_some(),
        soft_cap: s.soft_cap.is_some(),
        bias: bias.is_some(),
        dropout: s.dropout.is_some(),
        accumulate,
        ..Variant::default()
    };
    let kernels = tensor::TensorCoreBackward::new(gpu, s, variant, &given, &gradients);
    report::note_attention(
        gpu,
        s,
        PassDirection::Backward,
        q.dtype(),
        refusal,
        &|| match &kernels {
            Some(kernels) => kernels.names(),
            None => plain::source(s).name.to_string(),
        },
    );
    match kernels {
        Some(kernels) => {
            // If keys and values have a kernel each, both compute the scores.
            of_keys += usize::from(!kernels.both_gradients());
            kernels.run_passes(gpu, s, extras, &given, gradients);
        }
        None => plain::backward(gpu, s, extras, &given, gradients),
    }
    s.flops([of_keys, of_values])
}

/// Inputs and results of the forward pass.
struct Operands<'a> {
    q: View<'a>,
    k: View<'a>,
    v: View<'a>,
    out: View<'a>,
    lse: View<'a>,
}

/// Inputs of both backward passes.
struct Given<'a> {
    q: View<'a>,
    k: View<'a>,
    v: View<'a>,
    dout: View<'a>,
    lse: View<'a>,
    /// Address of `sum(dout * out)` per row, f32 `[batch, heads, queries.pitch]`.
    delta: u64,
}

/// Results of both backward passes.
struct GradientViews<'a> {
    dq: View<'a>,
    dk: View<'a>,
    dv: View<'a>,
}

/// Returns the rows of the output: queries of all heads.
fn row_count(s: &AttentionShape) -> u64 {
    (s.batch * s.queries.len * s.heads) as u64
}

/// Returns blocks that each own `tile` of `len` positions of one of `heads` heads of one sample.
fn blocks(s: &AttentionShape, len: usize, heads: usize, tile: usize) -> [u32; 3] {
    grid_of(len.div_ceil(tile) * heads * s.batch)
}

fn grid_of(blocks: usize) -> [u32; 3] {
    let blocks = i32::try_from(blocks).expect("a grid has less than 2^31 blocks");
    [blocks as u32, 1, 1]
}
