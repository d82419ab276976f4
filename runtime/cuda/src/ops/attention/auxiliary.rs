//! Launches of the kernels around attention.

use crate::gpu::args;
use crate::kernels::attention::{AUXILIARY, BIAS, BIAS_DROPOUT};
use crate::{GpuContext, Grid};
use meshwright_backend::ops::attention::MergeAttentionArgs;
use meshwright_backend::{AttentionShape, KeyRanges, View};

use super::super::launch::{THREADS, address, aligned, covering, float_name};
use super::plain::{self, PlainTiles, TILE};
use super::sizes::{AttentionSizes, ExtraArguments, first_visible, hides_first_keys};
use super::{Given, grid_of, row_count};

/// Addresses in the workspace of one operation.
pub(super) struct AttentionScratch {
    /// f32 `[batch, heads, queries.pitch]`.
    pub(super) delta: u64,
    /// First keys and ends of keys, i32 `[batch, queries.pitch]` each, if the queries have any of their own.
    pub(super) bounds: Option<[u64; 2]>,
    /// Parts of the gradient of the bias, f32 `[heads, diagonals, 2 * TILE - 1]`.
    pub(super) partials: u64,
}

impl AttentionScratch {
    /// Allocates the buffers of the forward pass.
    pub(super) fn forward(
        gpu: &GpuContext,
        s: &AttentionShape,
        ranges: Option<KeyRanges>,
    ) -> AttentionScratch {
        AttentionScratch::new(gpu, s, ranges, 0, 0)
    }

    /// Allocates the buffers of the backward pass.
    pub(super) fn backward(
        gpu: &GpuContext,
        s: &AttentionShape,
        ranges: Option<KeyRanges>,
        of_bias: bool,
    ) -> AttentionScratch {
        let deltas = s.batch * s.heads * s.queries.pitch;
        let partials = s.heads * diagonals(s) * (2 * TILE - 1);
        AttentionScratch::new(gpu, s, ranges, deltas, if of_bias { partials } else { 0 })
    }

    fn new(
        gpu: &GpuContext,
        s: &AttentionShape,
        ranges: Option<KeyRanges>,
        deltas: usize,
        partials: usize,
    ) -> AttentionScratch {
        let has_bounds = ranges.is_some() || hides_first_keys(s);
        let bounds = if has_bounds { s.batch * s.queries.pitch } else { 0 };
        // All elements have 4 bytes; parts begin aligned, as workspaces do.
        let mut used = 0;
        let mut part = |elements: usize| {
            let start = used;
            used += (4 * elements).next_multiple_of(256);
            start as u64
        };
        let [delta, first, end, partials] = [deltas, bounds, bounds, partials].map(&mut part);
        if used == 0 {
            return AttentionScratch { delta: 0, bounds: None, partials: 0 };
        }
        let start = gpu.workspace(used);
        let bounds = has_bounds.then(|| [start + first, start + end]);
        if let Some(bounds) = bounds {
            write_bounds(gpu, s, ranges, bounds);
        }
        AttentionScratch { delta: start + delta, bounds, partials: start + partials }
    }
}

/// Combines the band and the key ranges of each query.
fn write_bounds(
    gpu: &GpuContext,
    s: &AttentionShape,
    ranges: Option<KeyRanges>,
    [first, end]: [u64; 2],
) {
    let [of_first, of_end] =
        ranges.map_or([0, 0], |ranges| [address(ranges.first), address(ranges.end)]);
    let queries = (s.batch * s.queries.len) as u64;
    let grid = covering(gpu, queries);
    let (begin, sizes) = (first_visible(s), AttentionSizes::new(s));
    let args = args![of_first, of_end, first, end, queries, begin, sizes];
    // SAFETY: ranges have the sizes of the shape, and the workspace has room for the results.
    unsafe { gpu.launch((&AUXILIARY, "attention_bounds"), grid, args) };
}

/// Computes `sum(dout * out)` per row.
pub(super) fn deltas(gpu: &GpuContext, s: &AttentionShape, out: View, dout: View, delta: u64) {
    let (rows, dim) = (row_count(s), s.value_dim as i32);
    let [of_out, of_dout] = [out, dout].map(|view| float_name(view.dtype()));
    let name = if of_out == of_dout {
        format!("attention_deltas_{of_dout}")
    } else {
        format!("attention_deltas_{of_out}_{of_dout}")
    };
    let is_wide =
        aligned(&[out, dout], 8) && (s.value_dim * dout.dtype().bytes()).is_multiple_of(16);
    let wide = u32::from(is_wide);
    let grid = covering(gpu, rows * 8);
    let sizes = AttentionSizes::new(s);
    let [out, dout] = [out, dout].map(address);
    let args = args![out, dout, delta, rows, dim, wide, sizes];
    // SAFETY: both operands have a row for every delta, and the workspace has room for these.
    unsafe { gpu.launch((&AUXILIARY, &name), grid, args) };
}

/// Computes the gradient of sinks.
pub(super) fn sink_gradients(
    gpu: &GpuContext,
    s: &AttentionShape,
    sinks: View,
    dsinks: View,
    given: &Given,
) {
    let rows = (s.batch * s.queries.len) as u64;
    let grid = Grid { blocks: [s.heads as u32, 1, 1], threads: THREADS, shared: 0 };
    let sizes = AttentionSizes::new(s);
    let [sinks, dsinks, lse] = [sinks, dsinks, given.lse].map(address);
    let args = args![sinks, lse, given.delta, dsinks, rows, sizes];
    // SAFETY: the views have the sizes of the shape.
    unsafe { gpu.launch((&AUXILIARY, "attention_sink_gradients"), grid, args) };
}

/// Computes the gradient of the distance bias, in the same way for all operands: few models train one.
pub(super) fn bias_gradients(
    gpu: &GpuContext,
    s: &AttentionShape,
    extras: ExtraArguments,
    given: &Given,
    partials: u64,
    dbias: View,
    distances: usize,
) {
    let &Given { q, k, v, dout, lse, delta } = given;
    let source = if s.dropout.is_some() { &BIAS_DROPOUT } else { &BIAS };
    let name = format!("attention_bias_partials_{}", float_name(q.dtype()));
    let (sizes, diagonals) = (AttentionSizes::new(s), diagonals(s));
    let [batch, head_dim, value_dim] = [s.batch, s.head_dim, s.value_dim].map(|size| size as i32);
    let grid = Grid {
        blocks: grid_of(diagonals * s.heads),
        ..plain::plain_grid(gpu, s, PlainTiles { of_keys: 2, of_values: 2, scores: 1 })
    };
    let [q, k, v, dout, lse] = [q, k, v, dout, lse].map(address);
    let of_all = diagonals as i32;
    let args = args![
        q, k, v, dout, lse, delta, partials, of_all, batch, sizes, extras, head_dim, value_dim
    ];
    // SAFETY: the views have the sizes of the shape, and the workspace has room for the partials.
    unsafe { gpu.launch((source, &name), grid, args) };

    let grid = covering(gpu, (s.heads * distances * 32) as u64);
    let dbias = address(dbias);
    let args = args![partials, dbias, of_all, sizes, extras];
    // SAFETY: as above.
    unsafe { gpu.launch((source, "attention_bias_gradients"), grid, args) };
}

/// Returns the diagonals of tiles of scores.
fn diagonals(s: &AttentionShape) -> usize {
    match [s.queries.len, s.keys.len].map(|len| len.div_ceil(TILE)) {
        [0, _] | [_, 0] => 0,
        [queries, keys] => queries + keys - 1,
    }
}

/// Merges outputs over different keys.
pub(super) fn merge(gpu: &GpuContext, s: &AttentionShape, args: MergeAttentionArgs) {
    let MergeAttentionArgs { out, lse, sum, sum_lse } = args;
    let (rows, dim) = (row_count(s), s.value_dim as i32);
    let [out, lse, sum, sum_lse] = [out, lse, sum.as_view(), sum_lse.as_view()].map(address);
    let grid = covering(gpu, rows * 32);
    let sizes = AttentionSizes::new(s);
    let args = args![out, lse, sum, sum_lse, rows, dim, sizes];
    // SAFETY: the views have the sizes of the shape.
    unsafe { gpu.launch((&AUXILIARY, "attention_merge"), grid, args) };
}
