//! Products of activations, and operations on shapes.

use meshwright::backend::DType;
use meshwright::nn::Sizes;
use meshwright::tensor::{Loss, Settings, ZeroStage};
use meshwright_tests::compare::Report;
use meshwright_tests::data::numbers;
use meshwright_tests::models::shapes::{
    ByHand, Chosen, Distributed, Front, HeadDim, Heads, Hidden, Two,
};
use meshwright_tests::run::{Setup, train};

use super::table::{NARROW_MESHES, check, check_each};

/// Relative to f32 on one rank. Seen: 1e-2; bf16 rounds by up to 2e-3.
const BF16_LOSS: f64 = 4e-2;

fn setup() -> Setup {
    let mut sizes =
        Sizes::new().with(Hidden, 8).with(Heads, 4).with(HeadDim, 4).with(Front, 4).with(Two, 2);
    sizes.init_std = 0.4;
    Setup { steps: 2, ..Setup::new(sizes) }
}

#[test]
fn attention_by_hand() {
    let setup = setup();
    let others = NARROW_MESHES.map(|mesh| (mesh, setup.clone()));
    let sharded = Settings { zero: ZeroStage::Parameters, ..setup.settings };
    let sharded =
        ["fsdp=2", "fsdp=2,tp=2"].map(|mesh| (mesh, Setup { settings: sharded, ..setup.clone() }));
    let others = others.into_iter().chain(sharded);
    let others = others.map(|(mesh, setup)| (mesh, "attention by hand".to_owned(), setup));
    check_each(&setup, others, |model: &ByHand, rank, _| {
        let terms = model.terms(&numbers(rank, "x", &[4, 6, 8]));
        Loss::mean_of(&terms.square())
    });
}

#[test]
fn products_of_samples() {
    let meshes = ["tp=2", "dp=2", "dp=2,tp=2", "fsdp=2"];
    check("products of samples", &meshes, &setup(), |model: &ByHand, rank, _| {
        let products = model.samples(&numbers(rank, "x", &[4, 6, 8]));
        Loss::mean_of(&products.square())
    });
}

#[test]
fn distributed_sequences() {
    let meshes = ["cp=2", "dp=2,cp=2", "tp=2", "fsdp=2,cp=2"];
    check("a distributed sequence", &meshes, &setup(), |model: &Distributed, rank, _| {
        Loss::mean_of(&model.terms(&numbers(rank, "x", &[4, 8, 8])).square())
    });
}

#[test]
fn chosen_tokens() {
    let meshes = ["tp=2", "dp=2", "dp=2,tp=2", "fsdp=2"];
    check("chosen tokens", &meshes, &setup(), |model: &Chosen, rank, _| {
        Loss::mean_of(&model.terms(&numbers(rank, "x", &[4, 6, 8])).square())
    });
}

#[test]
fn bf16_stays_near_f32() {
    let mut report = Report::default();
    let run = |mesh: &str, compute| {
        let settings = Settings { compute, ..setup().settings };
        let setup = Setup { settings, steps: 1, ..setup() };
        train(mesh, &setup, |model: &ByHand, rank, _| {
            Loss::mean_of(&model.terms(&numbers(rank, "x", &[4, 6, 8])).square())
        })
    };
    let one = run("1", DType::F32);
    for mesh in ["1", "dp=2,tp=2"] {
        report.scalars("loss", mesh, &run(mesh, DType::Bf16).losses, &one.losses, BF16_LOSS);
    }
    report.print();
}
