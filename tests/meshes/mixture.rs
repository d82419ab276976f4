//! Mixtures of sources on every kind of mesh: the same rows, and the loss of each source.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::data::{Batch as Rows, DataSource, Dataset, Order, TokenFile};
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright::rotary::RopeParameters;
use meshwright::train::{LanguageModel, Summary};
use meshwright_tests::run::train_with_words;
use serde_json::Value;
use tempfile::TempDir;

const BATCH: usize = 8;
const SEQ: usize = 24;

/// Two sources, of which the first has two files.
struct Sources {
    dir: TempDir,
}

impl Sources {
    fn new() -> Sources {
        let dir = tempfile::tempdir().unwrap();
        for (name, letters, bytes) in
            [("web1.txt", b"etaoin shrdlu", 3000), ("web2.txt", b"ETAOIN SHRDLU", 700)]
        {
            let text: Vec<u8> = (0..bytes).map(|at| letters[at * at % 97 % 13]).collect();
            fs::write(dir.path().join(name), text).unwrap();
        }
        let code: Vec<u8> = (0..900).map(|at| b"0123456789(){};=\n"[at * 7 % 89 % 17]).collect();
        fs::write(dir.path().join("code.txt"), code).unwrap();
        let mixture = "[web]\ndata = \"web*.txt\"\nweight = 5\n\n\
                       [code]\ndata = \"code.txt\"\nweight = 3\norder = \"shuffled\"\n";
        fs::write(dir.path().join("mix.toml"), mixture).unwrap();
        Sources { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns `words` with flags for those that are not among them.
    fn flags(&self, words: &str) -> String {
        let [data, metrics] =
            ["mix.toml", "m.jsonl"].map(|name| self.path(name).display().to_string());
        let mut flags =
            format!("{words} --hidden 16 --ffn 24 --heads 4 --layers 4 --lr 0.01 --threads 1");
        let batch = BATCH.to_string();
        let others =
            [("--data", &*data), ("--metrics", &metrics), ("--batch", &batch), ("--steps", "4")];
        for (flag, value) in others.into_iter().chain([("--seq", &*SEQ.to_string())]) {
            if !words.contains(&format!("{flag} ")) {
                flags += &format!(" {flag} {value}");
            }
        }
        flags
    }

    fn try_train<M: LanguageModel>(&self, words: &str) -> meshwright::Result<Summary> {
        train_with_words::<M>(self.flags(words).split_whitespace().map(OsStr::new))
    }

    /// Trains, and returns the lines of the metrics, too.
    fn train<M: LanguageModel>(&self, words: &str) -> (Summary, Vec<Value>) {
        let trained = self.try_train::<M>(words);
        let summary = trained.unwrap_or_else(|error| panic!("{words}: {error}"));
        let lines = fs::read_to_string(self.path("m.jsonl")).unwrap();
        (summary, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// The rows of the mixture, from its parts.
    fn dataset(&self, (order, seed): (Order, u64)) -> Dataset {
        let file = |name: &str| TokenFile::open(&self.path(name), 256).unwrap();
        let source = |name: &str, weight, order, files| DataSource {
            weight,
            order,
            ..DataSource::of_files(name.to_owned(), files)
        };
        let sources = vec![
            source("code", 3.0, Some(Order::Shuffled), vec![file("code.txt")]),
            source("web", 5.0, None, vec![file("web1.txt"), file("web2.txt")]),
        ];
        Dataset::of_sources(sources, SEQ, BATCH, (order, seed), None).unwrap()
    }
}

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"))
}

/// Checks losses of the meshes against one rank's, step by step.
fn check<M: LanguageModel>(words: &str, order: (Order, u64), meshes: &[&str]) {
    let sources = Sources::new();
    let words = &format!("{words} --order {} --seed {}", order.0, order.1);
    let (alone, expected) = sources.train::<M>(&format!("{words} --mesh 1"));
    let keys = ["loss", "loss.web", "loss.code", "epoch", "epoch.web", "epoch.code"];
    let dataset = sources.dataset(order);
    for (step, line) in expected.iter().enumerate() {
        let of_code =
            (0..BATCH).filter(|row| dataset.source_of_row(step as u64, *row) == 0).count() as f64;
        let [loss, web, code] = ["loss", "loss.web", "loss.code"].map(|key| number(line, key));
        let mixed = (code * of_code + web * (BATCH as f64 - of_code)) / BATCH as f64;
        assert!((mixed - loss).abs() < 1e-6, "{words}, step {step}: {web} and {code} of {loss}");
        assert_ne!(web, code, "{words}, step {step}");
    }
    for mesh in meshes {
        let (shared, lines) = sources.train::<M>(&format!("{words} --mesh {mesh}"));
        assert_eq!((lines.len(), shared.losses.len()), (expected.len(), alone.losses.len()));
        for (line, expected) in lines.iter().zip(&expected) {
            for key in keys {
                let [found, expected] = [line, expected].map(|line| number(line, key));
                let difference = (found - expected).abs() / expected;
                assert!(difference < 2e-6, "{words} {mesh}, {key}: {found}, alone {expected}");
            }
        }
    }
}

#[test]
fn each_source_has_its_loss_on_every_mesh() {
    check::<Llama>(
        "",
        (Order::Sequential, 0),
        &[
            "dp=4",
            "fsdp=2 --zero 3 --micro-batches 2",
            "tp=4",
            "cp=2 --cp ring",
            "cp=2 --cp ulysses",
            "dp=2,tp=2 --recompute full",
            "fsdp=2,cp=2,tp=2",
            "pp=2 --micro-batches 4",
            "pp=2 --micro-batches 4 --schedule zb-v",
            "pp=2,fsdp=2,tp=2 --zero 3 --micro-batches 2",
        ],
    );
    let shuffled = (Order::Shuffled, 3);
    check::<Llama>("--tied", shuffled, &["dp=2", "pp=2,cp=2 --micro-batches 2"]);
    check::<Mixtral>(
        "--balance none",
        shuffled,
        &["ep=2", "ep=2,tp=2", "dp=2,ep=2 --micro-batches 2"],
    );
}

/// Losses of the first step, from the forward pass on the targets of one source alone.
#[test]
fn losses_of_sources_are_those_of_their_targets() {
    let sources = Sources::new();
    let (_, lines) = sources.train::<Llama>("--mesh 1");
    let dataset = sources.dataset((Order::Sequential, 0));
    let batch = dataset.rows(0, 0..BATCH).unwrap();
    let family = LlamaConfig {
        hidden: 16,
        ffn: 24,
        layers: 4,
        heads: 4,
        kv_heads: 4,
        head_dim: 4,
        vocab: 256,
        norm_eps: 1e-5,
        rope: RopeParameters::default(),
        tied: false,
        max_positions: SEQ,
        ..LlamaConfig::default()
    };
    for (source, key) in ["loss.code", "loss.web"].into_iter().enumerate() {
        let mut targets = batch.targets.clone();
        for row in 0..BATCH {
            if dataset.source_of_row(0, row) != source {
                targets[row * SEQ..(row + 1) * SEQ].fill(Rows::IGNORED);
            }
        }
        let losses = meshwright::run_on("1", 0, |rank| {
            let sizes = Llama::sizes(&family);
            let model = build::<Llama>(rank, &sizes)?.model;
            let ids = |ids: &[u32]| Tokens::from_whole_rows(rank, &[BATCH, SEQ], 0, ids);
            Ok(model.loss(&ids(&batch.tokens), &ids(&targets)).reduce().value())
        });
        let expected = losses.unwrap()[0];
        let found = number(&lines[0], key);
        assert!((found - expected).abs() < 1e-6, "{key}: {found}, not {expected}");
    }
}

/// Each source goes on where it was, in epochs of its own, also on another mesh.
#[test]
fn resumed_mixtures_have_the_same_rows() {
    let sources = Sources::new();
    let (whole, expected) = sources.train::<Llama>("--mesh dp=2");
    let save = sources.path("saved");
    let first = format!("--mesh dp=2 --steps 2 --save {}", save.display());
    let (begun, _) = sources.train::<Llama>(&first);
    let (rest, lines) = sources.train::<Llama>(&format!("--mesh dp=2 --resume {}", save.display()));
    assert_eq!([begun.losses, rest.losses].concat(), whole.losses);
    for (line, expected) in lines.iter().zip(&expected) {
        for key in ["loss", "loss.web", "loss.code", "epoch.web", "epoch.code"] {
            assert_eq!(line[key], expected[key], "{key}");
        }
    }
    assert_eq!(lines.len(), 4);
}

/// Rows from the end of each source: neither trained on, nor evaluated twice.
#[test]
fn a_fraction_of_each_source_is_held_out() {
    let sources = Sources::new();
    let words = "--mesh 1 --eval-fraction 0.2 --eval-every 2";
    let (summary, _) = sources.train::<Llama>(words);
    // The border is in the first file of web; its second file is evaluated as a whole.
    let held_out = [180, 740];
    let targets = held_out[0] - 1 + (held_out[1] - 700 - 1) + 700 - 1;
    assert!(
        summary.evaluations.iter().all(|one| one.targets == targets),
        "{:?}",
        summary.evaluations
    );
    for mesh in ["dp=2,tp=2", "pp=2 --micro-batches 4"] {
        let words = words.replace("--mesh 1", &format!("--mesh {mesh}"));
        let (shared, _) = sources.train::<Llama>(&words);
        for (found, expected) in shared.evaluations.iter().zip(&summary.evaluations) {
            assert!((found.loss - expected.loss).abs() < 2e-6 * expected.loss, "{mesh}");
        }
    }
}

/// The state of the optimizer stays, and the rows begin with the first one, also with another batch.
#[test]
fn new_data_begins_with_its_first_row() {
    let sources = Sources::new();
    let [first, second] = ["first", "second"].map(|name| sources.path(name).display().to_string());
    sources.train::<Llama>(&format!("--mesh dp=2 --steps 2 --save {first}"));
    let code = format!("--mesh dp=2 --data {}", sources.path("code.txt").display());
    let text =
        sources.try_train::<Llama>(&format!("{code} --resume {first}")).unwrap_err().to_string();
    let expected = "code.txt (1 file) differs from the data of the checkpoint, code, web (3 files); use the data";
    assert!(text.contains(expected), "{text}");
    let new = format!("{code} --new-data --batch 4 --resume {first}");
    let whole = sources.train::<Llama>(&format!("{new} --steps 6")).0.losses;
    let begun = sources.train::<Llama>(&format!("{new} --steps 4 --save {second}")).0.losses;
    // A later run goes on with these rows.
    let rest = sources.train::<Llama>(&format!("{code} --batch 4 --resume {second} --steps 6"));
    assert_eq!((begun.len(), rest.0.losses.len()), (2, 2));
    assert_eq!([begun, rest.0.losses].concat(), whole);
    // The rows are those of a run that begins with them; only the parameters differ.
    let epochs = |line: &Value| number(line, "epoch");
    let alone = sources.train::<Llama>(&format!("{code} --batch 4 --steps 4")).1;
    assert_eq!(epochs(&rest.1[5]), epochs(&alone[3]));
}
