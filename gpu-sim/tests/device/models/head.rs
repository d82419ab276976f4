//! The fused head on a device, in one and in several chunks of tokens.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::models::llama::Llama;
use meshwright::tensor::Settings;
use meshwright::train::{Gpus, LanguageModel};
use meshwright_cuda::Driver;
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};
use meshwright_tests::data::TokenData;
use meshwright_tests::run::{Setup, train};

use super::{BF16, F32, check, llama};

/// 208 tokens; at least 64 form a chunk.
const DATA: TokenData = TokenData { batch: 8, seq: 26, vocab: 61, masked: true };

fn setup(compute: DType, logits_limit: Option<usize>) -> Setup {
    let setup = llama::setup(compute);
    Setup { settings: Settings { logits_limit, ..setup.settings }, ..setup }
}

#[test]
fn chunks_do_not_change_the_model() {
    for (compute, tolerance) in [(DType::F32, F32), (DType::Bf16, BF16)] {
        let others = ["1", "tp=2"].into_iter().flat_map(|mesh| {
            [None, Some(1)].map(|limit| {
                let setup = Setup { micro_batches: 2, ..setup(compute, limit) };
                (mesh, format!("{compute}, limit {limit:?}"), setup)
            })
        });
        check(&setup(compute, None), others, tolerance, |model: &Llama, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        });
    }
}

/// Returns the tokens of each logits matmul, and whether each weight-gradient matmul accumulates, in a step of two
/// micro-batches.
#[test]
fn one_chunk_writes_the_gradient_where_it_belongs() {
    if not_checked_on_gpu() {
        return;
    }
    const VOCAB: usize = 61;
    const HIDDEN: usize = 32;
    let products = |limit: Option<usize>| {
        let device = SimDevice::new(3);
        let driver = Arc::new(device.driver()) as Arc<dyn Driver>;
        let machine = Some(Arc::new(Gpus::new(vec![driver], 1)) as Arc<_>);
        let setup = Setup { steps: 1, micro_batches: 2, machine, ..setup(DType::Bf16, limit) };
        train("1", &setup, |model: &Llama, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        });
        let shapes = device.log().into_iter().filter_map(|entry| entry.shape);
        let products = shapes.map(|shape| (shape.gemm, shape.result));
        let (logits, weight): (Vec<_>, Vec<_>) = products
            .filter(|(gemm, _)| [gemm.m, gemm.n].contains(&VOCAB))
            .partition(|(gemm, _)| gemm.n == VOCAB);
        assert!(logits.iter().all(|(gemm, result)| gemm.k == HIDDEN && *result == DType::Bf16));
        assert!(weight.iter().all(|(gemm, result)| gemm.n == HIDDEN && *result == DType::F32));
        let tokens: Vec<usize> = logits.iter().map(|(gemm, _)| gemm.m).collect();
        let adds: Vec<bool> = weight.iter().map(|(gemm, _)| gemm.accumulate).collect();
        (tokens, adds)
    };
    // The second micro-batch accumulates.
    assert_eq!(products(None), (vec![104; 2], vec![false, true]));
    // Into a temporary buffer, which is added to the gradient.
    assert_eq!(products(Some(1)), (vec![52; 4], vec![false, true, false, true]));
}
