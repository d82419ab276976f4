//! Attention of every kind on every mesh: windows, soft caps, sinks, biases, padding, cross attention, values of
//! another width, and fewer key-value heads than tensor-parallel ranks.

use std::ops::Range;

use meshwright::layout::Shape;
use meshwright::nn::{AttentionOptions, Layer, Layers, RecomputeOverride, Sizes};
use meshwright::prelude::Padding;
use meshwright::tensor::{Loss, Rank, Tensor, Tokens};
use meshwright_tests::data::numbers;
use meshwright_tests::models::attention::{
    Batch, Biased, Buckets, Cross, Decoder, Encoder, HeadDim, Heads, Hidden, KvHeads, Memory,
    Packed, Seq, SharedKeys, Stream, ValueDim,
};
use meshwright_tests::run::Setup;

use super::table::check;

const MESHES: [&str; 4] = ["tp=2", "tp=4", "dp=2,tp=2", "dp=4"];

const BATCH: usize = 4;
const SEQ: usize = 11;
const MEMORY: usize = 6;
const HIDDEN: usize = 24;

fn setup(kv_heads: usize, attention: AttentionOptions) -> Setup {
    let mut sizes = Sizes::new()
        .with(Hidden, HIDDEN)
        .with(Heads, 8)
        .with(KvHeads, kv_heads)
        .with(HeadDim, 6)
        .with(ValueDim, 4)
        .with(Buckets, 6)
        .with(Layers, 2);
    sizes.init_std = 0.3;
    sizes.attention = attention;
    Setup { steps: 3, ..Setup::new(sizes) }
}

fn options() -> AttentionOptions {
    AttentionOptions { max_distance: 7, ..AttentionOptions::default() }
}

fn input<S: Shape>(rank: &Rank, seq: usize) -> Tensor<S> {
    numbers(rank, "x", &[BATCH, seq, HIDDEN])
}

/// Returns the mean of the squares of the results.
fn loss<S: Shape>(result: &Tensor<S>) -> Loss<S> {
    Loss::mean_of(&(result * result))
}

/// Returns the valid positions of this rank's samples, of `positions`: all of one sample, one of another.
fn valid<S: Shape>(x: &Tensor<S>, positions: usize) -> Vec<Range<usize>> {
    let rows = x.local_extents()[0];
    let of = |row: usize| match row % 4 {
        0 => 0..positions,
        1 => 0..positions - 3,
        2 => 2..positions - 1,
        _ => 1..2,
    };
    (rows.offset..rows.offset + rows.local).map(of).collect()
}

#[test]
fn windows_caps_and_sinks() {
    let windows = [vec![], vec![Some(4)], vec![Some(3), None], vec![Some(1), Some(SEQ)]];
    for windows in windows {
        for (soft_cap, scale) in [(None, None), (Some(0.8), Some(0.7))] {
            let what = format!("windows {windows:?}, cap {soft_cap:?}");
            let attention =
                AttentionOptions { windows: windows.clone(), soft_cap, scale, ..options() };
            check(&what, &MESHES, &setup(4, attention), |model: &Decoder, rank, _| {
                loss(&Layer::forward(model, &input(rank, SEQ)))
            });
        }
    }
}

/// Weights are dropped by global row, head, query and key, also where layers are recomputed.
#[test]
fn dropped_weights() {
    for recompute in ["none", "full", "attn"] {
        let windows = vec![Some(4), None];
        let attention = AttentionOptions { windows, dropout: 0.3, ..options() };
        let mut setup = setup(4, attention);
        setup.sizes.recompute = Some(recompute.parse::<RecomputeOverride>().unwrap());
        let what = format!("dropped weights, recompute {recompute}");
        check(&what, &MESHES, &setup, |model: &Decoder, rank, _| {
            loss(&Layer::forward(model, &input(rank, SEQ)))
        });
    }
    let attention = AttentionOptions { dropout: 0.3, ..options() };
    check(
        "dropped weights, biases",
        &MESHES,
        &setup(4, attention.clone()),
        |model: &Encoder, rank, _| {
            let x: Stream = input(rank, SEQ);
            loss(&model.forward(&x, &Padding::from_block(rank, BATCH, &valid(&x, SEQ))))
        },
    );
    check(
        "dropped weights, shared keys",
        &MESHES,
        &setup(2, attention),
        |model: &SharedKeys, rank, _| loss(&model.forward(&input(rank, SEQ))),
    );
}

#[test]
fn recomputed_layers() {
    for recompute in ["full", "attn"] {
        let attention = AttentionOptions { windows: vec![Some(4), None], ..options() };
        let mut setup = setup(4, attention);
        setup.sizes.recompute = Some(recompute.parse::<RecomputeOverride>().unwrap());
        check(&format!("recompute {recompute}"), &MESHES, &setup, |model: &Decoder, rank, _| {
            loss(&Layer::forward(model, &input(rank, SEQ)))
        });
    }
}

#[test]
fn learned_biases_and_padding() {
    for window in [None, Some(3)] {
        let attention = AttentionOptions { windows: vec![window], ..options() };
        let what = format!("bidirectional, window {window:?}");
        check(&what, &MESHES, &setup(4, attention), |model: &Encoder, rank, _| {
            let x: Stream = input(rank, SEQ);
            let padding = Padding::from_block(rank, BATCH, &valid(&x, SEQ));
            loss(&model.forward(&x, &padding))
        });
    }
}

/// Rows of documents of 1 to 5 tokens, others in each row.
#[test]
fn documents_of_packed_rows() {
    for window in [None, Some(3)] {
        let attention = AttentionOptions { windows: vec![window], ..options() };
        let what = format!("documents, window {window:?}");
        check(&what, &MESHES, &setup(4, attention), |model: &Packed, rank, _| {
            let x: Stream = input(rank, SEQ);
            let rows = x.local_extents()[0];
            let starts = (rows.offset..rows.offset + rows.local).flat_map(|row| {
                let mut start = 0;
                (0..SEQ).map(move |position| {
                    if (position + row) % 5 == 0 || (position * row) % 7 == 6 {
                        start = position;
                    }
                    start as u32
                })
            });
            let starts: Vec<u32> = starts.collect();
            let ids = vec![0; starts.len()];
            let tokens = Tokens::<(Batch, Seq)>::from_block(rank, &[BATCH, SEQ], &ids);
            let documents = tokens.with_documents(&starts).documents();
            loss(&model.forward(&x, &documents))
        });
    }
}

#[test]
fn linear_biases_and_whole_heads() {
    check("ALiBi", &MESHES, &setup(4, options()), |model: &Biased, rank, _| {
        let x: Stream = input(rank, SEQ);
        loss(&model.forward(&x))
    });
}

/// More tensor-parallel ranks than key-value heads, and as many as needed to split them, though they are not.
#[test]
fn key_value_heads_on_every_rank() {
    for kv_heads in [1, 2, 8] {
        let what = format!("{kv_heads} key-value heads");
        check(&what, &MESHES, &setup(kv_heads, options()), |model: &SharedKeys, rank, _| {
            loss(&model.forward(&input(rank, SEQ)))
        });
    }
}

#[test]
fn cross_attention() {
    check("cross attention", &MESHES, &setup(4, options()), |model: &Cross, rank, _| {
        let x: Stream = input(rank, SEQ);
        let memory: Tensor<(Batch, Memory, Hidden)> =
            numbers(rank, "memory", &[BATCH, MEMORY, HIDDEN]);
        let padding = Padding::from_block(rank, BATCH, &valid(&memory, MEMORY));
        loss(&model.forward(&x, &memory, padding))
    });
}
