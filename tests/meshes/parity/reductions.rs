//! Reductions along whole, split and distributed dims.

use meshwright::backend::DType;
use meshwright::nn::{Sizes, build};
use meshwright::prelude::*;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::reductions::Reductions;
use meshwright_tests::run::{Setup, on_mesh, train};

use super::table::{check, check_each};

const DATA: TokenData = TokenData { batch: 8, seq: 13, vocab: 31, masked: false };

fn setup() -> Setup {
    Setup { steps: 2, ..Setup::new(Reductions::sizes(DATA.vocab)) }
}

#[test]
fn reductions_on_meshes() {
    let meshes = ["tp=2", "tp=4", "dp=2", "cp=2", "cp=2,tp=2", "dp=2,tp=2", "fsdp=2,cp=2", "cp=4"];
    check("reductions", &meshes, &setup(), |model: &Reductions, rank, turn| {
        model.loss(&DATA.block(rank, turn).0)
    });
}

#[test]
fn reductions_in_micro_batches_and_shards() {
    let setup = setup();
    let with = |micro_batches, zero| {
        let settings = Settings { zero, ..setup.settings };
        Setup { micro_batches, settings, ..setup.clone() }
    };
    let others = [
        ("fsdp=2", with(2, ZeroStage::Parameters)),
        ("dp=2", with(4, ZeroStage::Replicated)),
        ("cp=2,tp=2", with(2, ZeroStage::Replicated)),
    ];
    let others = others.map(|(mesh, setup)| (mesh, "reductions".to_owned(), setup));
    check_each(&setup, others, |model: &Reductions, rank, turn| {
        model.loss(&DATA.block(rank, turn).0)
    });
}

/// Relative to f32 on one rank; bf16 rounds by up to 4e-3.
const BF16: f64 = 5e-2;

#[test]
fn reductions_in_bf16() {
    let run = |mesh, compute| {
        let settings = Settings { compute, ..setup().settings };
        let setup = Setup { steps: 1, settings, ..setup() };
        train(mesh, &setup, |model: &Reductions, rank, turn| model.loss(&DATA.block(rank, turn).0))
    };
    let wide = run("1", DType::F32);
    let mut report = Report::default();
    for mesh in ["1", "tp=2", "cp=2"] {
        let got = run(mesh, DType::Bf16);
        report.scalars("loss", mesh, &got.losses, &wide.losses, BF16);
        report.tensors("gradient", mesh, &got.gradients, &wide.gradients, BF16);
    }
    report.print();
}

dims! { Rows @ data, Inner, Outer, Place @ cp }

/// Weights whose columns are split.
#[model]
struct Columns {
    #[sharded(tp = "col")]
    weight: Linear<Inner, Outer>,
}

/// All elements are equal, so the gradient flows to the first one, on every mesh.
#[test]
fn the_first_of_equal_elements_has_the_gradient() {
    for mesh in ["1", "tp=2", "tp=4"] {
        let gradients = on_mesh(mesh, 1, |rank| {
            let mut sizes = Sizes::new().with(Inner, 1).with(Outer, 8);
            sizes.init_std = 0.0;
            let built = build::<Columns>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
            let x: Tensor<(Rows, Inner)> = Tensor::from_fn(rank, &[2, 1], |_| 1.0);
            let y = built.model.weight.forward(&x);
            let terms = y.across().max(Outer) + y.across().min(Outer) * 3.0;
            let gradients = Loss::mean_of(&terms).backward().reduce();
            gradients.gather(&built.params()[0])
        });
        assert_eq!(gradients[0], [4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "{mesh}");
    }
}

/// A rank of `cp` has two ranges of positions, so the first of equal elements is not always on the first rank.
#[test]
fn the_first_of_equal_positions_has_the_gradient() {
    for mesh in ["1", "cp=2"] {
        let gradients = on_mesh(mesh, 1, |rank| {
            let sizes = Sizes::new().with(Inner, 1).with(Outer, 8);
            let built = build::<Columns>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
            // Positions 4 and 7 have the largest element, and chunks of two positions are distributed as 0 3 | 1 2.
            let largest = |at: usize| if at == 4 || at == 7 { 2.0 } else { 1.0 };
            let x: Tensor<(Rows, Place, Inner)> =
                Tensor::from_fn(rank, &[1, 8, 1], |index| largest(index[1]));
            let number: Tensor<(Rows, Place, Inner)> =
                Tensor::from_fn(rank, &[1, 8, 1], |index| index[1] as f32);
            // Zero everywhere, with the position as derivative by the weights.
            let weighted = || built.model.weight.forward(&number);
            let zero = weighted() - rank.evaluate(weighted);
            let terms = (zero.gather(Outer).mean(Outer) + x.mean(Inner)).across().max(Place);
            let gradients = Loss::mean_of(&terms).backward().reduce();
            gradients.gather(&built.params()[0])
        });
        assert!(gradients[0].iter().all(|slope| (slope - 4.0 / 8.0).abs() < 1e-6), "{mesh}");
    }
}
