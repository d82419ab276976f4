//! Tests that every barrier and every wait of the kernels is needed: without it, results differ for some thread order.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use meshwright::backend::DType;
use meshwright_conformance::{AttentionCase, AttentionResults, attention_shape};
use meshwright_cuda::{
    ATTENTION_BIAS, AttentionTiles, AttentionVariant, KernelSource, PLAIN_ATTENTION,
};
use meshwright_gpu_sim::not_checked_on_gpu;

use super::changed::Changed;
use crate::support::{device, device_with};

/// Statements that order threads, or copies before threads.
const ORDERS: [&str; 3] = ["__syncthreads();", "__syncwarp();", "cp_async_wait<0>();"];

/// Thread orders to try until one shows the fault.
const SEEDS: u64 = 12;

/// Returns the positions in `text` of the statements in [`ORDERS`].
fn places(text: &str) -> Vec<(usize, &'static str)> {
    ORDERS
        .into_iter()
        .flat_map(|order| text.match_indices(order).map(move |(at, _)| (at, order)))
        .collect()
}

/// Returns true if removing the statement at this position changes results or is reported by the device.
fn shows(
    case: &AttentionCase,
    expected: &AttentionResults,
    name: &str,
    at: usize,
    order: &'static str,
) -> bool {
    (0..SEEDS).any(|seed| {
        let name = name.to_string();
        let change = move |source: &KernelSource| {
            let mut source = source.clone();
            if source.name == name {
                let mut text = source.text.into_owned();
                text.replace_range(at..at + order.len(), ";");
                source.text = Cow::Owned(text);
            }
            source
        };
        let driver = Changed::new(seed, change);
        let bits =
            |results: &AttentionResults| results.concat().into_iter().map(f32::to_bits).collect();
        let run = || -> Vec<u32> { bits(&case.run(&device_with(Arc::new(driver), 0))) };
        catch_unwind(AssertUnwindSafe(run)).map_or(true, |got| got != bits(expected))
    })
}

fn assert_all_are_needed(case: &AttentionCase, sources: &[&KernelSource]) {
    let expected = case.run(&device(0, 0));
    for source in sources {
        // An ineffective change is not detected.
        assert!(!shows(case, &expected, &source.name, source.text.len(), ""));
        let places = places(&source.text);
        assert!(!places.is_empty(), "{} has no barriers", source.name);
        for (at, order) in places {
            let line = source.text[..at].lines().count();
            let found = shows(case, &expected, &source.name, at, order);
            assert!(found, "{} runs as well without `{order}` in line {line}", source.name);
        }
    }
}

#[test]
fn of_tensor_cores() {
    if not_checked_on_gpu() {
        return;
    }
    // Several tiles on both sides.
    let case = AttentionCase::new(attention_shape(1, 300, [2, 1, 16], true), DType::Bf16);
    let tiles =
        [AttentionTiles::forward, AttentionTiles::backward_keys, AttentionTiles::backward_queries];
    let variant = AttentionVariant::default();
    assert_all_are_needed(&case, &tiles.map(|tiles| tiles([16, 16], variant).source()));
}

#[test]
fn of_tensor_cores_with_key_ranges() {
    if not_checked_on_gpu() {
        return;
    }
    let case = AttentionCase::new(attention_shape(1, 300, [2, 1, 16], true), DType::Bf16)
        .with_documents(&[170, 130]);
    let variant = AttentionVariant { ranges: true, ..AttentionVariant::default() };
    let tiles =
        [AttentionTiles::forward, AttentionTiles::backward_keys, AttentionTiles::backward_queries];
    assert_all_are_needed(&case, &tiles.map(|tiles| tiles([16, 16], variant).source()));
}

#[test]
fn of_other_kernels() {
    if not_checked_on_gpu() {
        return;
    }
    let case =
        AttentionCase::new(attention_shape(1, 50, [2, 1, 8], true), DType::F32).with_bias(70, 60);
    assert_all_are_needed(&case, &[&PLAIN_ATTENTION, &ATTENTION_BIAS]);
}
