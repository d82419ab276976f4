//! Every style on every number of ranks, with every kind of mask, number of key-value heads and recomputation.

use super::{HeadDim, Heads, KvHeads, Run, assert_within, sizes, with_style};
use crate::nn::{AttentionOptions, ContextStyle, RecomputeOverride, Sizes};

/// Without documents and windows, with one of them, and with both.
const MASKS: [(bool, Option<usize>); 4] =
    [(false, None), (true, None), (false, Some(7)), (true, Some(7))];

/// Heads that each number of ranks divides.
const HEADS: usize = 24;

/// Gradients of one key-value head are sums over all query heads.
const TOLERANCE: f64 = 5e-6;

/// Numbers of key-value heads: as many as query heads, one for each group of query heads, and one.
fn key_value_heads(ranks: usize) -> [usize; 3] {
    [HEADS, if ranks == 3 { 6 } else { 8 }, 1]
}

fn sizes_of(kv_heads: usize, window: Option<usize>) -> Sizes {
    let mut sizes = sizes().with(Heads, HEADS).with(KvHeads, kv_heads).with(HeadDim, 2);
    sizes.attention = AttentionOptions { windows: vec![window, None], ..Default::default() };
    sizes
}

/// Losses and gradients equal one rank's without recomputation, and recomputation changes no bit.
#[track_caller]
fn check(ranks: usize) {
    for ((packed, window), kv_heads) in
        MASKS.into_iter().flat_map(|mask| key_value_heads(ranks).map(|heads| (mask, heads)))
    {
        let run = Run { packed, ..Run::new(sizes_of(kv_heads, window)) };
        let expected = run.on("dp=1");
        for style in [
            ContextStyle::Ring,
            ContextStyle::Gather,
            ContextStyle::Ulysses,
            ContextStyle::Hybrid(ranks.is_multiple_of(2).then_some(2)),
        ] {
            let with = |recompute| {
                let mut sizes = with_style(style, run.sizes.clone());
                sizes.recompute = recompute;
                Run { sizes, ..run.clone() }.on(&format!("cp={ranks}"))
            };
            let name = format!(
                "cp={ranks} {style}, packed={packed}, window {window:?}, {kv_heads} key-value heads"
            );
            let kept = with(Some(RecomputeOverride::Off));
            assert_within(TOLERANCE, &name, &kept, &expected);
            // All of a layer, and all but its attention.
            for recompute in [Some(RecomputeOverride::Full), None] {
                assert_eq!(with(recompute), kept, "{name}, recompute {recompute:?}");
            }
        }
    }
}

#[test]
fn two_ranks() {
    check(2);
}

#[test]
fn three_ranks() {
    check(3);
}

#[test]
fn four_ranks() {
    check(4);
}

#[test]
fn eight_ranks() {
    check(8);
}
