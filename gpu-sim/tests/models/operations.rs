//! All remaining operations, with dropout, and every optimizer.

use meshwright::nn::{Layers, Sizes};
use meshwright::optim::{MuonOptions, OptimizerOptions, SgdOptions};
use meshwright_tests::data::TokenData;
use meshwright_tests::models::mixer;
use meshwright_tests::run::Setup;

use super::{F32, check};

const DATA: TokenData = TokenData { batch: 4, seq: 7, vocab: 29, masked: true };

#[test]
fn every_operation_with_dropout() {
    check_mixer(["1", "dp=2", "tp=2"].map(|mesh| (mesh, "mixer".to_owned(), setup())), &setup());
}

#[test]
fn every_optimizer() {
    let optimizers = [
        OptimizerOptions::Sgd(SgdOptions::default()),
        OptimizerOptions::Muon(MuonOptions::default()),
    ];
    for optimizer in optimizers {
        let setup = Setup { optimizer, ..setup() };
        let others = ["1", "dp=2"].map(|mesh| (mesh, format!("{optimizer:?}"), setup.clone()));
        check_mixer(others, &setup);
    }
}

#[track_caller]
fn check_mixer(others: impl IntoIterator<Item = (&'static str, String, Setup)>, setup: &Setup) {
    check(setup, others, F32, |model: &mixer::Mixer, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets, turn.step)
    });
}

fn setup() -> Setup {
    let mut sizes = Sizes::new()
        .with(mixer::Hidden, 24)
        .with(mixer::Ffn, 32)
        .with(mixer::Vocab, DATA.vocab)
        .with(Layers, 2);
    sizes.init_std = 0.2;
    sizes.dropout = 0.25;
    Setup { steps: 2, ..Setup::new(sizes) }
}
