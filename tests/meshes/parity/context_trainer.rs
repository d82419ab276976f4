//! The Llama of the examples with sequences that the ranks of `cp` share, trained by the trainer.

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::prelude::*;
use meshwright::train::{Config, Summary};
use meshwright_tests::models::context::ContextLm;
use meshwright_tests::models::gpt::Gpt;

dims! {
    Batch @ data,
    Seq @ cp,
    Hidden,
    Vocab,
}

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A model that computes each position by itself.
#[model]
struct Pointwise {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Pointwise {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Pointwise {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &LlamaConfig) -> Sizes {
        Sizes::new().with(Hidden, config.hidden).with(Vocab, config.vocab)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

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
        let words = "train --hidden 32 --heads 8 --kv-heads 4 --layers 2 --ffn 48 --batch 4 --steps 3 --threads 1 \
                     --seq 48 --documents 10 --pack --mask-borders --order shuffled --sample-tokens 20";
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
    assert!(refused("--mesh cp=2 --seq 32 --cp spiral").contains("`spiral` is not a style"));

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

/// The override of a style needs an attention that has one; without the flag, the same model trains over cp.
#[test]
fn a_style_that_applies_to_nothing_is_refused() {
    let train = |flags: &str| train_model::<Pointwise>(&format!("{SMALL} --seq 16 {flags}"));
    let alone = train("--mesh 1").unwrap();
    let shared = train("--mesh cp=2").unwrap();
    for (loss, expected) in shared.losses.iter().zip(&alone.losses) {
        assert!((loss - expected).abs() < 1e-5 * expected, "{loss}, alone {expected}");
    }
    for (flags, style) in [
        ("--mesh cp=2 --cp gather", "gather"),
        ("--mesh dp=2,cp=2 --cp hybrid=2", "hybrid=2"),
        ("--mesh pp=2,cp=2 --micro-batches 2 --cp ulysses", "ulysses"),
    ] {
        let text = train(flags).expect_err(flags).to_string();
        let expected = format!(
            "the style `{style}` of context parallelism (`--cp`) applies to nothing: no attention of the model has \
             `#[sharded(cp = ..)]`"
        );
        assert!(text.contains(&expected), "{flags}: {text}");
    }
}
