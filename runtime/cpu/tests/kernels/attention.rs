//! Attention of this backend: scratch, counted operations, and refusals.

use std::sync::Arc;

use meshwright_backend::{AttentionShape, Band, DType};
use meshwright_conformance::{AttentionCase, Target, attention_shape as shape};
use meshwright_cpu::__internal::kept_elements;
use meshwright_cpu::CpuBackend;

use crate::on_every_target;

fn one_thread() -> Target {
    Target::new(Arc::new(CpuBackend::new(1).expect("one thread starts nothing")))
}

fn f32_case(s: AttentionShape) -> AttentionCase {
    AttentionCase::new(s, DType::F32)
}

/// The backward of a window holds only the queries and keys near it.
#[test]
fn windows_take_little_scratch() {
    let kept = |band: Band| {
        let case = f32_case(AttentionShape { band, ..shape(1, 16384, [2, 1, 32], true) });
        let run = || {
            case.run(&one_thread());
            kept_elements()
        };
        std::thread::scope(|scope| scope.spawn(run).join().expect("nothing panics"))
    };
    let window = Band { before: Some(499), ..Band::CAUSAL };
    let windowed = kept(window);
    // Keys, values and gradients of a section, the gradients of the queries of both heads that see it, the queries of
    // one head and the gradients of their outputs as left and as right operands, and two tiles.
    let expected = 5 * 4096 * 32 + (2 + 4) * (4096 + 512) * 32 + 2 * 512 * 64;
    assert!(windowed < expected + expected / 4, "{windowed} instead of {expected}");
    assert!(kept(Band::CAUSAL) > windowed, "the test would see whole sequences");
}

#[test]
fn operations_are_counted_as_executed() {
    let count = |s: AttentionShape| {
        let cpu = one_thread();
        f32_case(s).run(&cpu);
        cpu.backend().flops()
    };
    let s = shape(1, 128, [1, 1, 8], false);
    assert_eq!(count(s), (4 + 10) * 128 * 128 * 8);
    let wide = AttentionShape { value_dim: 32, ..s };
    // Two products along values in each direction, two and three along keys.
    assert_eq!(count(wide), 128 * 128 * (2 * (8 + 32) + 6 * 8 + 4 * 32));
}

/// Tiles outside of a window cost nothing.
#[test]
fn hidden_tiles_are_skipped() {
    let s = shape(1, 4096, [1, 1, 8], true);
    let count = |case: AttentionCase| {
        let cpu = one_thread();
        case.run(&cpu);
        cpu.backend().flops() as f64
    };
    let window = Band { before: Some(255), ..Band::CAUSAL };
    let windowed = count(f32_case(AttentionShape { band: window, ..s }));
    let documents = |_, query| [query as u32 / 256 * 256, query as u32 / 256 * 256 + 256];
    let documents = count(f32_case(s).with_ranges(documents));
    // Pairs that queries see, and those that tiles add.
    let pairs = 4096.0 * 256.0;
    assert!(windowed < 14.0 * 8.0 * pairs * 1.3, "{}", windowed / (14.0 * 8.0 * pairs));
    assert!(documents < 14.0 * 8.0 * pairs * 0.7, "{}", documents / (14.0 * 8.0 * pairs));
}

/// A window is the same as a band, and as a range of keys for each query.
#[test]
fn windows_are_bands_or_ranges() {
    for (len, before) in [(200, 31), (300, 0), (700, 150), (1300, 512)] {
        let causal = shape(2, len, [2, 1, 6], true);
        let window = Band { before: Some(before), ..Band::CAUSAL };
        let band = f32_case(AttentionShape { band: window, ..causal });
        let range =
            |query: usize| [query.saturating_sub(before) as u32, (query + 1).min(len) as u32];
        let everything = AttentionShape { band: Band::ALL, ..causal };
        let ranges = f32_case(everything).with_ranges(|_, query| range(query));
        let both = f32_case(causal).with_ranges(|_, query| [range(query)[0], len as u32]);
        on_every_target(|target| {
            let expected = band.run(target);
            assert!(expected == ranges.run(target), "{len} keys, {before} before");
            assert!(expected == both.run(target), "{len} keys, {before} before");
        });
    }
}

/// Ranges that would skip tiles that queries see are refused.
#[test]
fn key_ranges_must_not_decrease() {
    let refused = |range: fn(usize) -> [u32; 2]| {
        let case = f32_case(shape(1, 10, [1, 1, 2], false)).with_ranges(|_, query| range(query));
        let run = || {
            case.run(&one_thread());
        };
        let error = std::panic::catch_unwind(run).expect_err("a refusal");
        error.downcast_ref::<String>().expect("a message").clone()
    };
    assert!(refused(|query| [10 - query as u32, 10]).contains("never decrease"));
    assert!(refused(|query| [0, 10 - query as u32]).contains("never decrease"));
    assert!(refused(|_| [0, 11]).contains("end at the last key"));
}
