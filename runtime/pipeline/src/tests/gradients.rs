//! Gradients of stages: the norm, and the sums over the owners of tied parameters.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sum_tied_gradients;
use meshwright_core::tensor::{ParamRef, Rank, ZeroStage};

use super::fixture::{
    TestModel, TinyGpt2, TinyLlama, block_indices, build_tiny, on_ranks, plant_gradients,
    planted_sum,
};

/// Returns the positions along `pp` of the owners whose gradients are summed.
fn tied_ranks(param: &ParamRef) -> &[usize] {
    let owners = param.unit().owners().map_or(&[][..], |owners| owners.ranks());
    if owners.len() > 1 { owners } else { &[] }
}

fn check_gradients<M: TestModel>(mesh: &str, zero: ZeroStage, is_tied: bool) {
    let found = on_ranks(mesh, zero, |rank| {
        let built = build_tiny::<M>(rank, is_tied);
        let reduced = sum_tied_gradients(plant_gradients(rank, &built)).reduce();
        let (mut squares, mut tied) = (0.0, 0);
        for param in built.params() {
            let ranks = tied_ranks(&param).to_vec();
            tied += usize::from(!ranks.is_empty());
            let expected = |index| planted_sum(&param, index, &ranks);
            let of_param: f64 = (0..param.global_len())
                .map(|index| f64::from(expected(index)))
                .map(|value| value * value)
                .sum();
            squares += of_param;
            if param.is_owned() {
                let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
                let block: Vec<u32> = bits(reduced.local_block_of(param.path()).unwrap());
                let indices = block_indices(&param).into_iter();
                let expected: Vec<u32> = bits(indices.map(expected).collect());
                assert_eq!(block, expected, "{mesh} {zero:?}: {}", param.path());
                assert_eq!(reduced.gather(&param).len(), param.global_len());
            }
            let norm = reduced.norm_of(&param);
            let same = (norm - of_param.sqrt()).abs() <= 1e-6 * norm;
            assert!(same, "{mesh} {zero:?}: norm of {}: {norm}", param.path());
        }
        assert_eq!(tied, usize::from(is_tied), "{mesh}");
        (reduced.norm(), squares.sqrt())
    });
    for (norm, expected) in &found {
        assert_eq!(norm.to_bits(), found[0].0.to_bits(), "{mesh} {zero:?}: equal on all ranks");
        assert!((norm - expected).abs() <= 1e-6 * norm, "{mesh} {zero:?}: {norm} for {expected}");
    }
}

#[test]
fn gradients_count_each_parameter_once() {
    for zero in ZeroStage::ALL {
        for mesh in ["pp=2", "pp=2,fsdp=2", "pp=2,tp=2", "pp=2,dp=2"] {
            check_gradients::<TinyLlama>(mesh, zero, false);
        }
    }
    check_gradients::<TinyLlama>("pp=4", ZeroStage::Replicated, false);
}

#[test]
fn tied_gradients_are_summed_over_owners() {
    for zero in ZeroStage::ALL {
        for mesh in ["pp=2", "pp=2,fsdp=2", "pp=2,tp=2", "pp=2,dp=2", "pp=2,fsdp=2,tp=2"] {
            check_gradients::<TinyLlama>(mesh, zero, true);
        }
    }
    check_gradients::<TinyGpt2>("pp=4", ZeroStage::Replicated, true);
    check_gradients::<TinyGpt2>("pp=3,fsdp=2", ZeroStage::Parameters, true);
}

/// Returns the panics of all ranks.
fn panics_of(body: impl Fn(&Rank) + Sync) -> Vec<String> {
    on_ranks("pp=2", ZeroStage::Replicated, |rank| {
        let caught = catch_unwind(AssertUnwindSafe(|| body(rank))).unwrap_err();
        caught.downcast_ref::<String>().unwrap().clone()
    })
}

#[test]
fn tied_gradients_are_summed_once() {
    let missing = panics_of(|rank| {
        let built = build_tiny::<TinyLlama>(rank, true);
        drop(plant_gradients(rank, &built).reduce());
    });
    let expected = "the gradient of `embed`, which is tied across pipeline stages 0, 1 at pp = 0, 1, is not summed";
    assert!(missing.iter().all(|text| text.starts_with(expected)), "{missing:?}");
    let twice = panics_of(|rank| {
        let built = build_tiny::<TinyLlama>(rank, true);
        drop(sum_tied_gradients(sum_tied_gradients(plant_gradients(rank, &built))));
    });
    let expected = "the gradient of `embed` is already summed over its owning stages";
    assert_eq!(twice, [expected; 2]);
}

/// A gradient of zeros for a parameter of another stage would be a wrong number.
#[test]
fn gradients_of_other_stages_are_not_read() {
    let texts = panics_of(|rank| {
        let built = build_tiny::<TinyLlama>(rank, false);
        let reduced = plant_gradients(rank, &built).reduce();
        let other = built.params().into_iter().find(|param| !param.is_owned()).unwrap();
        drop(reduced.gather(&other));
    });
    assert!(texts[1].starts_with("`embed.weight` is owned by pipeline stage 0"), "{texts:?}");
}
