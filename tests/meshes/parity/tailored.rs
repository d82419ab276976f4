//! Settings of layers by field and by layer, and adapters.

use meshwright::nn::{LoraOptions, RecomputeOverride, Sizes, build};
use meshwright::pipeline::StageCut;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::small_sizes;
use meshwright_tests::models::tailored::Tailored;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

const DATA: TokenData = TokenData { batch: 8, seq: 16, vocab: 29, masked: true };

fn sizes(lora: bool) -> Sizes {
    let mut sizes = small_sizes::<Tailored>(&DATA, 2);
    sizes.lora = lora.then(Tailored::lora);
    sizes
}

fn setup(lora: bool, zero: usize, recompute: Option<RecomputeOverride>) -> Setup {
    let mut sizes = sizes(lora);
    sizes.recompute = recompute;
    let setup = Setup::new(sizes);
    let settings = Settings { zero: ZeroStage::ALL[zero], ..setup.settings };
    Setup { steps: 3, settings, ..setup }
}

fn trained(mesh: &str, setup: &Setup) -> Outcome {
    train(mesh, setup, |model: &Tailored, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

/// Compares meshes with one rank: losses, norms, all gradients and the values after three steps.
fn check(lora: bool) {
    let one = trained("1", &setup(lora, 0, None));
    if lora {
        for (path, values) in &one.trained {
            let trains = path.contains("lora_") || path.contains("q_norm");
            assert_eq!(one.initial[path] != *values, trains, "{path}");
            assert_eq!(one.gradients.contains_key(path), trains, "{path}");
        }
    }
    let full = Some(RecomputeOverride::Full);
    let mut report = Report::default();
    for (mesh, zero, recompute) in [
        ("tp=2", 0, None),
        ("tp=4", 0, full),
        ("cp=2,tp=2", 0, None),
        ("dp=2,tp=2", 0, None),
        ("fsdp=2", 0, full),
        ("fsdp=2", 1, None),
        ("fsdp=2", 2, None),
        ("fsdp=2,tp=2", 3, full),
    ] {
        let got = trained(mesh, &setup(lora, zero, recompute));
        report_parity(&format!("{mesh}, stage {zero}, {recompute:?}"), &got, &one, &mut report);
    }
    let schedule = ScheduleKind::OneFOneB.generate(2, 1, 2).unwrap();
    let setup = Setup { micro_batches: 2, ..setup(lora, 0, None) };
    let got = train_stages::<Tailored>("pp=2,tp=2", &setup, &schedule, &StageCut::Auto, DATA);
    report_parity("pp=2,tp=2", &got, &one, &mut report);
    report.print();
}

#[test]
fn settings_by_field_on_meshes() {
    check(false);
}

#[test]
fn adapters_on_meshes() {
    check(true);
}

/// Before the first step, a model with adapters computes what it computes without them.
#[test]
fn adapters_begin_as_nothing() {
    let losses = [false, true].map(|lora| {
        let setup = Setup { steps: 1, ..setup(lora, 0, None) };
        trained("1", &setup).losses
    });
    assert_eq!(losses[0], losses[1]);
}

fn problems(lora: LoraOptions) -> Vec<String> {
    let mut sizes = sizes(false);
    sizes.lora = Some(lora);
    let found = meshwright::run_on("1", 0, |rank| {
        Ok(build::<Tailored>(rank, &sizes).map(drop).unwrap_err().problems)
    });
    found.unwrap().remove(0)
}

#[test]
fn wrong_adapters_are_problems_of_the_model() {
    let targets = |names: &[&str]| {
        let targets = names.iter().map(|name| (*name).to_owned()).collect();
        LoraOptions { targets, train: Vec::new(), ..Tailored::lora() }
    };
    let fields = "blocks.attn.k, blocks.attn.o, blocks.attn.q, blocks.attn.v, blocks.down, blocks.mix, \
                  blocks.up";
    assert_eq!(
        problems(targets(&["q_proj", "attn.q", "head"])),
        [
            format!(
                "an adapter of `head` applies to nothing: its field is not a `Linear` or an `Affine`; linear fields \
                 are {fields}"
            ),
            format!(
                "an adapter of `q_proj` applies to nothing: the model has no such field; linear fields are {fields}"
            ),
        ]
    );
    let train = vec!["nrom".to_owned()];
    assert_eq!(
        problems(LoraOptions { train, ..targets(&["q"]) }),
        ["`nrom`, which is to be trained beside adapters, is no field of the model"]
    );
    assert_eq!(
        problems(LoraOptions { rank: 0, ..targets(&["q"]) }),
        ["adapters of rank 0 have no parameters: their rank is at least 1"]
    );
    assert_eq!(
        problems(targets(&[])),
        [format!("the adapters have no targets: name fields; linear fields are {fields}")]
    );
    assert_eq!(
        problems(LoraOptions { rank: 49, alpha: f32::NAN, ..targets(&["up"]) }),
        [
            "`blocks.*.up`: an adapter of rank 49 is wider than the layer, which reads 32 elements and writes 48: \
             choose a rank of at most 32",
            "`blocks.*.up`: the alpha of its adapter is NaN, and must be a finite number other than 0",
        ]
    );
}
