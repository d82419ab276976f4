//! The GPT-2 of the examples, whose matmuls have epilogues.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::models::gpt2::{Batch, Gpt2, Seq};
use meshwright::nn::RecomputeOverride;
use meshwright::tensor::{Loss, Rank, Settings, ZeroStage};
use meshwright::train::{Gpus, LanguageModel};
use meshwright_cuda::{Driver, MatMulEpilogue};
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};
use meshwright_tests::compare::Report;
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::models::small_gpt2;
use meshwright_tests::run::{Setup, train, without_noise};

use super::{F32, Tolerance, check, compare};

const DATA: TokenData = TokenData { batch: 4, seq: 7, vocab: 61, masked: true };
const LAYERS: usize = 2;
const STEPS: u64 = 2;

/// Biases start at zero, and after two steps of AdamW are little more than signs of gradients; some gradients are as
/// small as rounding errors.
const BF16: Tolerance = Tolerance { trained: 0.5, ..super::BF16 };

fn setup(compute: DType) -> Setup {
    let settings = Settings { compute, ..Settings::new(7) };
    Setup { steps: STEPS, settings, ..Setup::new(small_gpt2::<Gpt2>(&DATA, LAYERS)) }
}

fn loss(model: &Gpt2, rank: &Rank, turn: Turn) -> Loss<(Batch, Seq)> {
    let (tokens, targets) = DATA.block(rank, turn);
    model.loss(&tokens, &targets)
}

#[test]
fn meshes_and_zero_stages() {
    let of = |zero| {
        let setup = setup(DType::F32);
        Setup { settings: Settings { zero, ..setup.settings }, micro_batches: 2, ..setup }
    };
    let others = [
        ("tp=2", "replicas".to_owned(), of(ZeroStage::Replicated)),
        ("fsdp=2", "shards".to_owned(), of(ZeroStage::Parameters)),
        ("fsdp=2,tp=2", "shards".to_owned(), of(ZeroStage::Gradients)),
    ];
    check(&setup(DType::F32), others, F32, loss);
}

#[test]
fn one_rank_in_bf16() {
    check(&setup(DType::Bf16), [("1", "bf16".into(), setup(DType::Bf16))], BF16, loss);
}

/// Matmuls per layer and step by epilogue, and passes that compute the gradients of GELU and of the bias before it.
type Epilogues = BTreeMap<&'static str, usize>;

/// Trains on a device of its own, compares results, and counts epilogues.
fn epilogues(mesh: &str, setup: Setup, tolerance: Tolerance) -> Epilogues {
    let device = SimDevice::new(4);
    let ranks = if mesh == "1" { 1 } else { 2 };
    let drivers = (0..ranks).map(|_| Arc::new(device.driver()) as Arc<dyn Driver>).collect();
    let machine = Some(Arc::new(Gpus::new(drivers, 1)) as Arc<_>);
    let expected = without_noise(train("1", &setup, loss));
    let got = without_noise(train(mesh, &Setup { machine, ..setup }, loss));
    compare(&mut Report::default(), mesh, &got, &expected, tolerance);
    let mut counts = Epilogues::new();
    for entry in device.log() {
        let name = match (entry.shape, entry.launch()) {
            (Some(shape), _) => match shape.epilogue {
                MatMulEpilogue::Plain => continue,
                MatMulEpilogue::Bias => "bias",
                MatMulEpilogue::BiasGelu { aux: false } => "gelu",
                MatMulEpilogue::BiasGelu { aux: true } => "gelu, kept",
            },
            // The gradients of both leaves: of each element of the sum, and of the row.
            (_, Some((kernel, _))) if kernel.contains("gelu_tanh_er_") => "gradients",
            (_, Some((kernel, _))) if kernel.contains("map_backward_x0_gelu") => {
                panic!("{kernel}: a pass without the bias")
            }
            _ => continue,
        };
        *counts.entry(name).or_default() += 1;
    }
    let each = LAYERS * STEPS as usize * ranks;
    for count in counts.values_mut() {
        assert!(count.is_multiple_of(each), "{mesh}: {count} of {each}");
        *count /= each;
    }
    counts
}

#[test]
fn biases_and_gelu_are_matmul_epilogues() {
    if not_checked_on_gpu() {
        return;
    }
    for compute in [DType::F32, DType::Bf16] {
        let tolerance = if compute == DType::F32 { F32 } else { BF16 };
        // Five projections and the first half of the MLP, whose pre-activation is saved for recomputation.
        let expected = Epilogues::from([("bias", 5), ("gelu, kept", 1), ("gradients", 1)]);
        assert_eq!(epilogues("1", setup(compute), tolerance), expected, "{compute}");
    }
    // Two biases are added after a reduction over ranks.
    let expected = Epilogues::from([("bias", 3), ("gelu, kept", 1), ("gradients", 1)]);
    assert_eq!(epilogues("tp=2", setup(DType::F32), F32), expected);
}

#[test]
fn recomputed_pre_activations_are_not_saved() {
    if not_checked_on_gpu() {
        return;
    }
    let with = |recompute| {
        let mut setup = setup(DType::F32);
        setup.sizes.recompute = Some(recompute);
        epilogues("1", setup, F32)
    };
    let expected = Epilogues::from([("bias", 5), ("gelu, kept", 1), ("gradients", 1)]);
    assert_eq!(with(RecomputeOverride::Off), expected);
    let expected =
        Epilogues::from([("bias", 10), ("gelu", 1), ("gelu, kept", 1), ("gradients", 1)]);
    assert_eq!(with(RecomputeOverride::Full), expected);
}
