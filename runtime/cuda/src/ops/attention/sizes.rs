//! Sizes, masks and biases as the kernels take them.

use bytemuck::{Pod, Zeroable};

use crate::ops::launch::address;
use meshwright_backend::{AttentionShape, DistanceBias, GlobalPositions, View, WeightDropout};

/// Argument `Sizes` of the kernels, with the same layout as in `sizes.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct AttentionSizes {
    q_len: i32,
    q_pitch: i32,
    kv_len: i32,
    kv_pitch: i32,
    heads: i32,
    kv_heads: i32,
    group: i32,
    first_head: i32,
    reach: i32,
    scale: f32,
}

impl AttentionSizes {
    pub(super) fn new(s: &AttentionShape) -> AttentionSizes {
        let &AttentionShape { queries, keys, heads, kv_heads, group, first_head, scale, .. } = s;
        let [q_len, q_pitch, kv_len, kv_pitch] =
            [queries.len, queries.pitch, keys.len, keys.pitch].map(|size| size as i32);
        let [heads, kv_heads, group, first_head] =
            [heads, kv_heads, group, first_head].map(|size| size as i32);
        let reach = last_visible(s);
        AttentionSizes {
            q_len,
            q_pitch,
            kv_len,
            kv_pitch,
            heads,
            kv_heads,
            group,
            first_head,
            reach,
            scale,
        }
    }
}

/// Argument `Extras` of the kernels, with the same layout as in `sizes.cuh`; zeros: none.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct ExtraArguments {
    first: u64,
    end: u64,
    bias: u64,
    sinks: u64,
    distances: i32,
    zero: i32,
    soft_cap: f32,
    accumulate: u32,
    key: u64,
    threshold: u32,
    kept: f32,
    dropout_head: i32,
    rows: [i32; 3],
    queries: [i32; 3],
    keys: [i32; 3],
    aligned_queries: u32,
    aligned_keys: u32,
}

impl ExtraArguments {
    /// `bounds` are the addresses of the first key and of the end of the keys of each query.
    pub(super) fn new(
        s: &AttentionShape,
        bounds: Option<[u64; 2]>,
        bias: Option<DistanceBias>,
        sinks: Option<View>,
    ) -> ExtraArguments {
        let [first, end] = bounds.unwrap_or_default();
        let distances = bias.map_or(0, |bias| bias.distances);
        ExtraArguments {
            first,
            end,
            bias: bias.map_or(0, |bias| address(bias.values)),
            sinks: sinks.map_or(0, address),
            distances: distances as i32,
            zero: bias.map_or(0, |bias| {
                // Beyond these, every pair has the first or the last bias.
                let [first, last] = [-(s.keys.len as isize), (s.queries.len + distances) as isize];
                (bias.zero as isize).saturating_sub(s.band.offset).clamp(first, last) as i32
            }),
            soft_cap: s.soft_cap.unwrap_or(0.0),
            accumulate: 0,
            ..s.dropout.map_or(ExtraArguments::zeroed(), |dropout| of_dropout(s, &dropout))
        }
    }

    /// The same, with gradients that are accumulated.
    pub(super) fn accumulating(self, accumulate: bool) -> ExtraArguments {
        ExtraArguments { accumulate: u32::from(accumulate), ..self }
    }
}

/// Returns the arguments of dropout, the others zero.
fn of_dropout(s: &AttentionShape, dropout: &WeightDropout) -> ExtraArguments {
    let WeightDropout { key, rows, first_head, queries, keys, .. } = *dropout;
    let aligned =
        |positions: &GlobalPositions, len: usize| u32::from(has_aligned_blocks(positions, len));
    ExtraArguments {
        key,
        threshold: dropout.threshold(),
        kept: dropout.kept_factor(),
        dropout_head: first_head as i32,
        rows: positions(&rows, s.batch),
        queries: positions(&queries, s.queries.len),
        keys: positions(&keys, s.keys.len),
        aligned_queries: aligned(&queries, s.queries.len),
        aligned_keys: aligned(&keys, s.keys.len),
        ..ExtraArguments::zeroed()
    }
}

/// Returns the positions of `len` indices as kernels take them.
fn positions(positions: &GlobalPositions, len: usize) -> [i32; 3] {
    let &GlobalPositions { first, gap_at, gap } = positions;
    let gap = if gap_at < len { gap } else { 0 };
    // Beyond the last index, kernels add up to a tile.
    [first, gap_at.min(i32::MAX as usize), gap].map(|position| position as i32)
}

/// Returns true if 16 indices from a multiple of 16 on are at 16 positions from a multiple of 16 on.
fn has_aligned_blocks(positions: &GlobalPositions, len: usize) -> bool {
    let &GlobalPositions { first, gap_at, gap } = positions;
    let is_aligned = |position: usize| position.is_multiple_of(16);
    is_aligned(first) && (gap == 0 || gap_at >= len || is_aligned(gap_at) && is_aligned(gap))
}

/// Returns the offset of the last visible key of the band from the index of a query.
fn last_visible(s: &AttentionShape) -> i32 {
    let last = |after: usize| s.band.offset.saturating_add_unsigned(after);
    clamp(s, s.band.after.map_or(isize::MAX, last))
}

/// Returns the offset of the first visible key of the band from the index of a query.
pub(super) fn first_visible(s: &AttentionShape) -> i32 {
    let first = |before: usize| s.band.offset.saturating_sub_unsigned(before);
    clamp(s, s.band.before.map_or(isize::MIN, first))
}

/// Returns true if the band masks keys before the first visible key of a query.
pub(super) fn hides_first_keys(s: &AttentionShape) -> bool {
    first_visible(s) as isize + s.queries.len as isize > 1
}

/// Clamps the distance of a key from a query to the range of distances with different effects.
fn clamp(s: &AttentionShape, distance: isize) -> i32 {
    distance.clamp(-(s.queries.len as isize), s.keys.len as isize) as i32
}
