//! Mixtures of experts: on one device, on ranks that share it, and on a device for each rank.

use meshwright::backend::DType;
use meshwright::tensor::{Rank, Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::models::moe::{over_ep, over_ep_cp_tp};
use meshwright_tests::models::small_sizes;
use meshwright_tests::run::{Setup, train, without_noise};

use super::{BF16, F32, check, compare, machine_of};

const DATA: TokenData = TokenData { batch: 4, seq: 8, vocab: 29, masked: true };

fn setup(compute: DType) -> Setup {
    let settings = Settings { compute, ..Settings::new(7) };
    Setup { steps: 2, settings, ..Setup::new(small_sizes::<over_ep::Net>(&DATA, 2)) }
}

#[test]
fn experts_on_ranks_that_share_the_device() {
    let of = |mesh, zero| {
        let setup = setup(DType::F32);
        let settings = Settings { zero, ..setup.settings };
        (mesh, format!("{zero}"), Setup { settings, ..setup })
    };
    let others = [
        of("1", ZeroStage::Replicated),
        of("ep=2", ZeroStage::Replicated),
        of("fsdp=2,ep=2", ZeroStage::Parameters),
    ];
    check(&setup(DType::F32), others, F32, |model: &over_ep::Net, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

#[test]
fn experts_in_bf16() {
    let others = [("1", "bf16".to_owned(), setup(DType::Bf16))];
    check(&setup(DType::Bf16), others, BF16, |model: &over_ep::Net, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

/// Rows go from device to device by the collectives library.
#[test]
fn experts_on_a_device_for_each_rank() {
    let setup = setup(DType::F32);
    let loss = |model: &over_ep_cp_tp::Net, rank: &Rank, turn: Turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    };
    let expected = without_noise(train("1", &setup, loss));
    let mut report = Report::default();
    for mesh in ["ep=2", "ep=2,tp=2"] {
        let setup = Setup { machine: Some(machine_of(mesh)), ..setup.clone() };
        let got = without_noise(train(mesh, &setup, loss));
        compare(&mut report, mesh, &got, &expected, F32);
    }
    report.print();
}

/// Ranks with two tokens each, whose experts have few rows or none.
#[test]
fn experts_of_few_tokens() {
    const FEW: TokenData = TokenData { batch: 8, seq: 2, vocab: 29, masked: false };
    let setup = Setup { steps: 1, ..setup(DType::F32) };
    let others = [("ep=8", "few tokens".to_owned(), setup.clone())];
    check(&setup, others, F32, |model: &over_ep::Net, rank, turn| {
        let (tokens, targets) = FEW.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}
