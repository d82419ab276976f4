//! Floating-point operations of attention.

use crate::backend::{AttentionShape, Band};

/// Products per visible pair of a query and a key.
pub(super) struct Products {
    /// Products over as many elements as a head of keys has.
    pub(super) of_keys: u64,
    /// Products over as many elements as a head of values has.
    pub(super) of_values: u64,
}

/// Returns the operations: two per element of a product. Key ranges are in device memory, so pairs that they hide count.
pub(super) fn attention_flops(s: &AttentionShape, products: Products) -> u64 {
    let Products { of_keys, of_values } = products;
    let elements = of_keys * s.head_dim as u64 + of_values * s.value_dim as u64;
    2 * elements * (s.batch * s.heads) as u64 * visible_pairs(s)
}

/// Returns the pairs that the band shows; without a loop for the usual ones.
fn visible_pairs(s: &AttentionShape) -> u64 {
    let [queries, keys] = [s.queries.len, s.keys.len].map(|len| len as u64);
    match s.band {
        Band::ALL => queries * keys,
        Band::CAUSAL if queries == keys => queries * (queries + 1) / 2,
        band => band.pairs(s.queries.len, s.keys.len),
    }
}
