//! The Llama of the examples: dtypes, meshes, ZeRO stages, recomputation, gradient accumulation.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::nn::RecomputeOverride;
use meshwright::rotary::RopeParameters;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::{Gpus, LanguageModel};
use meshwright_cuda::CallKind;
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};
use meshwright_tests::data::TokenData;
use meshwright_tests::models::nested_llama;
use meshwright_tests::run::{Setup, train};

use super::{BF16, F32, Tolerance, check};

pub const DATA: TokenData = TokenData { batch: 4, seq: 11, vocab: 61, masked: true };

#[test]
fn one_rank_in_f32() {
    check_llama::<Llama>([("1", "f32".into(), setup(DType::F32))], DType::F32, F32);
}

#[test]
fn one_rank_in_bf16() {
    check_llama::<Llama>([("1", "bf16".into(), setup(DType::Bf16))], DType::Bf16, BF16);
}

#[test]
fn ranks_that_share_the_device() {
    let meshes = ["tp=2", "dp=2", "dp=2,tp=2"];
    let others = meshes.map(|mesh| (mesh, "replicas".to_owned(), setup(DType::F32)));
    check_llama::<Llama>(others, DType::F32, F32);
}

#[test]
fn every_zero_stage_and_hsdp() {
    let of = |zero, mesh| {
        let setup = setup(DType::F32);
        let settings = Settings { zero, ..setup.settings };
        (mesh, format!("{zero}"), Setup { settings, micro_batches: 2, ..setup })
    };
    let levels = ZeroStage::ALL.map(|zero| of(zero, "fsdp=2"));
    let hsdp = of(ZeroStage::Parameters, "dp=2,fsdp=2");
    check_llama::<Llama>(levels.into_iter().chain([hsdp]), DType::F32, F32);
}

#[test]
fn three_axes_in_bf16_with_sums_in_bf16() {
    let setup = setup(DType::Bf16);
    let settings = Settings { zero: ZeroStage::Parameters, reduce: DType::Bf16, ..setup.settings };
    let others = [("dp=2,fsdp=2,tp=2", "bf16".to_owned(), Setup { settings, ..setup })];
    check_llama::<Llama>(others, DType::Bf16, BF16);
}

#[test]
fn recomputation_and_offloading() {
    let overrides =
        [RecomputeOverride::Full, RecomputeOverride::Sqrt, RecomputeOverride::Attention];
    let others = overrides.map(|recompute| {
        let mut setup = setup(DType::F32);
        setup.sizes.recompute = Some(recompute);
        ("fsdp=2", format!("recompute {recompute}"), setup)
    });
    check_llama::<Llama>(others, DType::F32, F32);
    let setup = setup_of::<nested_llama::Llama>(DType::F32);
    check_llama::<nested_llama::Llama>([("1", "nested, offloaded".into(), setup)], DType::F32, F32);
}

/// Gradient sums of the residual stream, and rotations, are fused into other kernels.
#[test]
fn residual_sums_and_rotations_are_fused() {
    if not_checked_on_gpu() {
        return;
    }
    for recompute in [RecomputeOverride::Off, RecomputeOverride::Full] {
        let device = SimDevice::new(4);
        let machine = Some(Arc::new(Gpus::new(vec![Arc::new(device.driver())], 1)) as Arc<_>);
        let mut setup = Setup { machine, ..setup(DType::F32) };
        setup.sizes.recompute = Some(recompute);
        train("1", &setup, |model: &Llama, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        });
        let positions = DATA.batch * DATA.seq;
        let (queries, keys) = (positions * 4 * 8 * 4, positions * 2 * 8 * 4);
        for entry in device.log() {
            let apart = match entry.kind {
                CallKind::Launch => entry.launch().unwrap().0.starts_with("add_assign"),
                CallKind::Copy => [queries, keys].contains(&entry.bytes),
                _ => false,
            };
            assert!(!apart, "{recompute}: {entry:?}");
        }
    }
}

#[track_caller]
fn check_llama<M: LanguageModel<Config = LlamaConfig>>(
    others: impl IntoIterator<Item = (&'static str, String, Setup)>,
    compute: DType,
    tolerance: Tolerance,
) {
    check(&setup_of::<M>(compute), others, tolerance, |model: &M, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

pub fn setup(compute: DType) -> Setup {
    setup_of::<Llama>(compute)
}

/// Ten steps of an `M` of the size of all tests.
pub fn setup_of<M: LanguageModel<Config = LlamaConfig>>(compute: DType) -> Setup {
    let mut sizes = M::sizes(&LlamaConfig {
        hidden: 32,
        ffn: 48,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        vocab: DATA.vocab,
        norm_eps: 1e-5,
        rope: RopeParameters::default(),
        tied: false,
        max_positions: DATA.seq,
        ..LlamaConfig::default()
    });
    // Attention, norms and gradients are far from trivial values.
    sizes.init_std = 0.2;
    let settings = Settings { compute, ..Settings::new(7) };
    Setup { steps: 2, settings, ..Setup::new(sizes) }
}
