//! Sizes, masks and biases as the kernels take them.

use bytemuck::{Pod, Zeroable};

use crate::ops::launch::address;
use meshwright_backend::{AttentionShape, DistanceBias, View};

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
        }
    }

    /// The same, with gradients that are accumulated.
    pub(super) fn accumulating(self, accumulate: bool) -> ExtraArguments {
        ExtraArguments { accumulate: u32::from(accumulate), ..self }
    }
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
