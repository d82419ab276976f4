//! Tensors that are repeated along dims of others, against one rank.

use meshwright::nn::Sizes;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::data::TokenData;
use meshwright_tests::models::modulated::{
    Conditioned, HeadDim, Heads, Hidden, Keys, Vocab,
};
use meshwright_tests::run::Setup;

use super::table::{check, check_each};

/// Sequences that do not divide into the chunks of all meshes.
const DATA: TokenData = TokenData { batch: 8, seq: 10, vocab: 29, masked: true };

fn setup() -> Setup {
    let mut sizes = Sizes::new()
        .with(Hidden, 24)
        .with(Heads, 4)
        .with(HeadDim, 6)
        .with(Keys, DATA.seq)
        .with(Vocab, DATA.vocab);
    sizes.init_std = 0.2;
    Setup { steps: 3, ..Setup::new(sizes) }
}

#[test]
fn modulated_on_every_mesh() {
    let meshes = ["tp=2", "tp=4", "dp=2", "cp=2", "dp=2,tp=2", "cp=2,tp=2", "dp=2,cp=2"];
    check("modulated", &meshes, &setup(), |model: &Conditioned, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

#[test]
fn modulated_at_every_zero_stage() {
    let setup = setup();
    let of_stage = |mesh: &'static str, zero| {
        let settings = Settings { zero: ZeroStage::ALL[zero], ..setup.settings };
        (mesh, format!("modulated at stage {zero}"), Setup { settings, ..setup.clone() })
    };
    let others = [
        of_stage("fsdp=2", 1),
        of_stage("fsdp=2", 3),
        of_stage("fsdp=2,tp=2", 3),
        of_stage("dp=2,fsdp=2", 2),
    ];
    check_each(&setup, others, |model: &Conditioned, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}
