//! Refusals of attention: impossible settings at build, and at the call operands whose sizes do not fit.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::layout::{Seal, Shape};
use crate::nn::{Layers, Sizes, Stack, build};
use crate::tensor::{Rank, Tensor};
use meshwright_comm::RankComms;
use meshwright_cpu::CpuBackend;
use meshwright_macros::dims;
use meshwright_mesh::MeshShape;

dims! { crate = crate; Batch @ data, Seq, Shared @ cp, Memory, Heads, KvHeads, HeadDim, Buckets }

type Operand<S, H> = Tensor<(Batch, S, H, HeadDim)>;

/// Attentions in fields of their own.
struct Model {
    core: Attention<Heads, KvHeads, HeadDim>,
    cross: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    bias: RelativeBias<Buckets, Heads>,
    sinks: AttentionSinks<Heads>,
}

impl Build for Model {
    fn build(builder: &mut Builder<'_>) -> Model {
        Model {
            core: Build::build(&mut builder.field("core")),
            cross: Build::build(&mut builder.field("cross")),
            bias: Build::build(&mut builder.field("bias")),
            sinks: Build::build(&mut builder.field("sinks")),
        }
    }
}

fn rank() -> Rank {
    let comms = RankComms::unattended(MeshShape::SINGLE);
    Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0)
}

fn sizes() -> Sizes {
    Sizes::new().with(Heads, 4).with(KvHeads, 2).with(HeadDim, 4).with(Buckets, 8)
}

fn window(window: Option<usize>) -> AttentionOptions {
    AttentionOptions { windows: vec![window], ..AttentionOptions::default() }
}

fn ones<S: Shape>(rank: &Rank, sizes: &[usize]) -> Tensor<S> {
    Tensor::from_fn(rank, sizes, |_| 1.0)
}

#[track_caller]
fn assert_refused(sizes: &Sizes, expected: &[&str]) {
    let error = build::<Model>(&rank(), sizes).map(drop).unwrap_err();
    assert_eq!(error.problems, expected);
}

/// Checks that `call` panics with a message that has `part`.
#[track_caller]
fn assert_panics<T>(call: impl FnOnce() -> T, part: &str) {
    let payload = catch_unwind(AssertUnwindSafe(|| drop(call()))).unwrap_err();
    let message = payload.downcast_ref::<String>().expect("a message of an assertion");
    assert!(message.contains(part), "no `{part}` in {message}");
}

#[test]
fn impossible_settings_are_refused_at_build() {
    let zero = "a window of 0 positions shows a query no key: a window of 1 is its own position";
    let mut of_all = sizes();
    of_all.attention = window(Some(0));
    assert_refused(&of_all, &[&format!("`core`: {zero}"), &format!("`cross`: {zero}")]);
    for cap in [0.0, -1.0, f32::INFINITY, f32::NAN] {
        let text = format!(
            "`core`: the soft cap of its scores is {cap}, but must be positive and finite; `None` leaves the scores as \
             they are"
        );
        let options = AttentionOptions { soft_cap: Some(cap), ..AttentionOptions::default() };
        assert_refused(&sizes().with_attention("core", options), &[&text]);
        let options = AttentionOptions { scale: Some(cap), ..AttentionOptions::default() };
        let text = text.replace("soft cap", "scale");
        assert_refused(&sizes().with_attention("core", options), &[&text]);
    }
    for rate in [-0.1, 1.0, f32::NAN] {
        let options = AttentionOptions { dropout: rate, ..AttentionOptions::default() };
        let text = format!("`core`: the dropout rate {rate} of its weights is not in 0..1");
        assert_refused(&sizes().with_attention("core", options), &[&text]);
    }
    let by_layer = AttentionOptions { windows: vec![Some(2), None], ..AttentionOptions::default() };
    assert_refused(
        &sizes().with_attention("core", by_layer),
        &[
            "`core`: the sizes have 2 windows for the layers of a stack, but this attention is not in a `Stack`; set \
             one window, or others for this field by `Sizes::with_attention`",
        ],
    );
    assert_refused(
        &sizes().with_attention("crossed", window(None)),
        &[
            "the attention options of `crossed` apply to nothing: no attention is in a field of this name",
        ],
    );
    assert_refused(
        &sizes().with(Buckets, 7),
        &["`bias`: Buckets = 7 buckets, but relative positions need an even number of at least 4"],
    );
    let near = AttentionOptions { max_distance: 4, ..AttentionOptions::default() };
    assert_refused(
        &sizes().with_attention("bias", near),
        &[
            "`bias`: a maximum distance of 4 is not more than the 4 distances that have buckets of their own, of \
             Buckets = 8: set `AttentionOptions::max_distance`",
        ],
    );
    let far = AttentionOptions { max_distance: 64, ..AttentionOptions::default() };
    assert_refused(
        &sizes().with_attention("core", far.clone()),
        &[
            "`core`: a maximum distance of 64 applies to nothing: it is that of a `RelativeBias`, whose own field \
           `Sizes::with_attention` takes",
        ],
    );
    for of_attention in [
        window(Some(4)),
        AttentionOptions { soft_cap: Some(20.0), ..AttentionOptions::default() },
        AttentionOptions { scale: Some(1.0), ..AttentionOptions::default() },
        AttentionOptions { dropout: 0.1, ..AttentionOptions::default() },
    ] {
        assert_refused(
            &sizes().with_attention("bias", of_attention),
            &[
                "`bias`: a window, soft cap, scale or dropout rate applies to nothing: it is that of an attention, \
                 whose own field `Sizes::with_attention` takes; a bias has a maximum distance",
            ],
        );
    }
    // Options of the whole model, and the options of a field that begin with them.
    let mut of_all = sizes();
    of_all.attention = AttentionOptions { windows: vec![Some(3)], ..far.clone() };
    let of_core = AttentionOptions { windows: vec![None], ..far };
    assert!(build::<Model>(&rank(), &of_all.with_attention("core", of_core)).is_ok());
    assert_refused(
        &sizes().with(Heads, 3),
        &[
            "`core`: Heads = 3 is not divisible by KvHeads = 2: each key-value head serves as many query heads",
            "`cross`: Heads = 3 is not divisible by KvHeads = 2: each key-value head serves as many query heads",
        ],
    );
}

/// Weights are dropped in training, by the step and the path of the field, and never in an evaluation.
#[test]
fn weights_are_dropped_in_training_alone() {
    let rank = rank();
    let options = AttentionOptions { dropout: 0.5, ..AttentionOptions::default() };
    let dropped = build::<Model>(&rank, &sizes().with_attention("core", options)).unwrap();
    let whole = build::<Model>(&rank, &sizes()).unwrap();
    let operand = |heads| [2, 6, heads, 4];
    let run = |model: &Model| {
        let q: Operand<Seq, Heads> = ones(&rank, &operand(4));
        let [k, v]: [Operand<Seq, KvHeads>; 2] = [(); 2].map(|()| ones(&rank, &operand(2)));
        model.core.forward(&(q, k, v)).to_local_vec()
    };
    let undropped = run(&whole.model);
    let in_step = |step: u64| {
        rank.set_step(step);
        run(&dropped.model)
    };
    let [first, second, again] = [0, 1, 0].map(in_step);
    assert_ne!(first, undropped);
    assert_ne!(first, second);
    assert_eq!(first, again);
    assert_eq!(rank.evaluate(|| run(&dropped.model)), undropped);
    // Positions whose weights are all dropped are zero, and the only weight of the first position is 0 or 2.
    assert!(first.chunks_exact(16 * 6).all(|row| row[..16].iter().all(|x| [0.0, 2.0].contains(x))));
}

/// Windows of the layers of a stack repeat, and the layers of a pipeline stage have the windows that they have in the
/// whole model.
#[test]
fn windows_repeat_over_layers() {
    struct Layer(Option<usize>);

    impl Build for Layer {
        fn build(builder: &mut Builder<'_>) -> Layer {
            let core: Attention<Heads, KvHeads, HeadDim> = Build::build(&mut builder.field("core"));
            Layer(core.core.options.window)
        }
    }

    struct Stacked(Stack<Layer>);

    impl Build for Stacked {
        fn build(builder: &mut Builder<'_>) -> Stacked {
            Stacked(Build::build(&mut builder.field("blocks")))
        }
    }

    let windows = vec![Some(5), None, Some(7)];
    let attention = AttentionOptions { windows, ..AttentionOptions::default() };
    let mut sizes = sizes().with(Layers, 5);
    sizes.attention = attention;
    let built = build::<Stacked>(&rank(), &sizes).unwrap();
    let windows: Vec<_> = built.model.0.layers().iter().map(|layer| layer.0).collect();
    assert_eq!(windows, [Some(5), None, Some(7), Some(5), None]);
    let counted: Vec<_> = built.attentions.iter().map(|sizes| sizes.window).collect();
    assert_eq!(counted, windows);
}

/// A window to both sides of the largest size, as checkpoints have it that mean none.
#[test]
fn the_largest_window_is_all_positions() {
    let rank = rank();
    let sizes = sizes().with_attention("cross", window(Some(usize::MAX)));
    let built = build::<Model>(&rank, &sizes).unwrap();
    assert!(built.attentions[1].window >= Some(usize::MAX / 2));
    let q: Operand<Seq, Heads> = ones(&rank, &[1, 3, 4, 4]);
    let kv: Operand<Seq, KvHeads> = ones(&rank, &[1, 3, 2, 4]);
    let out = built.model.cross.forward(&(q, kv.clone(), kv)).to_local_vec();
    assert!(out.iter().all(|x| (x - 1.0).abs() < 1e-6), "{out:?}");
}

#[test]
fn operands_of_other_sizes_are_refused() {
    let rank = rank();
    let sizes = sizes().with_attention("cross", window(Some(2)));
    let built = build::<Model>(&rank, &sizes).unwrap();
    let Model { core, cross, bias, sinks } = &built.model;
    let q: Operand<Seq, Heads> = ones(&rank, &[2, 5, 4, 4]);
    let kv = |batch, seq| -> Operand<Seq, KvHeads> { ones(&rank, &[batch, seq, 2, 4]) };
    let memory: Operand<Memory, KvHeads> = ones(&rank, &[2, 3, 2, 4]);

    assert_panics(
        || core.forward(&(q.clone(), kv(2, 4), kv(2, 5))),
        "`core`: the queries have a batch of 2 and 5 positions, but the keys have 2 and 4",
    );
    assert_panics(
        || core.forward(&(q.clone(), kv(2, 5), kv(1, 5))),
        "`core`: the queries have a batch of 2 and 5 positions, but the values have 1 and 5",
    );
    let rows = |first| -> Operand<Seq, KvHeads> {
        Tensor::from_rows(&rank, &[4, 5, 2, 4], first, &[1.0; 2 * 5 * 2 * 4])
    };
    let queries: Operand<Seq, Heads> = Tensor::from_rows(&rank, &[4, 5, 4, 4], 2, &[1.0; 160]);
    assert_panics(
        || core.forward(&(queries.clone(), rows(2), rows(0))),
        "`core`: the queries are rows 2 to 3 of the batch, and the values are rows 0 to 1: compute both from one \
         micro-batch",
    );
    let wide: Operand<Seq, KvHeads> = ones(&rank, &[2, 5, 2, 6]);
    assert_panics(
        || core.forward(&(q.clone(), wide.clone(), wide.clone())),
        "`core`: queries, keys and values have heads of different number or size: 4 of 4, 2 of 6, 2 of 6",
    );
    let three: Operand<Seq, KvHeads> = ones(&rank, &[2, 5, 3, 4]);
    assert_panics(
        || core.forward(&(q.clone(), three.clone(), three.clone())),
        "`core`: 4 query heads and 3 key-value heads",
    );
    assert_panics(
        || cross.forward(&(q.clone(), memory.clone(), memory.clone())),
        "`cross`: a window of 2 positions is that of one sequence, but the keys are along Memory, and the queries \
         along Seq",
    );
    let padding = Padding::<(Batch, Seq)>::from_block(&rank, 2, &[0..5, 2..6]);
    assert_panics(
        || core.forward(&(q.clone(), kv(2, 5), kv(2, 5), &padding)),
        "`core`: valid positions of the padding end at 6, but the keys have 5 positions",
    );
    let padding = Padding::<(Batch, Seq)>::from_block(&rank, 3, &[0..5, 2..5, 0..1]);
    assert_panics(
        || core.forward(&(q.clone(), kv(2, 5), kv(2, 5), padding)),
        "`core`: the padding is that of 3 samples, 3 of them here from 0 on, but the keys have 2",
    );
    assert_panics(
        || Padding::<(Batch, Seq)>::from_block(&rank, 1, &[std::ops::Range { start: 3, end: 2 }]),
        "valid positions 3..2 end before they begin",
    );
    let two: Operand<Seq, Heads> = ones(&rank, &[2, 5, 2, 4]);
    for name in ["bias", "sinks"] {
        let text = format!(
            "`core`: the queries have 2 heads, and this rank holds 0..2, but `{name}.weight` has 4, and it holds 0..4"
        );
        assert_panics(
            || match name {
                "bias" => core.forward(&(two.clone(), kv(2, 5), kv(2, 5), bias)),
                _ => core.forward(&(two.clone(), kv(2, 5), kv(2, 5), sinks)),
            },
            &text,
        );
    }
}

/// A false statement that only this crate can make.
impl Attended for Shared {
    const SEAL: Seal = Seal::new();
}

#[test]
fn a_part_of_a_sequence_is_refused() {
    let comms = RankComms::unattended("cp=2".parse().unwrap());
    let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
    let built = build::<Model>(&rank, &sizes()).unwrap();
    let q: Operand<Shared, Heads> = ones(&rank, &[1, 8, 4, 4]);
    let kv: Operand<Shared, KvHeads> = ones(&rank, &[1, 8, 2, 4]);
    assert_panics(
        || built.model.core.forward(&(q, kv.clone(), kv)),
        "`core`: this rank has 4 of the 8 positions of the queries, and attention without",
    );
}

/// A query whose keys are all padding has the result zero, and a bias reaches the others.
#[test]
fn a_query_without_keys_has_the_result_zero() {
    let rank = rank();
    let sizes = sizes().with_attention("cross", window(None));
    let built = build::<Model>(&rank, &sizes).unwrap();
    let q: Operand<Seq, Heads> = ones(&rank, &[2, 2, 4, 4]);
    let memory: Operand<Memory, KvHeads> = ones(&rank, &[2, 3, 2, 4]);
    let padding = Padding::<(Batch, Memory)>::from_block(&rank, 2, &[1..1, 0..2]);
    let out = built.model.cross.forward(&(q, memory.clone(), memory, padding)).to_local_vec();
    let (empty, other) = out.split_at(2 * 4 * 4);
    assert!(empty.iter().all(|x| *x == 0.0), "{empty:?}");
    assert!(other.iter().all(|x| (x - 1.0).abs() < 1e-6), "{other:?}");
}
