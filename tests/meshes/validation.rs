//! Validation losses on every kind of mesh, and training that does not change by them.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::prelude::*;
use meshwright::train::{Evaluation, HfName, LanguageModel, Summary};
use meshwright_tests::run::train_with_words;
use tempfile::TempDir;

dims! {
    Batch @ data,
    Seq @ cp,
    Hidden,
    Vocab,
}

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A model that drops a fifth of its stream in training.
#[model]
struct Dropping {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    drop: Dropout,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Dropping {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Dropping {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &LlamaConfig) -> Sizes {
        let mut sizes = Sizes::new().with(Hidden, config.hidden).with(Vocab, config.vocab);
        sizes.dropout = 0.2;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

/// Tokens of the validation data: two batches of 8 rows of 24, one row, and 7 tokens more.
const EVALUATED: usize = 17 * 24 + 8;

struct Texts {
    dir: TempDir,
}

impl Texts {
    fn new() -> Texts {
        let texts = Texts { dir: tempfile::tempdir().unwrap() };
        let line = |line: usize| {
            let letter = move |index: usize| b'a' + ((line * line + index * index) % 26) as u8;
            let letters = (0..line * 7 % 31).map(letter);
            letters.chain([b'\n']).collect::<Vec<u8>>()
        };
        fs::write(texts.path("text.txt"), (0..150).flat_map(line).collect::<Vec<u8>>()).unwrap();
        let mut evaluated: Vec<u8> = (200..400).flat_map(line).collect();
        evaluated.truncate(EVALUATED);
        fs::write(texts.path("val.txt"), evaluated).unwrap();
        texts
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Trains with evaluations after each step.
    fn evaluate<M: LanguageModel>(&self, words: &str) -> Summary {
        let words =
            format!("{words} --eval-data {} --eval-every 1", self.path("val.txt").display());
        self.train::<M>(&words)
    }

    fn train<M: LanguageModel>(&self, words: &str) -> Summary {
        let lr = if words.contains("--lr ") { "" } else { "--lr 0.01" };
        let words = format!(
            "--data {} --hidden 16 --ffn 24 --heads 4 --layers 4 --seq 24 --batch 8 --steps 3 {lr} --threads 1 {words}",
            self.path("text.txt").display()
        );
        let trained = train_with_words::<M>(words.split_whitespace().map(OsStr::new));
        trained.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// Checks that evaluations on the meshes have the losses of one rank, and count as many targets.
    fn check<M: LanguageModel>(&self, words: &str, targets: u64, meshes: &[&str]) {
        let alone = self.evaluate::<M>(&format!("{words} --mesh 1")).evaluations;
        assert_eq!(alone.len(), 3);
        assert!(alone.iter().all(|evaluation| evaluation.targets == targets), "{alone:?}");
        for mesh in meshes {
            let shared = self.evaluate::<M>(&format!("{words} --mesh {mesh}")).evaluations;
            let numbers = |of: &Evaluation| (of.step, of.targets, of.is_best);
            assert!(shared.iter().map(numbers).eq(alone.iter().map(numbers)), "{words} {mesh}");
            for (found, expected) in shared.iter().zip(&alone) {
                let difference = (found.loss - expected.loss).abs() / expected.loss;
                assert!(difference < 1e-6, "{words} {mesh}: {found:?}, alone {expected:?}");
                let bits = found.bits_per_byte.unwrap();
                assert!((bits - found.loss / 2f64.ln()).abs() < 1e-12, "{found:?}");
            }
        }
    }
}

#[test]
fn the_validation_loss_does_not_depend_on_the_mesh() {
    let targets = EVALUATED as u64 - 1;
    Texts::new().check::<Llama>(
        "",
        targets,
        &[
            "dp=2",
            "dp=8",
            "fsdp=4 --zero 3",
            "fsdp=2 --zero 1 --micro-batches 2",
            "fsdp=2 --zero 2 --ema 0.9",
            "tp=4",
            "cp=2 --cp ring",
            "cp=4 --cp ulysses",
            "dp=2,tp=2 --recompute full",
            "fsdp=2,cp=2,tp=2",
            "pp=2 --micro-batches 4",
            "pp=2 --micro-batches 4 --schedule gpipe",
            "pp=4 --micro-batches 4 --schedule zb-h1",
            "pp=2 --micro-batches 4 --schedule interleaved",
            "pp=2 --micro-batches 4 --schedule zb-v",
            "pp=2 --micro-batches 4 --schedule dualpipev",
            "pp=2,fsdp=2,tp=2 --zero 3 --micro-batches 2",
            "pp=2,cp=2 --micro-batches 2 --recompute every=1",
        ],
    );
}

#[test]
fn the_validation_loss_of_experts_does_not_depend_on_the_mesh() {
    let targets = EVALUATED as u64 - 1;
    // The load-balancing loss of a micro-batch is part of the gradients.
    Texts::new().check::<Mixtral>(
        "--balance none",
        targets,
        &["ep=2", "ep=4 --micro-batches 2", "ep=2,tp=2", "dp=2,ep=2,cp=2", "pp=2,ep=2"],
    );
}

/// Ignored targets at borders, and rows whose padding is not the same on all ranks.
#[test]
fn the_validation_loss_of_documents_does_not_depend_on_the_mesh() {
    let texts = Texts::new();
    let text = fs::read(texts.path("val.txt")).unwrap();
    let within = text.windows(2).filter(|pair| pair[0] != b'\n').count() as u64;
    let meshes =
        ["dp=4", "fsdp=2,tp=2", "cp=2", "cp=2,tp=2 --cp ulysses", "pp=2 --micro-batches 4"];
    texts.check::<Llama>("--documents 10", EVALUATED as u64 - 1, &meshes);
    texts.check::<Llama>("--documents 10 --mask-borders", within, &meshes);
    texts.check::<Llama>("--documents 10 --pack --mask-borders", within, &meshes);
}

/// Batches, from the start of the data; targets of whole rows are counted by a formula.
#[test]
fn an_evaluation_may_take_some_batches() {
    let texts = Texts::new();
    for (batches, targets) in [(1, 8 * 24), (2, 16 * 24), (3, EVALUATED - 1), (9, EVALUATED - 1)] {
        let words = format!("--eval-steps {batches}");
        texts.check::<Llama>(&words, targets as u64, &["dp=2,tp=2"]);
    }
    // Less than a batch: the second row has one target.
    fs::write(texts.path("val.txt"), &b"abcdefghijklmnopqrstuvwxyz"[..26]).unwrap();
    texts.check::<Llama>("", 25, &["dp=8", "pp=2,cp=2 --micro-batches 4"]);
}

/// Losses, gradient norms, and every bit of the state after the last step.
fn check_training<M: LanguageModel>(words: &str) {
    let texts = Texts::new();
    let save = |name: &str| format!("{words} --save {}", texts.path(name).display());
    let plain = texts.train::<M>(&save("plain"));
    let evaluated = texts.evaluate::<M>(&save("evaluated"));
    assert_eq!(evaluated.losses, plain.losses, "{words}");
    assert_eq!(evaluated.grad_norms, plain.grad_norms, "{words}");
    let files = |name: &str| {
        let entries = fs::read_dir(texts.path(name).join("latest")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let tensors =
            paths.filter(|path| path.extension().is_some_and(|kind| kind == "safetensors"));
        let mut files: Vec<_> = tensors.map(|path| fs::read(path).unwrap()).collect();
        files.sort();
        files
    };
    assert!(files("evaluated") == files("plain"), "{words}");
}

#[test]
fn evaluations_do_not_change_training() {
    for words in [
        "--mesh 1 --order shuffled",
        "--mesh dp=2,tp=2 --order shuffled",
        "--mesh fsdp=2 --zero 3 --micro-batches 2 --recompute full --optimizer muon",
        "--mesh fsdp=2,cp=2 --zero 1 --dtype bf16 --ema 0.9",
        "--mesh cp=2 --documents 10 --pack --order shuffled",
        "--mesh pp=2 --micro-batches 4 --schedule zb-v",
        "--mesh pp=2,fsdp=2 --zero 3 --micro-batches 2",
    ] {
        check_training::<Llama>(words);
    }
    for words in ["--mesh ep=2,tp=2", "--mesh pp=2,ep=2 --micro-batches 2 --order shuffled"] {
        check_training::<Mixtral>(words);
    }
    for words in
        ["--mesh 1", "--mesh dp=2,tp=2 --order shuffled", "--mesh pp=2,cp=2 --micro-batches 2"]
    {
        check_training::<Dropping>(words);
    }
}

/// Masks of dropout differ from step to step; the same parameters have the same loss.
#[test]
fn evaluations_do_not_drop() {
    let texts = Texts::new();
    for mesh in ["1", "dp=2,tp=2", "pp=2,cp=2 --micro-batches 2"] {
        let summary = texts.evaluate::<Dropping>(&format!("--lr 0 --mesh {mesh}"));
        let [first, second, third] = [0, 1, 2].map(|index| summary.evaluations[index].loss);
        assert_eq!([second, third], [first; 2], "{mesh}");
    }
}
