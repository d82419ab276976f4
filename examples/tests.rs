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
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "own_data.rs"]
mod own_data;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "own_loop.rs"]
mod own_loop;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "own_task.rs"]
mod own_task;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "own_trainer.rs"]
mod own_trainer;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "wide_mlp.rs"]
mod wide_mlp;

use std::path::Path;

use meshwright::mesh_test;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::testing::Observed;
use meshwright::train::config::RunSettings;
use meshwright::train::{Config, Optimizers, TaskTrainer};
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

/// Returns the lines of a metrics file.
fn metrics(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Stopped after a checkpoint, and continued on the same mesh and on another one.
#[test]
fn the_own_loop_continues_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let whole = own_loop::train("fsdp=2", &dir.path().join("whole"), 100).unwrap();
    let parts = dir.path().join("parts");
    let first = own_loop::train("fsdp=2", &parts, 60).unwrap();
    let rest = own_loop::train("fsdp=2", &parts, 100).unwrap();
    assert_eq!([first.losses, rest.losses].concat(), whole.losses);
    assert_eq!(rest.best, whole.best);
    let best = whole.best.unwrap();
    assert!(best < 3.2 && whole.losses[0] > 4.5, "{best} {}", whole.losses[0]);

    let lines = metrics(&parts.join("metrics.jsonl"));
    let steps: Vec<_> = lines.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=100).collect::<Vec<_>>());
    for (line, loss) in lines.iter().zip(&whole.losses) {
        assert_eq!(line["loss"], *loss);
        assert_eq!(line["tokens"], 16 * 32);
        assert!(line["mfu"].as_f64().unwrap() > 0.0 && line["lr"].as_f64().unwrap() > 0.0);
        let is_evaluated = line["step"].as_u64().unwrap() % 50 == 0;
        assert_eq!(line.get("eval_loss").is_some(), is_evaluated);
        assert_eq!(line.get("best_loss").is_some(), is_evaluated);
    }
    assert_eq!(lines[99]["best_loss"], best);

    own_loop::train("fsdp=2", &dir.path().join("moved"), 60).unwrap();
    let moved = own_loop::train("dp=2,tp=2", &dir.path().join("moved"), 70).unwrap();
    for (loss, expected) in moved.losses.iter().zip(&whole.losses[60..]) {
        assert!((loss - expected).abs() < 1e-5, "{loss}, on one mesh {expected}");
    }
}

#[test]
fn the_own_trainer_has_flags_and_a_metric() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.jsonl");
    let line = format!(
        "train --mesh dp=2 --steps 4 --layers 1 --hidden 16 --heads 2 --seq 8 --batch 4 --sample-tokens 0 --tag second \
         --metrics {}",
        path.display()
    );
    let words = line.split_whitespace().map(Into::into);
    let (settings, flags) =
        RunSettings::read_and::<own_trainer::Flags>(words, &Optimizers::default()).unwrap();
    assert_eq!((flags.tag.as_str(), flags.warn_above), ("second", None));
    let trainer = Trainer::<Llama>::with_settings(settings).unwrap();
    let watch = move |_: &Rank| Ok(own_trainer::Watch::new(&flags));
    let losses = trainer.on_step(watch).train().unwrap().losses;
    let mut smooth = losses[0];
    for (line, loss) in metrics(&path).iter().zip(&losses) {
        smooth += 0.1 * (loss - smooth);
        assert_eq!(line["smooth_loss"], smooth);
    }
}

#[test]
fn the_own_data_is_learned_and_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let train = |words: &str, digits: usize| {
        let line = format!(
            "train --layers 1 --hidden 32 --heads 2 --seq 8 --batch 32 --lr 0.01 --order shuffled \
             --sample-tokens 0 --threads 1 {}{words}",
            if words.contains("--vocab") { "" } else { "--vocab 11 " }
        )
        .replace('@', &dir.path().display().to_string());
        let words = line.split_whitespace().map(Into::into);
        let settings = RunSettings::read(words, &Optimizers::default()).unwrap();
        let settings = settings.with_rows(own_data::Repetition { digits });
        Trainer::<Llama>::with_settings(settings).and_then(Trainer::train)
    };
    let alone = train("--steps 150", 3).unwrap().losses;
    let last = alone.last().unwrap();
    assert!(alone[0] > 2.0 && *last < 0.2, "from {} to {last}", alone[0]);
    let shared = train("--steps 4 --mesh dp=2,tp=2 --save @/run", 3).unwrap().losses;
    let rest = train("--steps 6 --mesh dp=2,tp=2 --resume @/run", 3).unwrap().losses;
    for (loss, expected) in shared.iter().chain(&rest).zip(&alone) {
        assert!((loss - expected).abs() < 1e-5 * expected, "{loss}, alone {expected}");
    }
    for (words, digits, part) in [
        (
            "--steps 6 --resume @/run",
            2,
            "repetition with 800000 tokens differs from the file of the checkpoint",
        ),
        (
            "--data text.txt",
            3,
            "--data: the program makes its data, repetition, instead of reading files",
        ),
        ("--documents 3", 3, "--documents: the program makes its data"),
        ("--steps 2 --vocab 10", 3, "of repetition: token id 10 is beyond the vocabulary of 10"),
        ("--steps 2", 5, "of repetition: --seq has to be at least 10"),
    ] {
        let text = train(words, digits).map(drop).unwrap_err().to_string();
        assert!(text.contains(part), "{words}: {text}");
    }
}

#[test]
fn the_own_task_is_learned_on_every_mesh() {
    let train = |words: &str| {
        let line = format!(
            "train --layers 2 --hidden 32 --seq 15 --batch 32 --lr 0.01 --order shuffled --threads 1 {words}"
        );
        let config = Config::parse(line.split(' '))?.with_examples(own_task::Texts);
        TaskTrainer::<own_task::MostFrequent>::new(config)?.train()
    };
    let alone = train("--steps 100").unwrap().losses;
    let last = alone.last().unwrap();
    assert!(alone[0] > 1.0 && *last < 0.3, "from {} to {last}", alone[0]);
    for mesh in ["dp=2", "fsdp=2,tp=2", "pp=2 --micro-batches 2"] {
        let losses = train(&format!("--steps 4 --mesh {mesh}")).unwrap().losses;
        for (loss, expected) in losses.iter().zip(&alone) {
            assert!((loss - expected).abs() < 1e-5 * expected, "{mesh}: {loss}, alone {expected}");
        }
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
fn the_wide_mlp_has_an_mfu_on_every_mesh() {
    let folder = tempfile::tempdir().unwrap();
    for mesh in ["1", "dp=2", "tp=2"] {
        let mfu = wide_mlp::train(mesh, 16, 8, 3, &folder.path().join("m.jsonl")).unwrap();
        assert!(mfu > 0.0 && mfu <= 1.0, "{mesh}: {mfu}");
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
    assert_eq!(of("minimum"), same(&[0.0]));
    assert_eq!((of("sum"), of("mean")), (same(&[6.0]), same(&[1.5])));
    assert_eq!(of("send and recv"), [[3.0], [0.0], [1.0], [2.0]]);
    assert_eq!((of("barrier"), of("two steps")), (same(&[1.0]), same(&[0.0])));
    // Added in the order of the ranks.
    let third = |column: usize| (0..4).map(move |rank| (10 * rank + column + 1) as f32 / 3.0);
    let thirds: Vec<f32> = (0..4).map(|column| third(column).fold(0.0, |a, b| a + b)).collect();
    assert_eq!(of("sum of thirds"), same(&thirds));
    let column = |c: usize| (0..4).map(|r| (10 * r + c) as f32).collect::<Vec<_>>();
    assert_eq!(of("all_to_all"), [column(0), column(1), column(2), column(3)]);
    let sums = |own: f32| vec![60.0, 64.0, 68.0, 72.0, own];
    assert_eq!(of("start_all_reduce"), [sums(6.0), sums(46.0), sums(86.0), sums(126.0)]);
}
