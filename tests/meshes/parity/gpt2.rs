//! The GPT-2 of the examples, with a sequence-parallel and a whole stream, at every ZeRO stage and in bf16.

use meshwright::backend::DType;
use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::models::gpt2::Gpt2;
use meshwright::tensor::{Rank, Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::{plain_gpt2, small_gpt2};
use meshwright_tests::run::{Outcome, Setup, train, without_noise};

use super::sharding::{self, RECOMPUTATIONS, check_levels};
use super::table::{self, check, check_each};

// Of bf16 relative to f32, on any mesh. Seen: 6e-4 and 2.3e-2; bf16 rounds by up to 2e-3.
const LOSS: f64 = 3e-3;
const GRADIENT: f64 = 4e-2;

/// Data whose sequence and vocabulary do not divide evenly, with more positions than any sequence uses.
const DATA: TokenData = TokenData { batch: 16, seq: 7, vocab: 61, masked: true };

#[test]
fn sequence_parallel_stream() {
    check_meshes::<Gpt2>("gpt2, sequence-parallel");
}

#[test]
fn plain_stream() {
    check_meshes::<plain_gpt2::Gpt2>("gpt2, plain stream");
}

#[test]
fn every_stage() {
    check_levels::<Gpt2>("gpt2", DATA, &setup::<Gpt2>(), &sharding::MESHES, &[None]);
}

#[test]
fn every_recomputation_at_every_stage() {
    check_levels::<Gpt2>(
        "gpt2",
        DATA,
        &setup::<Gpt2>(),
        &sharding::NARROW,
        &RECOMPUTATIONS.map(Some),
    );
}

#[test]
fn every_mesh_in_bf16_stays_near_one_rank_in_f32() {
    let one = run("1", Settings::new(7));
    let mut report = Report::default();
    for (mesh, zero) in [
        ("1", ZeroStage::Replicated),
        ("tp=2", ZeroStage::Replicated),
        ("dp=2,fsdp=2", ZeroStage::Parameters),
        ("fsdp=2,tp=2", ZeroStage::Gradients),
    ] {
        let got = run(mesh, Settings { compute: DType::Bf16, zero, ..Settings::new(7) });
        assert_ne!(got.losses, one.losses);
        report.scalars("loss", mesh, &got.losses, &one.losses, LOSS);
        report.tensors("gradient", mesh, &got.gradients, &one.gradients, GRADIENT);
    }
    report.print();
}

fn run(mesh: &str, settings: Settings) -> Outcome {
    let setup = Setup { settings, ..setup::<Gpt2>() };
    without_noise(train(mesh, &setup, |model: &Gpt2, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    }))
}

#[track_caller]
fn check_meshes<M: LanguageModel<Config = Gpt2Config>>(what: &str) {
    check(what, &table::MESHES, &setup::<M>(), |model: &M, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

fn setup<M: LanguageModel<Config = Gpt2Config>>() -> Setup {
    Setup::new(small_gpt2::<M>(&DATA, 3))
}

/// Each rate of a configuration is applied, on meshes as on one rank.
#[test]
fn dropout_of_the_configuration() {
    let setup = Setup { steps: 2, ..setup::<Gpt2>() };
    let loss = |model: &Gpt2, rank: &Rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    };
    let undropped = train("1", &setup, loss).losses;
    let mut all = setup.clone();
    for field in ["dropout", "attn.dropout", "mlp.dropout"] {
        let sizes = setup.sizes.clone().with_dropout(field, 0.2);
        let of_field = train("1", &Setup { sizes, ..setup.clone() }, loss).losses;
        assert_ne!(of_field[0], undropped[0], "{field}");
        all.sizes = all.sizes.with_dropout(field, 0.2);
    }
    all.sizes.attention.dropout = 0.2;
    let mut of_weights = setup.clone();
    of_weights.sizes.attention.dropout = 0.2;
    assert_ne!(train("1", &of_weights, loss).losses[0], undropped[0], "attention weights");
    let meshes = ["tp=2", "dp=2,tp=2", "fsdp=2"].map(|mesh| (mesh, "gpt2".to_owned(), all.clone()));
    check_each(&all, meshes, loss);
}
