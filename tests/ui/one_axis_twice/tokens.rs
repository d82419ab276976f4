//! Tokens over the data axes, split over `dp` again.

use meshwright::prelude::*;

dims! { Batch @ data, Seq }

fn read(rank: &Rank, ids: &[u32]) -> Tokens<(Batch, Split<Seq, Dp>)> {
    Tokens::from_block(rank, &[8, 16], ids)
}

fn rows(rank: &Rank, ids: &[u32]) -> Vec<Tokens<(Split<Batch, Fsdp>, Seq)>> {
    ids.chunks(16).enumerate().map(|(row, ids)| Tokens::from_rows(rank, &[8, 16], row, ids)).collect()
}

fn main() {}
