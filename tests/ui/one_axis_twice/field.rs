//! A buffer in a struct, one block for each layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

struct Cache {
    blocks: Vec<Tensor<(Batch, Split<Seq, Tp>, Split<Ffn, Tp>)>>,
}

fn cache(rank: &Rank, layers: usize) -> Cache {
    let block = |_| Tensor::from_fn(rank, &[2, 4, 6], |_| 0.0);
    Cache { blocks: (0..layers).map(block).collect() }
}

fn main() {}
