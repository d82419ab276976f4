//! The model families of the examples, by the trainer's preflight.

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::prelude::*;
use meshwright::train::{Config, Optimizers};
use meshwright_examples::lion::Lion;
use meshwright_examples::long_context::LongLlama;

fn preflight<M: LanguageModel>(flags: &str) -> String {
    let sizes = "train --hidden 16 --layers 2 --heads 4 --ffn 24 --seq 16 --batch 8 --threads 1";
    let words = format!("{sizes} --preflight {flags}");
    let optimizers = Optimizers::default().with(Lion::entry());
    let config = Config::parse_with(words.split(' '), &optimizers);
    let config = config.unwrap_or_else(|error| panic!("{flags}: {error}"));
    let compared = Trainer::<M>::new(config).and_then(|trainer| trainer.preflight());
    let line = compared.unwrap_or_else(|error| panic!("{flags}: {error}"));
    println!("{flags}: {line}");
    assert!(line.contains("equals one rank in 3 steps"), "{flags}: {line}");
    line
}

#[test]
fn llama_equals_one_rank() {
    for flags in [
        "--mesh dp=2,tp=2",
        "--mesh fsdp=2,tp=2 --zero 2 --clip 0.1",
        "--mesh cp=2 --cp ulysses --zero 1",
        "--mesh pp=2 --micro-batches 4 --schedule zb-h1 --tied",
        "--mesh dp=2,pp=2 --micro-batches 2 --recompute full",
        "--mesh fsdp=2 --optimizer muon --ema 0.9",
        "--mesh fsdp=2,tp=2 --optimizer lion --lr 1e-4",
        "--mesh dp=2 --documents 10 --pack --warmup 100 --lr-schedule cosine",
        "--mesh tp=2 --dtype bf16 --order shuffled --seed 3",
    ] {
        preflight::<Llama>(flags);
    }
}

/// The gradient of the bias of keys is zero but for rounding, and its updates follow from signs of it.
#[test]
fn gpt2_equals_one_rank() {
    for flags in
        ["--mesh dp=2", "--mesh tp=2", "--mesh fsdp=2,tp=2 --optimizer lion", "--mesh pp=2"]
    {
        preflight::<Gpt2>(flags);
    }
}

#[test]
fn mixtral_equals_one_rank() {
    for flags in ["--mesh ep=2", "--mesh fsdp=2,tp=2", "--mesh pp=2"] {
        preflight::<Mixtral>(flags);
    }
}

#[test]
fn long_context_equals_one_rank() {
    for flags in ["--mesh cp=2", "--mesh cp=2,tp=2", "--mesh dp=2,cp=2"] {
        preflight::<LongLlama>(flags);
    }
}

#[test]
fn settings_of_a_preflight() {
    let error =
        |flags: &str| Config::parse(format!("t {flags}").split(' ')).unwrap_err().to_string();
    let text = error("--preflight --mesh dp=2 --save a --metrics b --explain");
    for flag in ["--save", "--metrics", "--explain"] {
        assert!(text.contains(&format!("{flag}: a --preflight compares")), "{text}");
    }
    assert!(error("--preflight 5 --steps 3").contains("5 steps are more than --steps 3"));
    assert!(error("--preflight 0").contains("a whole number of at least 1"));
    let config = Config::parse("t --preflight --device cuda --mesh dp=2".split(' ')).unwrap();
    assert_eq!(config.preflight, Some(3));
    let trainer = Trainer::<Llama>::new(config).unwrap();
    assert!(trainer.train().unwrap_err().to_string().contains("call `Trainer::preflight`"));
    let config = Config::parse("t --preflight --mesh 1".split(' ')).unwrap();
    let refused = Trainer::<Llama>::new(config).unwrap().preflight().unwrap_err().to_string();
    assert!(refused.contains("the mesh has one rank"), "{refused}");
}
