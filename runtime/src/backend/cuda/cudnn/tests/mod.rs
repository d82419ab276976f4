//! Tests that need neither the library nor a device.

mod cache;
mod graph;
mod interpreter;
mod meaning;
mod parts;

use super::AttentionSizes;

/// Sizes for tests; `heads` and `kv_heads` differ where heads are grouped.
fn sizes(
    batch: i64,
    seq: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    causal: bool,
) -> AttentionSizes {
    AttentionSizes { batch, seq, heads, kv_heads, head_dim, causal }
}
