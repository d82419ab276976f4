//! Bytes that one rank sends in a collective, by the convention of `CommStats`: the bytes of a ring algorithm, rounded
//! down.

/// An all-gather or a reduce-scatter of `bytes` in total.
pub fn gather(bytes: usize, ranks: usize) -> usize {
    bytes * (ranks - 1) / ranks
}

/// An all-reduce: a reduce-scatter and an all-gather.
pub fn all_reduce(bytes: usize, ranks: usize) -> usize {
    2 * gather(bytes, ranks)
}
