//! A sum over `dp` of a tensor distributed over the data axes.

use meshwright::prelude::*;

dims! { Batch @ data, Rows @ dp, Hidden }

type Block = Tensor<(Batch, Rows, Hidden)>;

fn totals(rank: &Rank, blocks: &[Vec<f32>]) -> Vec<Partial<(Batch, Hidden), Dp>> {
    blocks.iter().map(|block| Block::from_block(rank, &[8, 8, 4], block).sum(Rows)).collect()
}

fn main() {}
