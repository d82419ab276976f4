//! Floating-point operations of attention.

use meshwright_backend::{AttentionShape, Band};

/// Matmuls per visible query-key pair.
pub(super) struct Products {
    /// Matmuls over the elements of a head of keys.
    pub(super) of_keys: u64,
    /// Matmuls over the elements of a head of values.
    pub(super) of_values: u64,
}

/// Returns the floating-point operations: two per element of a matmul. Key ranges are in device memory, so pairs that
/// they mask count too.
pub(super) fn attention_flops(s: &AttentionShape, products: Products) -> u64 {
    let Products { of_keys, of_values } = products;
    let elements = of_keys * s.head_dim as u64 + of_values * s.value_dim as u64;
    2 * elements * (s.batch * s.heads) as u64 * visible_pairs(s)
}

/// Returns the number of pairs that the band leaves visible, in closed form for the usual bands.
fn visible_pairs(s: &AttentionShape) -> u64 {
    let [queries, keys] = [s.queries.len, s.keys.len].map(|len| len as u64);
    match s.band {
        Band::ALL => queries * keys,
        Band::CAUSAL if queries == keys => queries * (queries + 1) / 2,
        band => band.pairs(s.queries.len, s.keys.len),
    }
}
