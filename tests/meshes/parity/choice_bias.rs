//! Routers with groups of experts, biases of logits, and biases of the choice that change after each step, on every
//! mesh against one rank.

use std::path::Path;

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::checkpoint::{Checkpoint, TensorBox, TensorSource};
use meshwright::models::Deepseek;
use meshwright::nn::layers::{ExpertGroups, RouterOptions, RouterScore};
use meshwright::nn::{RecomputeOverride, Sizes};
use meshwright::pipeline::StageCut;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Init, Rank, Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::{Report, Tensors, assert_same_bits};
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::models::moe::{over_ep, over_ep_cp_tp, over_ep_tp};
use meshwright_tests::models::small_sizes;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train, train_with_flags, without_noise};

use super::table::report_parity;

/// Every data rank has rows of each of two micro-batches.
const DATA: TokenData = TokenData { batch: 8, seq: 16, vocab: 29, masked: true };

const RATE: f32 = 0.01;

/// A rate that does not move a bias back and forth in two steps.
const SMALL_RATE: f32 = 0.001;

fn sizes<M: LanguageModel<Config = Gpt2Config>>() -> Sizes {
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

fn setup<M: LanguageModel<Config = Gpt2Config>>() -> Setup {
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

/// Biases of the choice are saved in f32, and a resumed run has the same bits.
#[test]
fn resumed_choice_biases_have_the_same_bits() {
    for (mesh, more) in [("ep=2", ""), ("fsdp=2", "--zero 3 --dtype bf16 --micro-batches 2")] {
        let root = tempfile::tempdir().unwrap();
        let dir = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        let line = format!(
            "--mesh {mesh} --hidden 16 --heads 4 --ffn 24 --layers 2 --batch 8 --seq 12 --steps 4 --save-every 2 \
             --balance bias={SMALL_RATE} {more}"
        );
        let run = |more: String| {
            let line = format!("{line} {more}");
            let words: Vec<&str> = line.split_whitespace().collect();
            let flags = words.chunks_exact(2).map(|pair| (pair[0], pair[1].as_ref()));
            train_with_flags::<Deepseek>(&flags.collect::<Vec<_>>()).unwrap()
        };
        let [straight, resumed] = ["straight", "resumed"].map(dir);
        let whole = run(format!("--save {straight}"));
        let rest = run(format!("--resume {straight}/step-00000002 --save {resumed}"));
        assert_eq!(rest.losses, whole.losses[2..], "{mesh}");
        let saved = |folder: &str, step: u64| {
            let step = format!("{folder}/step-{step:08}");
            let checkpoint = Checkpoint::open(Path::new(&step)).unwrap();
            let tensors = checkpoint.manifest().tensors.iter();
            let read = tensors.map(|(name, tensor)| {
                let whole = TensorBox::whole(&tensor.shape);
                (name.clone(), checkpoint.read(name, &tensor.shape, &whole).unwrap())
            });
            read.collect::<Tensors>()
        };
        let (before, after) = (saved(&straight, 2), saved(&straight, 4));
        assert_same_bits(mesh, &saved(&resumed, 4), &after);
        let name = "params.blocks.1.moe.router.choice_bias";
        let steps = after[name].iter().zip(&before[name]);
        assert!(steps.clone().any(|(after, before)| after != before), "{mesh}: biases move");
        // Sums of the rate in f32, also in a bf16 run.
        let is_whole = |steps: f32| (steps - steps.round()).abs() < 1e-3;
        assert!(after[name].iter().all(|bias| is_whole(bias / SMALL_RATE)), "{mesh}");
    }
}
