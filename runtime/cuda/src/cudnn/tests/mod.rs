//! Tests that need neither the library nor a device.

mod cache;
mod graph;
mod interpreter;
mod meaning;
mod parts;

use super::{BandMask, CudnnAttentionSizes};

/// Sizes of self-attention for tests; `heads` and `kv_heads` differ where heads are grouped.
fn sizes(
    batch: i64,
    seq: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    causal: bool,
) -> CudnnAttentionSizes {
    CudnnAttentionSizes {
        batch,
        queries: seq,
        keys: seq,
        key_pitch: seq,
        heads,
        kv_heads,
        head_dim,
        value_dim: head_dim,
        mask: if causal { BandMask::CAUSAL } else { BandMask::ALL },
    }
}
