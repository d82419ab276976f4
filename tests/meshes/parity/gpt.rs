//! A GPT with learned positions, biases and dropout, in hand-written steps and in the trainer.

use std::path::Path;

use meshwright::nn::{Layers, Sizes};
use meshwright::train::{Config, LanguageModel, Trainer};
use meshwright_tests::data::TokenData;
use meshwright_tests::models::{gpt, plain_gpt};
use meshwright_tests::run::Setup;

use super::table::{MESHES, check};

const DATA: TokenData = TokenData { batch: 4, seq: 8, vocab: 29, masked: true };

/// Compares a module's model on every mesh.
macro_rules! check_gpt {
    ($module:ident, $what:literal) => {{
        let mut sizes = Sizes::new()
            .with($module::Seq, DATA.seq)
            .with($module::Hidden, 24)
            .with($module::Ffn, 32)
            .with($module::Heads, 4)
            .with($module::HeadDim, 6)
            .with($module::Vocab, DATA.vocab)
            .with(Layers, 2);
        sizes.init_std = 0.2;
        sizes.dropout = 0.25;
        check($what, &MESHES, &Setup::new(sizes), |model: &$module::Gpt, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        })
    }};
}

#[test]
fn sequence_parallel_stream() {
    check_gpt!(gpt, "gpt, sequence-parallel");
}

#[test]
fn plain_stream() {
    check_gpt!(plain_gpt, "gpt, plain stream");
}

/// The model's sequences have a fixed length, which is longer than the sampled continuation.
#[test]
fn the_trainer_trains_and_samples_it() {
    let train = |line: &str| Trainer::<gpt::Gpt>::new(Config::parse(line.split(' '))?)?.train();
    let small = "train --hidden 32 --heads 4 --layers 2 --ffn 48 --seq 64 --batch 4 --steps 3";
    let on = |mesh: &str| train(&format!("{small} --sample-tokens 4 --threads 1 --mesh {mesh}"));
    let alone = on("1").unwrap();
    assert!(alone.losses[2] < alone.losses[0]);
    let sharded = on("dp=2,tp=2").unwrap();
    assert_eq!(sharded.sample.len(), alone.prompt_len + 4);
    for (loss, expected) in sharded.losses.iter().zip(&alone.losses) {
        assert!((loss - expected).abs() < 1e-5 * expected, "{loss}, alone {expected}");
    }
    // Refused before training.
    let folder = std::env::temp_dir().join("a-gpt-without-names");
    let refused = train(&format!("{small} --export-hf {}", folder.display())).unwrap_err();
    assert!(refused.to_string().contains("`embed.weight` has no entry"), "{refused}");
    assert!(!folder.exists());
    // The sequence length is that of the folder.
    let pytorch = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/fixtures/gpt2");
    let refused = train(&format!("train --init-from {} --seq 16", pytorch.display())).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "--seq: 16 does not fit: the model's sequences have 24 tokens; use --seq 24"
    );
}
