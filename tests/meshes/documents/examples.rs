//! The models of the examples, trained on documents.

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::train::{Config, LanguageModel, Trainer};

use super::run::{EXAMPLE, Run};

/// Meshes with flags. Each trains as one rank does.
const MESHES: [&str; 13] = [
    "--mesh cp=2",
    "--mesh cp=4 --micro-batches 2",
    "--mesh cp=4 --cp gather",
    "--mesh cp=4 --cp ulysses",
    "--mesh cp=4 --cp hybrid=2 --recompute full",
    "--mesh cp=2,tp=2 --micro-batches 2",
    "--mesh fsdp=2,cp=2 --zero 3 --micro-batches 4",
    "--mesh fsdp=2,cp=2 --zero 1 --recompute attn",
    "--mesh pp=2 --micro-batches 4 --schedule zb-h1",
    "--mesh pp=2,cp=2 --micro-batches 2",
    "--mesh pp=2,cp=2,tp=2 --micro-batches 2 --recompute full",
    "--mesh dp=2 --micro-batches 2",
    "--mesh dp=2,tp=2",
];

#[track_caller]
fn check_example<M: LanguageModel>(documents: &str) {
    let run = Run::new();
    let train = |words: &str| {
        let line = run.line(&format!("{EXAMPLE} --documents 10 {documents} {words}"));
        let line = format!("train --steps 3 --sample-tokens 6 {line}");
        let config = Config::parse(line.split_whitespace()).unwrap();
        let trained = Trainer::<M>::new(config).and_then(Trainer::train);
        trained.unwrap_or_else(|error| panic!("{words}: {error}"))
    };
    let one = train("--mesh 1");
    let near = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * b.abs();
    for words in MESHES {
        let got = train(words);
        for (found, expected) in got.losses.iter().zip(&one.losses) {
            assert!(
                near(*found, *expected, 5e-6),
                "{documents} {words}: loss {found}, not {expected}"
            );
        }
        for (found, expected) in got.grad_norms.iter().zip(&one.grad_norms) {
            assert!(
                near(*found, *expected, 5e-5),
                "{documents} {words}: norm {found}, not {expected}"
            );
        }
        assert_eq!(got.sample, one.sample, "{documents} {words}");
    }
    let apart = run.train_without_documents::<M>(&format!("{EXAMPLE} --steps 3 --mesh 1")).unwrap();
    assert_ne!(apart.losses, one.losses, "documents matter");
}

#[test]
fn a_llama_trains_on_documents_on_every_mesh() {
    check_example::<Llama>("");
    check_example::<Llama>("--pack --mask-borders --order shuffled");
}

#[test]
fn a_gpt2_trains_on_documents_on_every_mesh() {
    check_example::<Gpt2>("--mask-borders");
    check_example::<Gpt2>("--pack --order shuffled");
}
