//! Work of the hops of a ring, in counted FLOPs.

use super::super::super::score_operands::ScoreGradients;
use super::super::local::{KeySource, LocalAttention, MergedAttention, OutputGradient};
use super::case::{BATCH, Case};
use crate::tensor::Extent;
use meshwright_backend::{Buffer, DType};

/// Counts the FLOPs of the forward and of the backward of each rank's hops, with chunks of `chunk` positions.
fn flops_of_hops(ranks: usize, chunk: usize) -> Vec<Vec<[u64; 2]>> {
    let case = Case::causal(2 * ranks * chunk, 2, 1);
    case.on_each_rank(
        ranks,
        DType::F32,
        |comms| comms,
        |call| {
            let (position, flops) = (call.group.rank(), || call.rank.backend().flops());
            let held = |rank: usize| Extent::zig_zag(call.seq, rank, ranks);
            let local = LocalAttention::new(call, held(position));
            let zeros = |row: usize| call.zeros(DType::F32, BATCH * 2 * chunk * row);
            let [q, k, v, out] = case.rows().map(zeros);
            let lse = call.zeros(DType::F32, local.lse_len());
            let mut gradients = [&q, &k, &v].map(|data| call.zeros(DType::F32, data.len()));
            let (q, out) = (q.view(), out.view());
            let of = OutputGradient { q, out, lse: lse.view(), dout: out };
            let mut merged = MergedAttention::new(&local);
            let hop = |hop: usize| {
                let positions = held((position + ranks - hop) % ranks);
                let source = KeySource { positions, k: k.view(), v: v.view() };
                let start = flops();
                local.attend(q, &source, &mut merged);
                let middle = flops();
                let gradients = gradients.each_mut().map(Buffer::view_mut);
                local.backward(&of, &source, true, gradients, &mut ScoreGradients::default());
                [middle - start, flops() - middle]
            };
            (0..ranks).map(hop).collect()
        },
    )
}

/// Also a chunk that ends inside of a tile.
#[test]
fn hops_of_causal_attention_are_equal_work() {
    for (ranks, chunk) in [(2, 512), (4, 512), (3, 600), (4, 1000)] {
        let all = flops_of_hops(ranks, chunk);
        for pass in [0, 1] {
            let counts = || all.iter().flatten().map(|hop| hop[pass]);
            let (least, most) = (counts().min().unwrap(), counts().max().unwrap());
            assert_eq!(counts().count(), ranks * ranks);
            // As many as the pairs need: two matmuls in forward, of heads of 8 elements.
            let pairs = (BATCH * 2 * 2 * chunk * chunk) as u64;
            assert!(pass == 1 || least >= pairs * 32, "{least} FLOPs of {pairs} pairs");
            assert!(most * 10 <= least * 11, "{ranks} ranks, chunks of {chunk}: {all:?}");
        }
    }
}
