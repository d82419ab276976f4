//! Gemma 2 and 3, OLMo 2 and GPT-NeoX on every kind of mesh, with every setting on that changes what they compute.

use meshwright::models::{Gemma, GemmaConfig, GptNeox, GptNeoxConfig, Olmo2, Olmo2Config};
use meshwright::nn::RecomputeOverride;
use meshwright::pipeline::StageCut;
use meshwright::rotary::{RopeParameters, RopeScaling};
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::{ConfigKeys, LanguageModel};
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

const DATA: TokenData = TokenData { batch: 8, seq: 16, vocab: 29, masked: true };

#[test]
fn gemma2() {
    let config = gemma("gemma2");
    let biased = GemmaConfig { biases: true, window: Some(3), tied: false, ..config.clone() };
    check::<Gemma>(&[config, biased]);
}

#[test]
fn gemma3() {
    let config = gemma("gemma3_text");
    let global = RopeScaling::Linear { factor: 4.0 };
    let rope = RopeParameters { scaling: global, ..RopeParameters::with_theta(900.0) };
    let local_rope = RopeParameters::with_theta(20.0);
    let slides = vec![true, true, false];
    check::<Gemma>(&[GemmaConfig { rope, local_rope, slides, ..config }]);
}

#[test]
fn olmo2() {
    let config = Olmo2Config {
        hidden: 16,
        ffn: 24,
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        vocab: DATA.vocab,
        padding: Some(5),
        ..Olmo2Config::default()
    };
    check::<Olmo2>(&[Olmo2Config { biases: true, ..config.clone() }, config]);
}

#[test]
fn gpt_neox() {
    let config = GptNeoxConfig {
        hidden: 32,
        ffn: 40,
        layers: 3,
        heads: 4,
        vocab: DATA.vocab,
        ..GptNeoxConfig::default()
    };
    check::<GptNeox>(&[GptNeoxConfig { parallel: false, ..config.clone() }, config]);
}

/// A Gemma of three layers: the first and the last one slide.
fn gemma(model_type: &'static str) -> GemmaConfig {
    GemmaConfig {
        hidden: 16,
        ffn: 24,
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        vocab: DATA.vocab,
        query_scalar: 3.0,
        attention_cap: Some(0.5),
        logit_cap: Some(2.0),
        window: Some(5),
        slides: vec![true, false, true],
        padding: Some(3),
        ..GemmaConfig::new_of(model_type)
    }
}

fn check<M: LanguageModel>(configs: &[M::Config]) {
    let mut report = Report::default();
    for config in configs {
        check_config::<M>(config, &mut report);
    }
    report.print();
}

/// Compares meshes with one rank: losses, norms, all gradients and the values after two steps.
fn check_config<M: LanguageModel>(config: &M::Config, report: &mut Report) {
    let mut sizes = M::sizes(config);
    // Makes attention, norms and gradients nontrivial.
    sizes.init_std = 0.2;
    let setup = |zero: usize, recompute: Option<RecomputeOverride>| {
        let setup = Setup::new(sizes.clone());
        let settings = Settings { zero: ZeroStage::ALL[zero], ..setup.settings };
        let mut setup = Setup { steps: 2, settings, ..setup };
        setup.sizes.recompute = recompute;
        setup
    };
    let trained = |mesh: &str, setup: &Setup| {
        without_noise(train(mesh, setup, |model: &M, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        }))
    };
    let one = trained("1", &setup(0, None));
    let full = Some(RecomputeOverride::Full);
    for (mesh, zero, recompute) in [
        ("tp=2", 0, None),
        ("dp=2", 0, full),
        ("cp=2", 0, None),
        ("fsdp=2", 3, full),
        ("dp=2,tp=2", 1, full),
        ("cp=2,tp=2", 0, full),
    ] {
        let got = trained(mesh, &setup(zero, recompute));
        report_parity(&format!("{mesh}, stage {zero}, {recompute:?}"), &got, &one, report);
    }
    let schedule = ScheduleKind::OneFOneB.generate(2, 1, 2).unwrap();
    for (mesh, counts, recompute) in
        [("pp=2", [1, 2], None), ("pp=2", [2, 1], full), ("pp=2,tp=2", [1, 2], None)]
    {
        let setup = Setup { micro_batches: 2, ..setup(0, recompute) };
        let cut = StageCut::Counts(counts.to_vec());
        let got = without_noise(train_stages::<M>(mesh, &setup, &schedule, &cut, DATA));
        report_parity(&format!("{mesh}, {counts:?}, {recompute:?}"), &got, &one, report);
    }
}

/// Removes values that updates have made from noise: a bias of keys shifts the scores of a query by one number, which a
/// softmax does not see.
fn without_noise(mut outcome: Outcome) -> Outcome {
    let is_noise =
        |path: &str| ["attn.qkv.bias", "attn.k.bias"].iter().any(|end| path.ends_with(end));
    outcome.trained.retain(|path, _| !is_noise(path));
    outcome
}
