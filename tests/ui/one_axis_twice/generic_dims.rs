//! A function that is generic in dims, and does not say that they fit together.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn table<A: Dim, B: Dim>(rank: &Rank, sizes: [usize; 2]) -> Tensor<(A, B)> {
    Tensor::from_fn(rank, &sizes, |at| (at[0] * at[1]) as f32)
}

fn main() {}
