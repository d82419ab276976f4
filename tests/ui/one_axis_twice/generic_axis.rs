//! A helper that splits any dim over any axis.

use meshwright::layout::Axis;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn table<A: Axis>(rank: &Rank) -> Tensor<(Split<Seq, A>, Ffn)> {
    Tensor::from_fn(rank, &[4, 6], |at| at[1] as f32)
}

fn tables(rank: &Rank) -> (Tensor<(Split<Seq, Tp>, Ffn)>, Tensor<(Split<Seq, Tp>, Split<Ffn, Tp>)>) {
    (table(rank), Tensor::from_fn(rank, &[4, 6], |at| at[1] as f32))
}

fn main() {}
