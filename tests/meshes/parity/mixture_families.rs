//! Families with mixtures of experts on every mesh, against one rank.

use meshwright::backend::DType;
use meshwright::models::deepseek::{Deepseek, DeepseekConfig};
use meshwright::models::gpt_oss::{GptOss, GptOssConfig};
use meshwright::models::moe_decoder::{MoeDecoder, MoeDecoderConfig};
use meshwright::nn::Sizes;
use meshwright::pipeline::StageCut;
use meshwright::rotary::{RopeScaling, YarnScaling};
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Init, Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

/// Every data rank has rows of each of two micro-batches.
const DATA: TokenData = TokenData { batch: 8, seq: 12, vocab: 29, masked: true };

// Relative to f32, or to bf16 on one rank, which sums in another order before rounding.
const BF16_LOSS: f64 = 9e-3;
const BF16_GRADIENT: f64 = 1e-1;

const MESHES: [(&str, ZeroStage); 7] = [
    ("tp=2", ZeroStage::Replicated),
    ("ep=2", ZeroStage::Optimizer),
    ("dp=2,ep=2", ZeroStage::Replicated),
    ("ep=2,tp=2", ZeroStage::Gradients),
    ("fsdp=2", ZeroStage::Parameters),
    ("fsdp=2,tp=2", ZeroStage::Parameters),
    ("cp=2", ZeroStage::Replicated),
];

fn trained<M: LanguageModel>(mesh: &str, setup: &Setup) -> Outcome {
    train(mesh, setup, |model: &M, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

/// Compares a model on meshes with one rank, in two micro-batches.
#[track_caller]
fn check<M: LanguageModel>(mut sizes: Sizes) {
    sizes.init_std = 0.2;
    let setup = Setup { steps: 2, micro_batches: 2, ..Setup::new(sizes) };
    let one = trained::<M>("1", &setup);
    let mut report = Report::default();
    for (mesh, zero) in MESHES {
        let setup = Setup { settings: Settings { zero, ..setup.settings }, ..setup.clone() };
        report_parity(mesh, &trained::<M>(mesh, &setup), &one, &mut report);
    }
    let schedule = ScheduleKind::OneFOneB.generate(2, 1, 2).unwrap();
    let got = train_stages::<M>("ep=2,pp=2", &setup, &schedule, &StageCut::Auto, DATA);
    report_parity("ep=2,pp=2", &got, &one, &mut report);
    report.print();
}

fn deepseek() -> DeepseekConfig {
    let mut config = DeepseekConfig {
        hidden: 16,
        ffn: 24,
        expert_ffn: 8,
        shared_experts: 2,
        layers: 3,
        dense_layers: 1,
        heads: 4,
        query_latent: Some(10),
        latent: 6,
        plain_dim: 4,
        rotated_dim: 2,
        value_dim: 3,
        experts: 8,
        top_k: 2,
        group_count: 4,
        best_groups: 2,
        routed_scale: 2.5,
        vocab: DATA.vocab,
        max_positions: DATA.seq,
        ..DeepseekConfig::default()
    };
    config.router.bias_rate = 0.01;
    let scaling =
        YarnScaling { mscale: Some(1.0), mscale_all_dim: Some(0.5), ..YarnScaling::new(4.0, 4) };
    config.rope.scaling = RopeScaling::Yarn(scaling);
    config
}

#[test]
fn deepseek_on_meshes() {
    let sizes = Deepseek::sizes(&deepseek());
    check::<Deepseek>(sizes.with_init("router.choice_bias", Init::Normal(0.1)));
}

#[test]
fn deepseek_without_latent_queries() {
    let config = DeepseekConfig { query_latent: None, interleaved: false, ..deepseek() };
    let setup = Setup { steps: 1, ..Setup::new(Deepseek::sizes(&config)) };
    let mut report = Report::default();
    let one = trained::<Deepseek>("1", &setup);
    report_parity("tp=2", &trained::<Deepseek>("tp=2", &setup), &one, &mut report);
    report.print();
}

#[test]
fn qwen3_moe_on_meshes() {
    let mut config = MoeDecoderConfig {
        hidden: 16,
        ffn: 8,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        experts: 8,
        top_k: 3,
        normalize: true,
        vocab: DATA.vocab,
        ..MoeDecoderConfig::default()
    };
    config.router.loss = 0.01;
    check::<MoeDecoder>(MoeDecoder::sizes(&config));
}

fn gpt_oss() -> GptOssConfig {
    GptOssConfig {
        hidden: 16,
        ffn: 8,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        window: Some(5),
        slides: vec![true, false],
        experts: 8,
        top_k: 3,
        vocab: DATA.vocab,
        ..GptOssConfig::default()
    }
}

#[test]
fn gpt_oss_on_meshes() {
    check::<GptOss>(GptOss::sizes(&gpt_oss()).with_init("bias", Init::Normal(0.2)));
}

/// Logits of routers are f32 in bf16, too, and so is the sum with their bias, or with that of the choice. A token
/// chooses all experts, so that rounding does not change its choices.
#[test]
fn mixtures_in_bf16_stay_near_f32_and_one_rank() {
    let all = GptOssConfig { experts: 4, top_k: 4, ..gpt_oss() };
    check_bf16::<GptOss>(GptOss::sizes(&all).with_init("bias", Init::Normal(0.2)));
    let all = DeepseekConfig { experts: 4, top_k: 4, group_count: 1, best_groups: 1, ..deepseek() };
    let sizes = Deepseek::sizes(&all);
    check_bf16::<Deepseek>(sizes.with_init("router.choice_bias", Init::Normal(0.1)));
}

/// Compares losses and gradients in bf16 with those in f32, and on meshes with one rank.
#[track_caller]
fn check_bf16<M: LanguageModel>(mut sizes: Sizes) {
    sizes.init_std = 0.2;
    let whole = Setup { steps: 4, micro_batches: 2, ..Setup::new(sizes) };
    let settings = Settings { compute: DType::Bf16, ..whole.settings };
    let setup = Setup { settings, ..whole.clone() };
    let (f32, one) = (trained::<M>("1", &whole), trained::<M>("1", &setup));
    let mut report = Report::default();
    report.scalars("loss in bf16", "1", &one.losses, &f32.losses, BF16_LOSS);
    report.tensors("gradient in bf16", "1", &one.gradients, &f32.gradients, BF16_GRADIENT);
    for (index, (mesh, zero)) in MESHES.into_iter().enumerate() {
        let reduce = [DType::F32, DType::Bf16][index % 2];
        let setup = Setup { settings: Settings { zero, reduce, ..settings }, ..setup.clone() };
        let got = trained::<M>(mesh, &setup);
        report.scalars("loss", mesh, &got.losses, &one.losses, BF16_LOSS);
        report.tensors("gradient", mesh, &got.gradients, &one.gradients, BF16_GRADIENT);
    }
    report.print();
}
