//! Pipeline parallelism: every schedule against one rank that accumulates the same micro-batches.

use meshwright::backend::DType;
use meshwright::models::llama::Llama;
use meshwright::nn::RecomputeOverride;
use meshwright::pipeline::StageCut;
use meshwright::schedule::{Schedule, ScheduleKind};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::TokenData;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};

use super::llama::{Case, EVEN};
use super::table::report_parity;

/// Eight layers: enough for two stages on each of four ranks.
pub const DEEP: Case = Case { layers: 8, seq: 8, ..EVEN };

pub fn generate(kind: ScheduleKind, ranks: usize, micro_batches: usize) -> Schedule {
    kind.generate(ranks, kind.default_chunks(), micro_batches).unwrap()
}

pub fn train_whole<M: LanguageModel>(setup: &Setup, data: TokenData) -> Outcome {
    train("1", setup, |model: &M, rank, turn| {
        let (tokens, targets) = data.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

/// Losses, gradients and parameters have the bits of one rank: a step adds the same numbers in the same order.
#[track_caller]
pub fn assert_bits(label: &str, got: &Outcome, one: &Outcome) {
    assert_eq!(got.losses, one.losses, "{label}: losses");
    assert_same_bits(&format!("{label}: initial parameters"), &got.initial, &one.initial);
    assert_same_bits(&format!("{label}: gradients"), &got.gradients, &one.gradients);
    assert_same_bits(&format!("{label}: parameters"), &got.trained, &one.trained);
}

#[test]
fn every_schedule_has_the_bits_of_one_rank() {
    for ranks in [2, 4] {
        for micro_batches in [ranks, 2 * ranks, 2 * ranks + 1] {
            let case = Case { batch: micro_batches, ..DEEP };
            let setup = case.setup::<Llama>();
            let setup = Setup { steps: 5, micro_batches, clips: false, ..setup };
            let one = train_whole::<Llama>(&setup, case.data());
            for kind in ScheduleKind::ALL {
                let mesh = format!("pp={ranks}");
                let schedule = generate(kind, ranks, micro_batches);
                let cut = StageCut::Auto;
                let got = train_stages::<Llama>(&mesh, &setup, &schedule, &cut, case.data());
                assert_bits(&format!("{kind} on {mesh}, {micro_batches}"), &got, &one);
            }
        }
    }
}

/// Activations at a boundary are rounded to bf16 on one rank, too.
#[test]
fn bf16_has_the_bits_of_one_rank() {
    let case = Case { batch: 4, ..DEEP };
    let setup = case.setup::<Llama>();
    let settings = Settings { compute: DType::Bf16, ..setup.settings };
    let setup = Setup { steps: 3, micro_batches: 4, clips: false, settings, ..setup };
    let one = train_whole::<Llama>(&setup, case.data());
    for ranks in [2, 4] {
        for kind in ScheduleKind::ALL {
            let (mesh, schedule) = (format!("pp={ranks}"), generate(kind, ranks, 4));
            let cut = StageCut::Auto;
            let got = train_stages::<Llama>(&mesh, &setup, &schedule, &cut, case.data());
            assert_bits(&format!("bf16, {kind} on {mesh}"), &got, &one);
        }
    }
}

/// Stages of one layer each, as `--stage-times` measures them, do the same as those that they are cut from.
#[test]
fn split_stages_have_the_bits_of_one_rank() {
    let case = Case { batch: 4, ..DEEP };
    let setup = Setup { steps: 2, micro_batches: 4, clips: false, ..case.setup::<Llama>() };
    let one = train_whole::<Llama>(&setup, case.data());
    for (kind, ranks, counts) in [
        (ScheduleKind::OneFOneB, 1, vec![8]),
        (ScheduleKind::ZeroBubbleH1, 2, vec![5, 3]),
        (ScheduleKind::DualPipeV, 2, vec![1, 2, 2, 3]),
    ] {
        let schedule = generate(kind, ranks, 4).split_stages(&counts);
        let (mesh, cut) = (format!("pp={ranks}"), StageCut::Counts(vec![1; 8]));
        let got = train_stages::<Llama>(&mesh, &setup, &schedule, &cut, case.data());
        assert_bits(&format!("split {kind} on {mesh}"), &got, &one);
    }
}

/// A stage may begin inside of a checkpointed segment, and weight gradients inside of one are not deferred.
#[test]
fn recomputed_stages_have_the_bits_of_one_rank() {
    let case = Case { batch: 4, ..DEEP };
    for recompute in ["full", "every=3", "attn"] {
        let mut setup = Setup { steps: 2, micro_batches: 4, clips: false, ..case.setup::<Llama>() };
        setup.sizes.recompute = Some(recompute.parse::<RecomputeOverride>().unwrap());
        let one = train_whole::<Llama>(&setup, case.data());
        for (kind, cut) in [(ScheduleKind::OneFOneB, "5,3"), (ScheduleKind::ZeroBubbleH1, "4,4")] {
            let (schedule, cut) = (generate(kind, 2, 4), cut.parse().unwrap());
            let got = train_stages::<Llama>("pp=2", &setup, &schedule, &cut, case.data());
            assert_bits(&format!("{recompute}, {kind}"), &got, &one);
        }
    }
}

/// Tied embeddings: the first and the last stage hold the weight, and sum its gradient once.
#[test]
fn tied_embeddings_match_one_rank() {
    let case = Case { tied: true, masked: true, batch: 8, vocab: 61, ..DEEP };
    let setup = Setup { micro_batches: 4, ..case.setup::<Llama>() };
    let meshes = ["pp=2", "pp=4", "dp=2,pp=2", "pp=2,tp=2", "dp=2,tp=2,pp=2", "fsdp=2,tp=2,pp=2"];
    check_parity::<Llama>("tied", &meshes, &ScheduleKind::ALL, &setup, case.data());
}

#[test]
fn zero_stages_match_one_rank() {
    let case = Case { masked: true, tied: true, batch: 8, seq: 7, ..DEEP };
    for zero in ZeroStage::ALL {
        let setup = case.setup::<Llama>();
        let settings = Settings { zero, ..setup.settings };
        let setup = Setup { settings, steps: 4, micro_batches: 4, ..setup };
        let kinds = [ScheduleKind::OneFOneB, ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleV];
        let label = format!("ZeRO stage {}", zero.number());
        check_parity::<Llama>(&label, &["fsdp=2,pp=2"], &kinds, &setup, case.data());
    }
}

/// Shards within a host, and copies of them on other hosts.
#[test]
fn hybrid_sharding_matches_one_rank() {
    let case = Case { masked: true, batch: 16, seq: 7, ..DEEP };
    for zero in [ZeroStage::Optimizer, ZeroStage::Parameters] {
        let setup = case.setup::<Llama>();
        let settings = Settings { zero, ..setup.settings };
        let setup = Setup { settings, steps: 4, micro_batches: 4, ..setup };
        let kinds = [ScheduleKind::OneFOneB, ScheduleKind::ZeroBubbleV];
        let label = format!("hybrid, ZeRO stage {}", zero.number());
        check_parity::<Llama>(&label, &["dp=2,fsdp=2,pp=2"], &kinds, &setup, case.data());
    }
}

/// A user-defined schedule: the backward of micro-batch 1 comes before that of micro-batch 0.
#[test]
fn schedules_from_files_run() {
    let case = Case { batch: 2, ..DEEP };
    let setup = Setup { steps: 2, micro_batches: 2, ..case.setup::<Llama>() };
    let text = "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n";
    let schedule = meshwright::schedule::csv::read(text).unwrap();
    let one = train_whole::<Llama>(&setup, case.data());
    let cut = StageCut::Counts(vec![3, 5]);
    let got = train_stages::<Llama>("pp=2", &setup, &schedule, &cut, case.data());
    report_parity("a schedule from a file", &got, &one, &mut Report::default());
}

#[track_caller]
fn check_parity<M: LanguageModel>(
    what: &str,
    meshes: &[&str],
    kinds: &[ScheduleKind],
    setup: &Setup,
    data: TokenData,
) {
    let one = {
        let settings = Settings { zero: ZeroStage::Replicated, ..setup.settings };
        train_whole::<M>(&Setup { settings, ..setup.clone() }, data)
    };
    let mut report = Report::default();
    for mesh in meshes {
        let ranks = if mesh.contains("pp=4") { 4 } else { 2 };
        for kind in kinds {
            let schedule = generate(*kind, ranks, setup.micro_batches);
            let got = train_stages::<M>(mesh, setup, &schedule, &StageCut::Auto, data);
            report_parity(&format!("{what}, {kind} on {mesh}"), &got, &one, &mut report);
        }
    }
    report.print();
}
