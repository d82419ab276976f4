//! Frozen fields: no part of backward, reduction, optimizer or average, on any mesh.

use std::sync::Arc;

use meshwright::backend::Category;
use meshwright::nn::{RecomputeOverride, Sizes, build};
use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::pipeline::StageCut;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::sim::{EventKind, StepLog};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::{Config, LanguageModel, Trainer};
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::TokenData;
use meshwright_tests::models::frozen::{Batch, Frozen, Hidden, Seq, Vocab};
use meshwright_tests::models::{small_sizes, thawed};
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};
use meshwright_tests::step_logs::assert_same_steps;

use super::table::report_parity;

const DATA: TokenData = TokenData { batch: 8, seq: 16, vocab: 29, masked: true };

fn setup(zero: usize, recompute: Option<RecomputeOverride>) -> Setup {
    let mut sizes = small_sizes::<Frozen>(&DATA, 3);
    sizes.recompute = recompute;
    let setup = Setup { steps: 3, ..Setup::new(sizes) };
    Setup { settings: Settings { zero: ZeroStage::ALL[zero], ..setup.settings }, ..setup }
}

fn trained(mesh: &str, setup: &Setup) -> Outcome {
    train(mesh, setup, |model: &Frozen, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

/// Checks that parameters without a gradient keep their bits, and that the others change.
#[track_caller]
fn check_values(what: &str, outcome: &Outcome) {
    let frozen = |name: &str| {
        let base = ["embed", "lower", "head"];
        let fields = [".norm.", ".up.", ".gain"];
        base.iter().any(|field| name.starts_with(field))
            || (name.starts_with("blocks") && fields.iter().any(|field| name.contains(field)))
    };
    for (name, values) in &outcome.trained {
        let is_same = outcome.initial[name] == *values;
        assert_eq!(is_same, frozen(name), "{what}: {name}");
        assert_eq!(!outcome.gradients.contains_key(name), frozen(name), "{what}: {name}");
    }
}

#[test]
fn frozen_fields_on_meshes() {
    let one = trained("1", &setup(0, None));
    check_values("one rank", &one);
    let full = Some(RecomputeOverride::Full);
    let mut report = Report::default();
    for (mesh, zero, recompute) in [
        ("tp=2", 0, None),
        ("tp=4", 0, full),
        ("dp=2", 0, full),
        ("cp=2", 0, None),
        ("fsdp=2", 0, None),
        ("fsdp=2", 1, None),
        ("fsdp=2", 2, full),
        ("fsdp=2", 3, None),
        ("fsdp=2", 3, full),
        ("fsdp=2,tp=2", 3, full),
        ("dp=2,fsdp=2", 3, None),
        ("dp=2,tp=2", 0, None),
    ] {
        let got = trained(mesh, &setup(zero, recompute));
        let label = format!("{mesh}, stage {zero}, {recompute:?}");
        check_values(&label, &got);
        report_parity(&label, &got, &one, &mut report);
    }
    // Nothing is trained in the first stage.
    let frozen_stage = StageCut::Counts(vec![2, 3]);
    for (mesh, zero, kind, cut) in [
        ("pp=2", 0, ScheduleKind::OneFOneB, &StageCut::Auto),
        ("pp=2", 0, ScheduleKind::ZeroBubbleH1, &frozen_stage),
        ("pp=2,fsdp=2", 3, ScheduleKind::OneFOneB, &frozen_stage),
        ("pp=2,tp=2", 0, ScheduleKind::ZeroBubbleH1, &StageCut::Auto),
    ] {
        let schedule = kind.generate(2, 1, 2).unwrap();
        let setup = Setup { micro_batches: 2, ..setup(zero, None) };
        let got = train_stages::<Frozen>(mesh, &setup, &schedule, cut, DATA);
        let label = format!("{mesh}, stage {zero}, {cut:?}");
        check_values(&label, &got);
        report_parity(&label, &got, &one, &mut report);
    }
    report.print();
}

/// Nothing else differs from a model without frozen fields: in the first step, the trained gradients have its bits.
#[test]
fn trained_gradients_are_those_of_a_thawed_model() {
    let setup = Setup { steps: 1, ..setup(0, None) };
    let thawed =
        train("1", &Setup { sizes: small_sizes::<thawed::Frozen>(&DATA, 3), ..setup.clone() }, {
            |model: &thawed::Frozen, rank, turn| {
                let (tokens, targets) = DATA.block(rank, turn);
                model.loss(&tokens, &targets)
            }
        });
    let frozen = trained("1", &setup);
    let mut common = thawed.gradients.clone();
    common.retain(|path, _| frozen.gradients.contains_key(path));
    assert!(common.len() < thawed.gradients.len() && !common.is_empty());
    assert_same_bits("trained gradients", &frozen.gradients, &common);
    assert_eq!(frozen.losses, thawed.losses);
}

fn logs(flags: &str) -> (Vec<StepLog>, Vec<Arc<StepLog>>) {
    let sizes =
        "--layers 6 --hidden 32 --ffn 48 --heads 4 --seq 16 --batch 8 --steps 3 --sample-tokens 0";
    let line = format!("train {sizes} {flags}");
    let config = || Config::parse(line.split(' ')).unwrap();
    let dry = Trainer::<Frozen>::new(config()).unwrap().step_logs().unwrap();
    let real = Trainer::<Frozen>::new(config()).unwrap().record_steps().unwrap();
    (real, dry)
}

/// The plan has what runs, and nothing of a step concerns frozen parameters but their values.
#[test]
fn logs_and_plans_show_no_frozen_gradients() {
    for zero in 0..=3 {
        for more in ["", "--dtype bf16 --recompute full", "--ema 0.9"] {
            let flags = format!("--mesh fsdp=2 --micro-batches 2 --zero {zero} {more}");
            let (real, dry) = logs(flags.trim());
            assert_same_steps(&flags, &real, &dry);
            for log in &real {
                let mut gathered = 0;
                for event in log.events.iter() {
                    let EventKind::Call(call) = event.kind else { continue };
                    let field = &log.sites[call.site as usize].field;
                    assert!(!field.contains("(frozen) (gradient)"), "{flags}: {field}");
                    gathered += usize::from(field.contains("(frozen) (parameters)"));
                }
                assert_eq!(gathered > 0, zero == 3, "{flags}");
                let state = |category| log.live_at_start[category as usize];
                // The average is one number more for each trained parameter, as a master weight is.
                let numbers =
                    2 + u64::from(more.contains("ema")) + u64::from(more.contains("bf16"));
                let gradients = state(Category::Gradients) as f64;
                let found = state(Category::Optimizer) as f64 / gradients;
                // At stage 1 the gradients are whole, and shards differ by an aligned block.
                let expected = numbers as f64 / if zero == 1 { 2.0 } else { 1.0 };
                assert!((found / expected - 1.0).abs() < 0.02, "{flags}: {found} {expected}");
            }
        }
    }
}

/// A step of three is left after the checkpoint of the first two.
#[test]
fn runs_with_frozen_fields_resume_bit_for_bit() {
    for flags in ["--mesh fsdp=2 --zero 3 --dtype bf16 --ema 0.9", "--mesh pp=2 --micro-batches 2"]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let sizes =
            "--layers 3 --hidden 32 --ffn 48 --heads 4 --seq 16 --batch 8 --sample-tokens 0";
        let run = |more: &str| {
            let line = format!("train {sizes} {flags} {more}");
            let config = Config::parse(line.split(' ')).unwrap();
            Trainer::<Frozen>::new(config).unwrap().train().unwrap()
        };
        let whole = run(&format!("--steps 3 --save {} --save-every 2", path("saved")));
        let resumed = run(&format!("--steps 3 --resume {}", path("saved/step-00000002")));
        assert_eq!(resumed.losses[..], whole.losses[2..], "{flags}");
        assert_eq!(resumed.grad_norms[..], whole.grad_norms[2..], "{flags}");
    }
}

#[model]
struct Probe {
    #[frozen]
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

#[model]
struct AllFrozen {
    #[frozen]
    embed: Embedding<Vocab, Hidden>,
    #[frozen]
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl AllFrozen {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.embed.forward(tokens)
    }
}

fn probe_sizes() -> Sizes {
    Sizes::new().with(Hidden, 8).with(Vocab, DATA.vocab)
}

#[test]
fn ties_of_frozen_and_trained_fields_are_refused() {
    let found = meshwright::run_on("1", 0, |rank| {
        Ok(build::<Probe>(rank, &probe_sizes()).map(drop).unwrap_err().to_string())
    });
    let text = found.unwrap().remove(0);
    assert_eq!(
        text,
        "the model cannot be built: `head`: is trained, but tied to `embed.weight`, which is frozen: put `#[frozen]` \
         on both fields, or on neither"
    );
}

#[test]
fn nothing_trained_is_an_error_of_the_optimizer() {
    let found = meshwright::run_on("1", 0, |rank| {
        let built = build::<AllFrozen>(rank, &probe_sizes()).unwrap();
        assert!(built.params().iter().all(|param| param.is_frozen()));
        assert!(built.units.iter().all(|unit| unit.is_frozen()));
        let groups = meshwright::optim::ParamGroups::default();
        let rule = AdamWOptions::default();
        let made = AdamW::with_groups(rank, &built.units, rule, &groups);
        Ok(made.map(drop).unwrap_err().to_string())
    });
    let text = found.unwrap().remove(0);
    assert_eq!(
        text,
        "optimizer adamw: nothing is trained: all parameters are frozen; remove `#[frozen]` from a field"
    );
}
