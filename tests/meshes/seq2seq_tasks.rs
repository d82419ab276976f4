//! Texts from texts and from speech, on meshes and against one rank.

use std::f64::consts::TAU;
use std::io;
use std::path::Path;

use meshwright::data::{Example, ExampleSource, Field};
use meshwright::tasks::{Seq2Seq, SpeechToText};
use meshwright::train::{Config, Summary, Task, TaskTrainer};

/// Examples that follow from their number: a text and its reverse, and a tone with a text for its pitch.
struct Pairs;

impl ExampleSource for Pairs {
    fn name(&self) -> &str {
        "pairs"
    }

    fn examples(&self) -> u64 {
        13
    }

    fn fingerprint(&self) -> String {
        "pairs".to_owned()
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        // Bytes that are ids of the small vocabularies.
        let letter = |at: u64| (b'!' + ((index * 31 + at * at * 7) % 15) as u8) as char;
        let text: String = (0..2 + index % 8).map(letter).collect();
        let pitch = 200.0 + 150.0 * index as f64;
        let sample = |at: u32| 0.5 * (TAU * pitch * f64::from(at) / 16e3).sin();
        let sound = (0..2000 + 60 * index as u32).map(|at| Field::Number(sample(at)));
        let fields = [
            ("source", Field::Text(text.clone())),
            ("target", Field::Text(text.chars().rev().collect())),
            ("text", Field::Text(text)),
            ("sound", Field::List(sound.collect())),
        ];
        Ok(Example::new(fields.map(|(name, field)| (name.to_owned(), field))))
    }
}

fn trainer<T: Task>(flags: &str) -> meshwright::Result<TaskTrainer<T>> {
    let words = format!("train --tokenizer bytes --batch 8 --steps 3 --threads 1 {flags}");
    TaskTrainer::new(Config::parse(words.split_whitespace())?.with_examples(Pairs))
}

fn train<T: Task>(flags: &str) -> Summary {
    trainer::<T>(flags).unwrap().train().unwrap_or_else(|error| panic!("{flags}: {error}"))
}

fn check_meshes<T: Task>(model: &str) {
    let model = &format!("{model} --lr 0.01");
    let alone = train::<T>(&format!("{model} --mesh 1"));
    for mesh in [
        "--mesh 1 --micro-batches 4",
        "--mesh dp=2",
        "--mesh tp=2",
        "--mesh fsdp=2,tp=2 --micro-batches 2",
        "--mesh fsdp=2 --zero 3 --recompute full",
        "--mesh pp=2 --micro-batches 2",
        "--mesh pp=2,tp=2 --micro-batches 2",
    ] {
        let run = train::<T>(&format!("{model} {mesh}"));
        let pairs = [(&alone.losses, &run.losses), (&alone.grad_norms, &run.grad_norms)];
        for (expected, found) in pairs {
            for (a, b) in expected.iter().zip(found) {
                assert!((a / b - 1.0).abs() < 1e-5, "{mesh}: {expected:?} and {found:?}");
            }
        }
    }
}

const T5: &str = "--hidden 16 --heads 2 --layers 2 --ffn 24 --vocab 64 --seq 12 --tied";

/// Returns the flags of a model that begins with the folder of a fixture.
fn from_fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/fixtures").join(name);
    format!("--init-from {} --seq 12", root.display())
}

#[test]
fn texts_are_learned_alike_on_every_mesh() {
    check_meshes::<Seq2Seq>(T5);
}

#[test]
fn speech_is_learned_alike_on_every_mesh() {
    check_meshes::<SpeechToText>(&from_fixture("whisper"));
}

/// A new model, in a folder and back.
#[test]
fn a_new_t5_is_exported_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let first = train::<Seq2Seq>(&format!("{T5} --mesh tp=2 --lr 0 --export-hf {path}"));
    let again = train::<Seq2Seq>(&format!("--init-from {path} --seq 12 --mesh 1 --lr 0"));
    for (a, b) in first.losses.iter().zip(&again.losses) {
        assert!((a / b - 1.0).abs() < 1e-6, "{first:?} and {again:?}");
    }
}

/// Each rank of a pipeline plans its memory, also with lengths that it would receive.
#[test]
fn both_tasks_are_explained() {
    let text = trainer::<Seq2Seq>(&format!("{T5} --mesh fsdp=2,tp=2 --explain")).unwrap();
    let text = text.explain().unwrap();
    assert!(text.contains("encoder") && text.contains("decoder"), "{text}");
    let staged = format!("{T5} --mesh pp=2 --micro-batches 2");
    assert_eq!(trainer::<Seq2Seq>(&staged).unwrap().step_logs().unwrap().len(), 2);
    let speech = format!("{} --mesh pp=2 --micro-batches 2 --explain", from_fixture("whisper"));
    let text = trainer::<SpeechToText>(&speech).unwrap().explain().unwrap();
    assert!(text.contains("encoder") && text.contains("decoder"), "{text}");
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    fn refused<T: Task>(flags: &str) -> String {
        match trainer::<T>(flags) {
            Ok(trainer) => trainer.train().err().unwrap().to_string(),
            Err(error) => error.to_string(),
        }
    }
    let short = T5.replace("--seq 12", "--seq 4");
    let text = refused::<Seq2Seq>(&format!("{short} --mesh 1"));
    assert!(
        text.contains("of pairs: `source` has") && text.contains("--source-seq is 4"),
        "{text}"
    );
    let small = T5.replace("--vocab 64", "--vocab 40");
    let text = refused::<Seq2Seq>(&format!("{small} --mesh 1"));
    assert!(text.contains("its ids are below 40"), "{text}");
    let whisper = from_fixture("whisper");
    let text = refused::<SpeechToText>(
        &format!("{whisper} --seq 15 --mesh 1").replacen("--seq 12", "", 1),
    );
    assert!(text.contains("--seq") && text.contains("14"), "{text}");
    let text = refused::<Seq2Seq>(&format!("{whisper} --mesh 1"));
    assert!(text.contains("whisper") && text.contains("t5"), "{text}");
}
