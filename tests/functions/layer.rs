//! Layers with a user-defined function, compared with the same layers composed of the library's operations.

use meshwright::backend::DType;
use meshwright::nn::{Layers, RecomputeOverride, Sizes};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::TokenData;
use meshwright_tests::models::gated::{Composed, Ffn, Gated, Hidden, Vocab};
use meshwright_tests::run::{Outcome, Setup, train};

const DATA: TokenData = TokenData { batch: 4, seq: 6, vocab: 13, masked: true };

fn setup() -> Setup {
    let mut sizes =
        Sizes::new().with(Hidden, 8).with(Ffn, 12).with(Vocab, DATA.vocab).with(Layers, 2);
    sizes.init_std = 0.4;
    sizes.recompute = Some(RecomputeOverride::Off);
    Setup { steps: 3, ..Setup::new(sizes) }
}

fn train_gated(mesh: &str, setup: &Setup) -> Outcome {
    train(mesh, setup, |model: &Gated, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

fn train_composed(mesh: &str, setup: &Setup) -> Outcome {
    train(mesh, setup, |model: &Composed, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

#[track_caller]
fn compare(report: &mut Report, label: &str, got: &Outcome, expected: &Outcome, tolerance: f64) {
    report.scalars("loss", label, &got.losses, &expected.losses, tolerance);
    report.tensors("gradient", label, &got.gradients, &expected.gradients, tolerance);
    report.tensors("trained parameter", label, &got.trained, &expected.trained, 10.0 * tolerance);
}

#[test]
fn functions_match_their_composed_form() {
    let expected = train_composed("1", &setup());
    let mut report = Report::default();
    for mesh in ["1", "tp=2", "dp=2", "fsdp=2", "fsdp=2,tp=2"] {
        for micro_batches in [1, 2] {
            let setup = Setup { micro_batches, ..setup() };
            let label = format!("{micro_batches} micro-batches on {mesh}");
            compare(&mut report, &label, &train_gated(mesh, &setup), &expected, 2e-5);
        }
    }
    report.print();
}

#[test]
fn recomputation_keeps_bits_at_every_zero_stage() {
    let mut report = Report::default();
    for (mesh, micro_batches) in [("fsdp=2", 1), ("fsdp=2", 2), ("fsdp=2,tp=2", 2)] {
        let of = |zero, recompute| {
            let mut setup = setup();
            setup.settings = Settings { zero, ..setup.settings };
            setup.sizes.recompute = recompute;
            train_gated(mesh, &Setup { micro_batches, ..setup })
        };
        let replicated = of(ZeroStage::Replicated, Some(RecomputeOverride::Off));
        for zero in ZeroStage::ALL {
            let label = format!("{zero}, {micro_batches} micro-batches on {mesh}");
            let expected = of(zero, Some(RecomputeOverride::Off));
            // Stages differ in when micro-batches are summed.
            compare(&mut report, &label, &expected, &replicated, 2e-6);
            // The model saves the results of the function, unless everything is recomputed.
            for recompute in [Some(RecomputeOverride::Full), None] {
                let got = of(zero, recompute);
                let label = format!("{label}, recompute {recompute:?}");
                assert_eq!(got.losses, expected.losses, "{label}");
                assert_same_bits(&label, &got.gradients, &expected.gradients);
                assert_same_bits(&label, &got.trained, &expected.trained);
            }
        }
    }
    report.print();
}

#[test]
fn bf16_operands_are_rounded_once() {
    let setup = |compute| {
        let setup = setup();
        Setup { settings: Settings { compute, ..setup.settings }, ..setup }
    };
    let expected = train_gated("1", &setup(DType::F32));
    let got = train_gated("tp=2", &setup(DType::Bf16));
    let mut report = Report::default();
    report.scalars("loss", "bf16", &got.losses, &expected.losses, 1e-2);
    report.tensors("gradient", "bf16", &got.gradients, &expected.gradients, 5e-2);
    report.print();
}
