//! Every other operation, with dropout, and every optimizer.

use std::sync::Arc;

use meshwright::nn::{Layers, Sizes};
use meshwright::optim::{MuonOptions, SgdOptions, UpdateRule};
use meshwright_examples::lion::Lion;
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
    let optimizers: [Arc<dyn UpdateRule>; 3] = [
        Arc::new(SgdOptions::default()),
        Arc::new(MuonOptions::default()),
        Arc::new(Lion::default()),
    ];
    for optimizer in optimizers {
        let name = format!("{optimizer:?}");
        let setup = Setup { optimizer, ..setup() };
        let others = ["1", "dp=2"].map(|mesh| (mesh, name.clone(), setup.clone()));
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
