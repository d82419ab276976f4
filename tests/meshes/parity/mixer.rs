//! All other operations, including dropout, with a sequence-parallel and a whole stream.

use meshwright::nn::{Layers, Sizes};
use meshwright_tests::data::{TokenData, numbers};
use meshwright_tests::models::{mixer, plain_mixer};
use meshwright_tests::run::{Setup, train};

use super::table::{MESHES, check};

const DATA: TokenData = TokenData { batch: 4, seq: 7, vocab: 29, masked: true };

/// Creates the settings for the dims of a module.
macro_rules! setup {
    ($module:ident) => {{
        let mut sizes = Sizes::new()
            .with($module::Hidden, 24)
            .with($module::Ffn, 32)
            .with($module::Vocab, DATA.vocab)
            .with(Layers, 2);
        sizes.init_std = 0.2;
        sizes.dropout = 0.25;
        Setup::new(sizes)
    }};
}

/// Compares a module's model on every mesh.
macro_rules! check_mixer {
    ($module:ident, $what:literal) => {
        check($what, &MESHES, &setup!($module), |model: &$module::Mixer, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets, turn.step)
        })
    };
}

#[test]
fn sequence_parallel_stream() {
    check_mixer!(mixer, "mixer, sequence-parallel");
}

#[test]
fn plain_stream() {
    check_mixer!(plain_mixer, "mixer, plain stream");
}

#[test]
fn parameters_after_a_mean_over_all_samples() {
    let setup = setup!(mixer);
    check("pool", &MESHES, &setup, |model: &mixer::Pool, rank, _| {
        model.loss(&numbers(rank, "x", &[4, 5, 24]))
    });
}

#[test]
fn unused_parameters_have_zero_gradients() {
    let setup = Setup { steps: 1, ..setup!(mixer) };
    for mesh in ["1", "tp=2", "dp=2,tp=2"] {
        let got = train(mesh, &setup, |model: &mixer::Mixer, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets, turn.step)
        });
        for (name, gradient) in &got.gradients {
            let is_zero = gradient.iter().all(|x| *x == 0.0);
            let is_unused = ["mix.unused", "sometimes.bias"].contains(&name.as_str());
            assert_eq!(is_zero, is_unused, "{mesh}: `{name}`");
        }
    }
}
