//! A row-parallel layer on a stream that is split over its axis twice.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Inner = Tensor<(Batch, Split<Seq, Tp>, Split<Ffn, Tp>)>;

#[model]
struct Down {
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

fn down(layers: &[Down], rank: &Rank) -> Vec<Tensor<(Batch, Split<Seq, Tp>, Hidden)>> {
    let x = Inner::from_fn(rank, &[2, 4, 6], |_| 1.0);
    layers.iter().map(|layer| layer.down.forward(&x)).collect()
}

fn main() {}
