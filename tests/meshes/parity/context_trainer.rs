//! The Llama of the examples with sequences that the ranks of `cp` share, trained by the trainer.

use meshwright::train::{Config, LanguageModel, Summary, Trainer};
use meshwright_examples::llama::Llama;
use meshwright_tests::models::context::ContextLm;
use meshwright_tests::models::gpt::Gpt;

const SMALL: &str =
    "train --hidden 32 --heads 4 --kv-heads 2 --layers 2 --ffn 48 --batch 4 --steps 3 --threads 1";

fn train(flags: &str) -> meshwright::Result<Summary> {
    train_model::<Llama>(&format!("{SMALL} {flags}"))
}

fn train_model<M: LanguageModel>(words: &str) -> meshwright::Result<Summary> {
    Trainer::<M>::new(Config::parse(words.split(' '))?)?.train()
}

/// Sampled windows are shorter than a sequence, and need not divide into the chunks of `cp`.
#[test]
fn the_trainer_trains_and_samples_over_cp() {
    let alone = train("--mesh 1 --seq 32 --sample-tokens 5").unwrap();
    assert!(alone.losses[2] < alone.losses[0]);
    assert_eq!(alone.report.attention, None, "the CPU has one implementation of attention");
    for flags in [
        "--mesh cp=2",
        "--mesh cp=4 --cp hybrid=2",
        "--mesh fsdp=2,cp=2,tp=2",
        "--mesh pp=2,cp=2 --micro-batches 2",
        "--mesh pp=2,cp=2,tp=2 --micro-batches 2 --schedule zb-h1",
        "--mesh pp=2,fsdp=2,cp=2,tp=2",
    ] {
        let shared = train(&format!("{flags} --seq 32 --sample-tokens 5")).unwrap();
        for (loss, expected) in shared.losses.iter().zip(&alone.losses) {
            assert!((loss - expected).abs() < 1e-5 * expected, "{flags}: {loss}, alone {expected}");
        }
        assert_eq!(shared.sample, alone.sample, "{flags}");
    }
}

/// Rows of lines of the book; `--cp` replaces the styles of a model of two, and the order of axes places the ranks.
#[test]
fn packed_documents_are_trained_on_over_cp() {
    let train = |flags: &str| {
        let words = "train --hidden 32 --heads 8 --kv-heads 4 --layers 2 --ffn 48 --batch 4 --steps 3 --threads 1 --seq 48 \
                     --documents 10 --pack --mask-borders --order shuffled --sample-tokens 20";
        let words = format!("{} {flags}", words.split_whitespace().collect::<Vec<_>>().join(" "));
        train_model::<ContextLm>(&words).unwrap_or_else(|error| panic!("{flags}: {error}"))
    };
    let alone = train("--mesh 1");
    for flags in [
        "--mesh cp=2",
        "--mesh cp=2 --cp ulysses --micro-batches 4",
        "--mesh cp=3 --cp ring",
        "--mesh cp=4 --cp hybrid=2 --zero 1",
        "--mesh cp=2,tp=2 --cp hybrid --mesh-order tp,cp",
        "--mesh dp=2,cp=2 --cp gather --mesh-order cp,dp --micro-batches 2",
        "--mesh fsdp=2,cp=2 --zero 3 --recompute full",
        "--mesh pp=2,cp=2 --cp ulysses --micro-batches 2 --mesh-order cp,pp",
    ] {
        let shared = train(flags);
        for (loss, expected) in shared.losses.iter().zip(&alone.losses) {
            assert!((loss - expected).abs() < 1e-5 * expected, "{flags}: {loss}, alone {expected}");
        }
        assert_eq!(shared.losses.len(), alone.losses.len(), "{flags}");
        assert_eq!(shared.sample, alone.sample, "{flags}");
    }
}

/// Before training, with the fix.
#[test]
fn impossible_sequences_over_cp_are_refused() {
    let refused = |flags: &str| train(flags).unwrap_err().to_string();
    assert_eq!(
        refused("--mesh cp=4 --seq 100"),
        "--seq: 100 does not divide into 2 x cp = 8 chunks (zig-zag order of cp=4); use a multiple of 8"
    );
    let text = refused("--mesh cp=3 --seq 30 --cp ulysses");
    let part = "4 query heads of a rank cannot be exchanged among 3 ranks of cp";
    assert!(text.contains(part), "{text}");
    assert!(refused("--mesh cp=2 --seq 32 --cp spiral").contains("`spiral` is no style"));

    // A model that has all of its sequence on each rank.
    let refused = |flags: &str| {
        let small = SMALL.replace(" --kv-heads 2", "").replace(" --ffn 48", "");
        let config = Config::parse(format!("{small} --seq 32 {flags}").split(' ')).unwrap();
        Trainer::<Gpt>::new(config).and_then(Trainer::train).unwrap_err().to_string()
    };
    let whole = refused("--mesh cp=2");
    assert!(
        whole.starts_with("--mesh: cp=2 needs a model whose sequence is distributed over cp"),
        "{whole}"
    );
}
