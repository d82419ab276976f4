//! Regression tests of known bugs in the training of sharded models. Bugs that the types prevent are in
//! `ui/known_bugs`.

use std::ops::Range;

use meshwright::models::llama::{Llama, LlamaConfig};
use meshwright::nn::{Built, Layers, Sizes, build};
use meshwright::tensor::{Gradients, ParamRef, Rank, Reduced, Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::{Report, Tensors, assert_same_bits, distance, scalar_distance};
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::models::{mixer, recomputed_mixer};
use meshwright_tests::run::{Setup, on_mesh_with, train};

const VOCAB: usize = 61;
const SEQ: usize = 7;

/// Returns meshes with replicas, shards and tensor-parallel ranks, with their ZeRO stages.
fn mesh_cases() -> impl Iterator<Item = (&'static str, ZeroStage)> {
    let meshes = ["fsdp=2", "fsdp=2,tp=2", "dp=2,fsdp=2", "fsdp=4"];
    let sharded = meshes.into_iter().flat_map(|mesh| ZeroStage::ALL.map(|zero| (mesh, zero)));
    [("1", ZeroStage::Replicated), ("tp=2", ZeroStage::Replicated)].into_iter().chain(sharded)
}

/// Gradients were zeroed between micro-batches: only the last one was trained on, which showed in the gradient norm
/// only.
#[test]
fn every_micro_batch_of_a_step_is_trained_on() {
    let mut report = Report::default();
    let [whole, last] = [0..1, 3..4].map(|turns| {
        let count = turns.end;
        gradient_of("1", ZeroStage::Replicated, turns, count)
    });
    for (name, whole) in &whole {
        assert!(distance(&last[name], whole) > 0.1, "`{name}`: the data cannot tell");
    }
    for (mesh, zero) in mesh_cases().filter(|(mesh, _)| *mesh != "fsdp=4" && *mesh != "dp=2,fsdp=2")
    {
        let got = gradient_of(mesh, zero, 0..4, 4);
        let label = format!("{mesh} with {zero}");
        report.tensors("gradient", &label, &got, &whole, 1e-5);
    }
    report.print();
}

/// The losses of micro-batches, each a mean over its tokens, were averaged: tokens of a short micro-batch had more
/// weight.
#[test]
fn tokens_have_equal_weight_in_all_micro_batches() {
    let of = |turns, count| gradient_of("1", ZeroStage::Replicated, turns, count);
    let (whole, parts) = (of(0..1, 1), of(0..4, 4));
    let mut means = Tensors::new();
    for turn in 0..4 {
        for (name, values) in of(turn..turn + 1, 4) {
            let mean = means.entry(name).or_insert_with(|| vec![0.0; values.len()]);
            mean.iter_mut().zip(values).for_each(|(mean, value)| *mean += value / 4.0);
        }
    }
    for (name, whole) in &whole {
        let found = distance(&parts[name], whole);
        assert!(found < 1e-5, "`{name}`: {found:.1e}");
        assert!(distance(&means[name], whole) > 1e-2, "`{name}`: the data cannot tell");
    }
}

/// The gradient of a tied weight was counted twice, or its two uses were reduced in different buckets, or not at all.
#[test]
fn a_tied_weight_gets_both_gradients_once() {
    let mut report = Report::default();
    for (mesh, zero) in mesh_cases() {
        let found = on_ranks(mesh, zero, |rank| {
            let apart = {
                let untied = model(rank, false);
                let [embed, head] =
                    ["embed.weight", "head.weight"].map(|path| param(&untied, path));
                head.write(&embed.to_local_vec());
                let gradients = differentiate(rank, &untied, 0..1, 1);
                let halves = gradients.gather(&embed).into_iter().zip(gradients.gather(&head));
                halves.map(|(lookup, projection)| lookup + projection).collect::<Vec<_>>()
            };
            let tied = model(rank, true);
            let gradients = differentiate(rank, &tied, 0..1, 1);
            (gradients.gather(&param(&tied, "embed.weight")), apart)
        });
        for (tied, apart) in found {
            let label = format!("{mesh} with {zero}");
            report.note("gradient", label, distance(&tied, &apart), 1e-5);
        }
    }
    report.print();
}

/// Squares were summed over ranks for split and whole parameters alike: some elements counted twice, or on one rank
/// only.
#[test]
fn the_gradient_norm_counts_every_element_once() {
    let mut report = Report::default();
    for (mesh, zero) in mesh_cases() {
        for tied in [false, true] {
            let found = on_ranks(mesh, zero, |rank| {
                let built = model(rank, tied);
                let gradients = differentiate(rank, &built, 0..2, 2);
                let of_all: f64 = built
                    .params()
                    .iter()
                    .flat_map(|param| gradients.gather(param))
                    .map(|value| f64::from(value) * f64::from(value))
                    .sum();
                (gradients.norm(), of_all.sqrt())
            });
            for (norm, expected) in &found {
                let label = format!("{mesh} with {zero}");
                report.note("norm", label, scalar_distance(*norm, *expected), 1e-6);
                assert_eq!(*norm, found[0].0, "{mesh} with {zero}: the ranks disagree");
            }
        }
    }
    report.print();
}

/// A recomputed layer drew another dropout mask, so its gradient was wrong.
#[test]
fn recomputation_repeats_the_dropout_mask() {
    macro_rules! outcome {
        ($module:ident) => {{
            let data = TokenData { batch: 8, seq: SEQ, vocab: VOCAB, masked: true };
            let mut sizes = Sizes::new()
                .with($module::Hidden, 24)
                .with($module::Ffn, 32)
                .with($module::Vocab, VOCAB)
                .with(Layers, 3);
            sizes.init_std = 0.2;
            sizes.dropout = 0.25;
            let setup = Setup { steps: 3, micro_batches: 2, ..Setup::new(sizes) };
            train("1", &setup, |model: &$module::Mixer, rank, turn| {
                let (tokens, targets) = data.block(rank, turn);
                model.loss(&tokens, &targets, turn.step)
            })
        }};
    }
    let (kept, again) = (outcome!(mixer), outcome!(recomputed_mixer));
    assert_eq!(again.losses, kept.losses);
    assert_same_bits("gradients", &again.gradients, &kept.gradients);
    assert_same_bits("parameters", &again.trained, &kept.trained);
}

fn on_ranks<T: Send>(mesh: &str, zero: ZeroStage, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    on_mesh_with(mesh, 1, Settings { zero, ..Settings::new(7) }, body)
}

/// Returns the global gradient of some of a step's `count` micro-batches. Of four consecutive sequences, all, half, two
/// thirds and none of the tokens count.
fn gradient_of(mesh: &str, zero: ZeroStage, turns: Range<usize>, count: usize) -> Tensors {
    let found = on_ranks(mesh, zero, |rank| {
        let built = model(rank, false);
        let gradients = differentiate(rank, &built, turns.clone(), count);
        let gather = |param: &ParamRef| (param.path().to_owned(), gradients.gather(param));
        built.params().iter().map(gather).collect::<Tensors>()
    });
    found.into_iter().next().expect("there is a first rank")
}

fn differentiate(
    rank: &Rank,
    built: &Built<Llama>,
    turns: Range<usize>,
    count: usize,
) -> Gradients<Reduced> {
    let data = TokenData { batch: 8, seq: SEQ, vocab: VOCAB, masked: true };
    let loss = |index| {
        let (tokens, targets) = data.block(rank, Turn { step: 0, index, count });
        built.model.loss(&tokens, &targets)
    };
    let last = turns.end - 1;
    let earlier = (turns.start..last).fold(None, |earlier: Option<Gradients<_>>, index| {
        Some(match earlier {
            Some(gradients) => gradients.accumulate(loss(index)),
            None => loss(index).accumulate(),
        })
    });
    match earlier {
        Some(gradients) => gradients.backward(loss(last)),
        None => loss(last).backward(),
    }
    .reduce()
}

fn model(rank: &Rank, tied: bool) -> Built<Llama> {
    let mut sizes = Llama::sizes(&LlamaConfig {
        hidden: 24,
        ffn: 40,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        vocab: VOCAB,
        tied,
        ..LlamaConfig::default()
    });
    sizes.init_std = 0.2;
    build(rank, &sizes).unwrap_or_else(|error| panic!("{error}"))
}

fn param(built: &Built<Llama>, path: &str) -> ParamRef {
    let found = built.params().into_iter().find(|param| param.path() == path);
    found.unwrap_or_else(|| panic!("no `{path}`"))
}
