//! Mixtures of experts on every mesh, against one rank.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::nn::RecomputeOverride;
use meshwright::pipeline::StageCut;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Rank, Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::models::moe::{over_ep, over_ep_cp_tp, over_ep_tp, whole};
use meshwright_tests::models::small_sizes;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train, without_noise};

use super::table::{check_each, report_parity};

const DATA: TokenData = TokenData { batch: 4, seq: 16, vocab: 29, masked: true };

fn setup<M: LanguageModel<Config = Gpt2Config>>() -> Setup {
    Setup { steps: 3, ..Setup::new(small_sizes::<M>(&DATA, 2)) }
}

/// Compares a model on meshes, at ZeRO stages that take turns.
#[track_caller]
fn check<M: LanguageModel<Config = Gpt2Config>>(what: &str, meshes: &[&str]) {
    let setup = setup::<M>();
    let others = meshes.iter().enumerate().map(|(index, mesh)| {
        let zero = ZeroStage::ALL[index % 4];
        let settings = Settings { zero, ..setup.settings };
        (*mesh, format!("{what} with {zero}"), Setup { settings, ..setup.clone() })
    });
    check_each(&setup, others, |model: &M, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

#[test]
fn experts_on_every_rank() {
    let meshes = [
        "dp=2",
        "tp=2",
        "fsdp=2",
        "fsdp=4",
        "cp=2",
        "dp=2,tp=2",
        "fsdp=2,cp=2,tp=2",
        "fsdp=2,tp=2",
    ];
    check::<whole::Net>("whole experts", &meshes);
}

#[test]
fn experts_over_ep() {
    let meshes = [
        "ep=2",
        "ep=4",
        "ep=2,tp=2",
        "dp=2,ep=2",
        "fsdp=2,ep=2",
        "ep=2,cp=2",
        "fsdp=2,ep=2,tp=2",
        "ep=2,cp=2,tp=2",
        "ep=4,tp=2",
    ];
    check::<over_ep::Net>("experts over ep", &meshes);
}

#[test]
fn experts_folded_over_tp() {
    let meshes = [
        "tp=2",
        "ep=2",
        "ep=2,tp=2",
        "ep=2,tp=4",
        "fsdp=2,tp=2",
        "dp=2,ep=2,tp=2",
        "ep=2,cp=2,tp=2",
    ];
    check::<over_ep_tp::Net>("experts over ep and tp", &meshes);
}

#[test]
fn experts_folded_over_cp_and_tp() {
    let meshes = ["cp=2", "ep=2,cp=2", "cp=2,tp=2", "ep=2,cp=2,tp=2", "fsdp=2,cp=2,tp=2"];
    check::<over_ep_cp_tp::Net>("experts over ep, cp and tp", &meshes);
}

/// The batch of several micro-batches. Every data rank has rows of each.
const LARGER: TokenData = TokenData { batch: 16, ..DATA };

/// Trains a model on one rank, with a number of micro-batches: their load-balancing losses follow from the choices of
/// all of their tokens.
fn train_alone<M: LanguageModel<Config = Gpt2Config>>(micro_batches: usize) -> (Setup, Outcome) {
    train_setup_alone::<M>(Setup { micro_batches, ..setup::<M>() })
}

fn train_setup_alone<M: LanguageModel<Config = Gpt2Config>>(setup: Setup) -> (Setup, Outcome) {
    let one = train("1", &setup, |model: &M, rank, turn| {
        let (tokens, targets) = LARGER.block(rank, turn);
        model.loss(&tokens, &targets)
    });
    (setup, without_noise(one))
}

/// A micro-batch has the same rows on every mesh.
#[test]
fn experts_in_several_micro_batches() {
    let mut report = Report::default();
    for micro_batches in [2, 4] {
        let (setup, one) = train_alone::<over_ep::Net>(micro_batches);
        for (index, mesh) in
            ["dp=2", "fsdp=2", "ep=2", "cp=2", "tp=2", "dp=2,ep=2", "fsdp=2,cp=2,tp=2", "ep=4"]
                .into_iter()
                .enumerate()
        {
            let zero = ZeroStage::ALL[index % 4];
            let settings = Settings { zero, ..setup.settings };
            let setup = Setup { settings, ..setup.clone() };
            let got = train(mesh, &setup, |model: &over_ep::Net, rank, turn| {
                let (tokens, targets) = LARGER.block(rank, turn);
                model.loss(&tokens, &targets)
            });
            let label = format!("{micro_batches} micro-batches on {mesh}");
            report_parity(&label, &without_noise(got), &one, &mut report);
        }
    }
    report.print();
}

#[test]
fn experts_in_pipeline_stages() {
    let mut report = Report::default();
    for micro_batches in [2, 4] {
        let (setup, one) = train_alone::<over_ep::Net>(micro_batches);
        for (mesh, kind) in [
            ("pp=2", ScheduleKind::OneFOneB),
            ("tp=2,pp=2", ScheduleKind::ZeroBubbleH1),
            ("cp=2,pp=2", ScheduleKind::GPipe),
            ("dp=2,pp=2", ScheduleKind::OneFOneB),
            ("fsdp=2,pp=2", ScheduleKind::ZeroBubbleH1),
            ("ep=2,pp=2", ScheduleKind::GPipe),
        ] {
            let schedule = kind.generate(2, 1, micro_batches).unwrap();
            let cut = StageCut::Auto;
            let got = train_stages::<over_ep::Net>(mesh, &setup, &schedule, &cut, LARGER);
            let label = format!("experts in {micro_batches} micro-batches on {mesh}");
            report_parity(&label, &without_noise(got), &one, &mut report);
        }
    }
    report.print();
}

/// Recomputed routers count their choices on all ranks again, for the load-balancing loss of the same tokens.
#[test]
fn recomputed_layers_have_the_same_bits() {
    let loss = |model: &over_ep_tp::Net, rank: &Rank, turn: Turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    };
    for mesh in ["1", "ep=2,tp=2", "fsdp=2,ep=2"] {
        let run = |recompute| {
            let mut setup = Setup { micro_batches: 2, ..setup::<over_ep_tp::Net>() };
            setup.sizes.recompute = Some(recompute);
            train(mesh, &setup, loss)
        };
        let whole = run(RecomputeOverride::Off);
        for recompute in [RecomputeOverride::Full, RecomputeOverride::Attention] {
            let other = run(recompute);
            assert_eq!(other.losses, whole.losses, "{mesh}, {recompute}");
            assert_same_bits(&format!("{mesh}, {recompute}"), &other.trained, &whole.trained);
        }
    }
}

/// Stages of one rank have auxiliary losses of their own, and weight gradients are computed later.
#[test]
fn experts_in_several_stages_of_a_rank() {
    let mut report = Report::default();
    let micro_batches = 4;
    let sizes = small_sizes::<over_ep_tp::Net>(&DATA, 4);
    let (setup, one) = train_setup_alone::<over_ep_tp::Net>(Setup {
        micro_batches,
        steps: 2,
        ..Setup::new(sizes)
    });
    for (mesh, kind) in [
        ("pp=2", ScheduleKind::Interleaved),
        ("tp=2,pp=2", ScheduleKind::ZeroBubbleV),
        ("ep=2,pp=2", ScheduleKind::DualPipeV),
    ] {
        let schedule = kind.generate(2, kind.default_chunks(), micro_batches).unwrap();
        let cut = StageCut::Auto;
        let got = train_stages::<over_ep_tp::Net>(mesh, &setup, &schedule, &cut, LARGER);
        report_parity(&format!("{kind:?} on {mesh}"), &without_noise(got), &one, &mut report);
    }
    report.print();
}
