//! Routers with groups of experts, biases of logits, and biases of the choice that change after each step, on every
//! mesh against one rank.

use meshwright::nn::{ExpertGroups, RecomputeOverride, RouterOptions, RouterScore, Sizes};
use meshwright::pipeline::StageCut;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Init, Rank, Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::models::moe::{over_ep, over_ep_cp_tp, over_ep_tp};
use meshwright_tests::models::small_sizes;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train, without_noise};

use super::table::report_parity;

/// Every data rank has rows of each of two micro-batches.
const DATA: TokenData = TokenData { batch: 8, seq: 16, vocab: 29, masked: true };

const RATE: f32 = 0.01;

fn sizes<M: LanguageModel<Config = meshwright::checkpoint::hf::Gpt2Config>>() -> Sizes {
    let mut sizes = small_sizes::<M>(&DATA, 2)
        .with_optional("router.bias", true)
        .with_optional("router.choice_bias", true)
        .with_init("router.bias", Init::Normal(0.3))
        .with_init("router.choice_bias", Init::Normal(0.1));
    sizes.router = RouterOptions {
        score: RouterScore::Sigmoid,
        scale: 2.5,
        sum_epsilon: 1e-20,
        groups: Some(ExpertGroups { count: 4, best: 2, top: 2 }),
        ..sizes.router
    };
    sizes.choice_bias_rate = RATE;
    sizes
}

fn setup<M: LanguageModel<Config = meshwright::checkpoint::hf::Gpt2Config>>() -> Setup {
    Setup { steps: 3, micro_batches: 2, ..Setup::new(sizes::<M>()) }
}

fn trained<M: LanguageModel>(mesh: &str, setup: &Setup) -> Outcome {
    let outcome = train(mesh, setup, |model: &M, rank: &Rank, turn: Turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss_of_output(&model.forward(&tokens), &targets)
    });
    without_noise(outcome)
}

/// Biases of the choice move by the rate in each step, by the same numbers on each mesh.
#[test]
fn choice_biases_on_meshes() {
    let one = trained::<over_ep::Net>("1", &setup::<over_ep::Net>());
    let biases: Vec<_> = one.trained.keys().filter(|path| path.ends_with("choice_bias")).collect();
    assert_eq!(biases.len(), 2);
    for path in biases {
        let moves = one.trained[path].iter().zip(&one.initial[path]).map(|(now, then)| now - then);
        let steps: Vec<f32> = moves.map(|moved| (moved / RATE).round()).collect();
        assert!(steps.iter().any(|step| *step != 0.0), "{path} moves");
        assert!(steps.iter().all(|step| step.abs() <= 3.0), "{path}: {steps:?}");
        assert!(!one.gradients.contains_key(path), "{path} has no gradient");
    }
    let mut report = Report::default();
    let over_ep = ["tp=2", "ep=2", "dp=2,ep=2", "ep=2,tp=2", "fsdp=2", "fsdp=2,ep=2", "ep=2,cp=2"];
    for (index, mesh) in over_ep.into_iter().enumerate() {
        let setup = setup::<over_ep::Net>();
        let zero = if mesh == "fsdp=2" { ZeroStage::Parameters } else { ZeroStage::ALL[index % 4] };
        let setup = Setup { settings: Settings { zero, ..setup.settings }, ..setup };
        report_parity(mesh, &trained::<over_ep::Net>(mesh, &setup), &one, &mut report);
    }
    let folded = trained::<over_ep_cp_tp::Net>("ep=2,tp=2", &setup::<over_ep_cp_tp::Net>());
    report_parity("ep=2,tp=2, folded", &folded, &one, &mut report);
    for (mesh, kind) in [("ep=2,pp=2", ScheduleKind::OneFOneB), ("tp=2,pp=2", ScheduleKind::GPipe)]
    {
        let schedule = kind.generate(2, 1, 2).unwrap();
        let setup = setup::<over_ep::Net>();
        let got = train_stages::<over_ep::Net>(mesh, &setup, &schedule, &StageCut::Auto, DATA);
        report_parity(mesh, &without_noise(got), &one, &mut report);
    }
    report.print();
}

/// A recomputed router counts its choices only once.
#[test]
fn recomputed_choices_have_the_same_bits() {
    for mesh in ["1", "ep=2,tp=2"] {
        let run = |recompute| {
            let mut setup = setup::<over_ep_tp::Net>();
            setup.sizes.recompute = Some(recompute);
            trained::<over_ep_tp::Net>(mesh, &setup)
        };
        let whole = run(RecomputeOverride::Off);
        let other = run(RecomputeOverride::Full);
        assert_eq!(other.losses, whole.losses, "{mesh}");
        assert_same_bits(mesh, &other.trained, &whole.trained);
    }
}
