//! Pipelines whose ranks share a device: messages between streams, in any order of the device's work.

use meshwright::backend::DType;
use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::pipeline::StageCut;
use meshwright::schedule::ScheduleKind;
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::models::nested_llama;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};
use meshwright_tests::{data::Turn, run::without_noise};

use super::llama::{DATA, setup_of};
use super::{F32, compare, device};
use meshwright::train::LanguageModel;

const MICRO_BATCHES: usize = 4;

fn train_on_device<M: LanguageModel>(
    mesh: &str,
    kind: ScheduleKind,
    setup: &Setup,
    seed: u64,
) -> Outcome {
    let setup = Setup { machine: Some(device(seed)), ..setup.clone() };
    let schedule = kind.generate(2, kind.default_chunks(), MICRO_BATCHES).unwrap();
    train_stages::<M>(mesh, &setup, &schedule, &StageCut::Auto, DATA)
}

#[test]
fn schedules_on_one_device_match_the_cpu() {
    check::<Llama>(
        4,
        &[
            ("pp=2", ScheduleKind::OneFOneB),
            ("pp=2", ScheduleKind::ZeroBubbleV),
            ("pp=2,tp=2", ScheduleKind::ZeroBubbleH1),
            ("pp=2,fsdp=2", ScheduleKind::Interleaved),
        ],
    );
}

/// Offloaded inputs of segments, whose transfers overlap with computations and messages.
#[test]
fn offloading_stages_on_one_device_match_the_cpu() {
    let runs = [("pp=2", ScheduleKind::OneFOneB), ("pp=2", ScheduleKind::ZeroBubbleV)];
    check::<nested_llama::Llama>(3, &runs);
}

/// Trains on stages that share a device, in two orders of its work, and compares with one rank on the CPU.
#[track_caller]
fn check<M: LanguageModel<Config = LlamaConfig>>(steps: u64, runs: &[(&str, ScheduleKind)]) {
    let mut setup = Setup { micro_batches: MICRO_BATCHES, steps, ..setup_of::<M>(DType::F32) };
    setup.sizes = setup.sizes.with(meshwright::nn::Layers, 4);
    let on_cpu = train("1", &setup, |model: &M, rank, turn: Turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
    let expected = without_noise(on_cpu);
    let mut report = Report::default();
    for (mesh, kind) in runs.iter().copied() {
        let got = train_on_device::<M>(mesh, kind, &setup, 1);
        let place = format!("{kind} on {mesh}");
        compare(&mut report, &place, &without_noise(got.clone()), &expected, F32);
        let again = train_on_device::<M>(mesh, kind, &setup, 2);
        assert_eq!(again.losses, got.losses, "{place}: losses of another order of work");
        assert_same_bits(&format!("{place}: another order of work"), &again.trained, &got.trained);
    }
    report.print();
}
