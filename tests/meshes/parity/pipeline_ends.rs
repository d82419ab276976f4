//! Stages without layers: the embedding and the head are stages of their own.

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::nn::RecomputeOverride;
use meshwright::pipeline::StageCut;
use meshwright::schedule::ScheduleKind::{
    self, DualPipeV, GPipe, Interleaved, OneFOneB, ZeroBubbleH1, ZeroBubbleV,
};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::small_gpt2;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Setup, without_noise};

use super::llama::{Case, EVEN};
use super::pipeline::{assert_bits, generate, train_whole};
use super::table::report_parity;

/// Two layers on four stages: one layer each on the inner two, with every kind of schedule.
const FOUR_STAGES: [(&str, ScheduleKind); 6] = [
    ("pp=4", GPipe),
    ("pp=4", OneFOneB),
    ("pp=4", ZeroBubbleH1),
    ("pp=2", Interleaved),
    ("pp=2", ZeroBubbleV),
    ("pp=2", DualPipeV),
];

fn ranks_of(mesh: &str) -> usize {
    if mesh.contains("pp=4") { 4 } else { 2 }
}

#[test]
fn ends_have_the_bits_of_one_rank() {
    let case = Case { batch: 4, seq: 8, ..EVEN };
    for recompute in [None, Some("full")] {
        let mut setup = Setup { steps: 3, micro_batches: 4, clips: false, ..case.setup::<Llama>() };
        setup.sizes.recompute =
            recompute.map(|policy| policy.parse::<RecomputeOverride>().unwrap());
        let one = train_whole::<Llama>(&setup, case.data());
        for (mesh, kind) in FOUR_STAGES {
            let schedule = generate(kind, ranks_of(mesh), 4);
            // The only cut of so few layers.
            for cut in [StageCut::Auto, StageCut::Counts(vec![0, 1, 1, 0])] {
                let got = train_stages::<Llama>(mesh, &setup, &schedule, &cut, case.data());
                assert_bits(&format!("{recompute:?}, {kind} on {mesh}"), &got, &one);
            }
        }
    }
}

/// Eight stages on four ranks, of which one has the embedding and a layer, and another a layer and the head.
#[test]
fn virtual_stages_at_the_ends_have_the_bits_of_one_rank() {
    let case = Case { layers: 6, batch: 4, seq: 8, ..EVEN };
    let setup = Setup { steps: 2, micro_batches: 4, clips: false, ..case.setup::<Llama>() };
    let one = train_whole::<Llama>(&setup, case.data());
    for kind in [Interleaved, ZeroBubbleV, DualPipeV] {
        let cut = StageCut::Counts(vec![0, 1, 1, 1, 1, 1, 1, 0]);
        let schedule = generate(kind, 4, 4);
        let got = train_stages::<Llama>("pp=4", &setup, &schedule, &cut, case.data());
        assert_bits(&format!("{kind} of eight stages"), &got, &one);
    }
}

/// The first and the last stage hold one weight, and no layer.
#[test]
fn tied_ends_match_one_rank() {
    let case = Case { tied: true, masked: true, batch: 8, vocab: 61, ..EVEN };
    check::<Llama>("tied Llama", &case.setup::<Llama>(), case.data());
}

#[test]
fn ends_of_a_gpt2_match_one_rank() {
    let data = TokenData { batch: 8, seq: 7, vocab: 61, masked: true };
    check::<Gpt2>("GPT-2", &Setup::new(small_gpt2::<Gpt2>(&data, 2)), data);
}

#[track_caller]
fn check<M: LanguageModel>(what: &str, setup: &Setup, data: TokenData) {
    let setup = Setup { micro_batches: 4, ..setup.clone() };
    let one = without_noise(train_whole::<M>(&setup, data));
    let mut report = Report::default();
    let mut compare = |mesh: &str, kind: ScheduleKind, zero: ZeroStage| {
        let setup = Setup { settings: Settings { zero, ..setup.settings }, ..setup.clone() };
        let schedule = generate(kind, ranks_of(mesh), setup.micro_batches);
        let cut = StageCut::Counts(vec![0, 1, 1, 0]);
        let got = without_noise(train_stages::<M>(mesh, &setup, &schedule, &cut, data));
        let label = format!("{what}, {kind} on {mesh}, ZeRO stage {}", zero.number());
        report_parity(&label, &got, &one, &mut report);
    };
    for (mesh, kind) in FOUR_STAGES {
        compare(mesh, kind, ZeroStage::Replicated);
    }
    for zero in [ZeroStage::Optimizer, ZeroStage::Parameters] {
        compare("fsdp=2,pp=2", Interleaved, zero);
        compare("fsdp=2,pp=2", ZeroBubbleV, zero);
    }
    compare("pp=2,tp=2", Interleaved, ZeroStage::Replicated);
    compare("dp=2,pp=4", OneFOneB, ZeroStage::Replicated);
    report.print();
}
