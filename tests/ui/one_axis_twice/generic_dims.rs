//! A function generic in dims, without the `Shape` bound.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn table<A: Dim, B: Dim>(rank: &Rank, sizes: [usize; 2]) -> Tensor<(A, B)> {
    Tensor::from_fn(rank, &sizes, |at| (at[0] * at[1]) as f32)
}

fn main() {}
