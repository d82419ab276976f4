//! Tests of the examples' results.

#[allow(dead_code, reason = "its `main` is not called")]
#[path = "classifier.rs"]
mod classifier;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "collectives.rs"]
mod collectives;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "custom_function.rs"]
mod custom_function;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "custom_layer.rs"]
mod custom_layer;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "encoder_decoder.rs"]
mod encoder_decoder;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "mlp.rs"]
mod mlp;

use meshwright::mesh_test;
use meshwright::models::mixtral::Mixtral;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::testing::Observed;
use meshwright::train::Config;
use meshwright_examples::long_context::LongLlama;

#[test]
fn the_mlp_learns_the_same_on_every_mesh() {
    let alone = mlp::train("1", 301).unwrap();
    let last = alone[300];
    assert!(last < alone[0] / 100.0, "from {} to {last}", alone[0]);
    for mesh in ["tp=2", "dp=2,tp=2", "dp=4"] {
        let losses = mlp::train(mesh, 10).unwrap();
        for (step, (loss, expected)) in losses.iter().zip(&alone).enumerate() {
            let distance = (loss - expected).abs() / expected;
            assert!(distance < 1e-4, "{mesh}, step {step}: {loss}, alone {expected}");
        }
    }
}

#[test]
fn the_classifier_learns_the_same_on_every_mesh() {
    let trained = classifier::train("dp=2,tp=2", 301).unwrap();
    assert!(trained.accuracy > 0.98, "{}", trained.accuracy);
    assert!(trained.losses[0] > 1.0 && trained.losses[300] < 0.1, "{:?}", trained.losses);
    let alone = classifier::train("1", 10).unwrap();
    for mesh in ["tp=2", "dp=4", "fsdp=2,tp=2"] {
        let other = classifier::train(mesh, 10).unwrap();
        for (step, (loss, expected)) in other.losses.iter().zip(&alone.losses).enumerate() {
            assert!(
                (loss - expected).abs() < 1e-5,
                "{mesh}, step {step}: {loss}, alone {expected}"
            );
        }
        assert_eq!(other.accuracy, alone.accuracy, "{mesh}");
    }
}

#[mesh_test(meshes = ["dp=2", "tp=2", "dp=2,tp=4"])]
fn the_custom_layer_computes_the_same(rank: &Rank) -> meshwright::Result<Observed> {
    custom_layer::observe(rank)
}

#[mesh_test(meshes = ["tp=2", "dp=2", "fsdp=2,tp=2"])]
fn the_custom_function_computes_the_same(rank: &Rank) -> meshwright::Result<Observed> {
    Ok(custom_function::step(rank)?.0)
}

#[mesh_test(meshes = ["pp=2"])]
fn the_pipeline_of_encoder_and_decoder_computes_the_same(
    rank: &Rank,
) -> meshwright::Result<Observed> {
    encoder_decoder::observe(rank)
}

/// The stream is split over `tp`, and the weight of the norm is not.
#[test]
fn the_gradient_of_a_weight_in_a_split_stream_is_reduced_over_tp() {
    for mesh in ["tp=2", "dp=2", "fsdp=2,tp=2"] {
        let axes = meshwright::run_on(mesh, 0, |rank| Ok(custom_function::step(rank)?.1)).unwrap();
        assert_eq!(axes[0], "dp x fsdp x ep x tp", "{mesh}");
    }
}

/// Losses and parameters have the bits of one rank, whose stages are not cut.
#[test]
fn encoder_decoder_is_the_same_on_every_pipeline() {
    let train = |ranks, kind, steps| encoder_decoder::train(ranks, kind, steps).unwrap();
    let alone = train(1, ScheduleKind::OneFOneB, 301);
    let (first, last) = (alone.losses[0], alone.losses[300]);
    assert!(last < first / 20.0, "from {first} to {last}");
    let alone = train(1, ScheduleKind::OneFOneB, 5);
    assert!(alone.params.contains_key("decoder.1.gate.weight"));
    for (ranks, kind) in [
        (2, ScheduleKind::OneFOneB),
        (2, ScheduleKind::ZeroBubbleV),
        (4, ScheduleKind::GPipe),
        (2, ScheduleKind::Interleaved),
    ] {
        assert!(train(ranks, kind, 5) == alone, "{kind} on {ranks} ranks");
    }
}

/// Also the sequences of the example in the book, at a fraction of their length.
#[test]
fn the_long_context_trains_the_same_on_every_mesh() {
    let losses = |mesh: &str| {
        let words = format!(
            "train --mesh {mesh} --seq 512 --batch 2 --steps 2 --hidden 64 --heads 2 --layers 2 --sample-tokens 0 \
             --threads 1"
        );
        let trainer = Trainer::<LongLlama>::new(Config::parse(words.split(' ')).unwrap()).unwrap();
        trainer.train().unwrap().losses
    };
    let alone = losses("1");
    assert!(alone[1] < alone[0]);
    for mesh in ["cp=4", "cp=4 --cp gather", "cp=2,tp=2", "fsdp=2,cp=2"] {
        for (loss, expected) in losses(mesh).iter().zip(&alone) {
            assert!((loss - expected).abs() < 1e-5 * expected, "{mesh}: {loss}, alone {expected}");
        }
    }
}

/// A new model has 8 experts, which the ranks of `ep`, `cp` and `tp` share. With documents, attention keeps the lines
/// of the text apart.
#[test]
fn the_mixtral_trains_the_same_on_every_mesh() {
    let losses = |mesh: &str| {
        let words = format!(
            "train --mesh {mesh} --seq 32 --batch 4 --steps 4 --hidden 32 --heads 4 --kv-heads 2 --layers 2 \
             --sample-tokens 8 --threads 1"
        );
        let trainer = Trainer::<Mixtral>::new(Config::parse(words.split(' ')).unwrap()).unwrap();
        trainer.train().unwrap().losses
    };
    for documents in ["", " --documents 10"] {
        let alone = losses(&format!("1{documents}"));
        assert!(alone[3] < alone[0]);
        for mesh in ["ep=2,cp=2", "dp=2,tp=2", "cp=2,tp=2", "fsdp=2,ep=2,tp=2"] {
            for (loss, expected) in losses(&format!("{mesh}{documents}")).iter().zip(&alone) {
                let apart = (loss - expected).abs();
                assert!(apart < 1e-5 * expected, "{mesh}{documents}: {loss}, alone {expected}");
            }
        }
    }
}

#[test]
fn the_collectives_have_the_documented_results() {
    let results = collectives::collectives().unwrap();
    let of = |name: &str| {
        let found = results.iter().find(|(call, _)| call.split(':').next() == Some(name));
        found.unwrap_or_else(|| panic!("no {name}")).1.clone()
    };
    let same = |data: &[f32]| vec![data.to_vec(); 4];
    assert_eq!(of("broadcast"), same(&[2.0]));
    assert_eq!(of("scatter"), [[0.0], [1.0], [2.0], [3.0]]);
    assert_eq!(of("gather"), [vec![0.0, 1.0, 2.0, 3.0], vec![], vec![], vec![]]);
    assert_eq!(of("reduce"), [[6.0], [1.0], [2.0], [3.0]]);
    assert_eq!(of("all_gather"), same(&[0.0, 1.0, 2.0, 3.0]));
    assert_eq!(of("reduce_scatter"), [[60.0], [64.0], [68.0], [72.0]]);
    assert_eq!(of("all_reduce"), same(&[3.0]));
    let column = |c: usize| (0..4).map(|r| (10 * r + c) as f32).collect::<Vec<_>>();
    assert_eq!(of("all_to_all"), [column(0), column(1), column(2), column(3)]);
    let sums = |own: f32| vec![60.0, 64.0, 68.0, 72.0, own];
    assert_eq!(of("start_all_reduce"), [sums(6.0), sums(46.0), sums(86.0), sums(126.0)]);
}
