//! Attention against the textbook in f64.

pub(super) mod case;
pub(super) mod families;
mod parts;
mod reference;
mod rows;

use half::bf16;

use super::{CpuBackend, assert_close, assert_same_on_any_threads, on_every_backend};
use crate::scratch::kept_elements;
use case::{Case, GAP, Gradients};
use meshwright_backend::{AttentionShape, Backend, Band, SequenceLayout};
use reference::Expected;

fn shape(
    batch: usize,
    seq: usize,
    [heads, kv_heads, head_dim]: [usize; 3],
    causal: bool,
) -> AttentionShape {
    let scale = 1.3 / (head_dim as f32).sqrt();
    let band = if causal { Band::CAUSAL } else { Band::ALL };
    AttentionShape { scale, ..AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], band) }
}

fn triples(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |x| (0..b).flat_map(move |y| (0..c).map(move |z| (x, y, z))))
}

/// Results, in order.
const NAMES: [&str; 7] = ["out", "lse", "dq", "dk", "dv", "dbias", "dsinks"];

/// Tolerance, relative to the largest element of a result. On a CPU with AVX2 the largest errors are 6e-7 of the
/// output, 2e-7 of the log-sum-exp, 8e-7 of the gradients of queries and keys, 7e-7 of that of values, 6e-7 of that of
/// biases and 3e-7 of that of sinks.
const TOLERANCE: f64 = 1e-6;

/// Asserts that results are near, and that elements between samples are unchanged.
#[track_caller]
fn assert_results(what: &str, got: &[Vec<f32>; 7], expected: &Expected, tolerance: f64) {
    let Expected { results, dk_order, dbias_order } = expected;
    for ((name, got), expected) in NAMES.iter().zip(got).zip(results) {
        let what = format!("{name} of {what}");
        assert_eq!(got.len(), expected.len(), "{what}: length");
        let mut numbers = (Vec::new(), Vec::new());
        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
            if *expected == f64::from(GAP) || *expected == f64::NEG_INFINITY {
                assert_eq!(f64::from(*got), *expected, "{what}[{i}]");
            } else {
                numbers.0.push(*got);
                numbers.1.push(*expected);
            }
        }
        // Gradients may cancel: over the only key of a query, or over all pairs, which may share one bias.
        let order = match *name {
            "dbias" => dbias_order.max(1.0) as f32,
            "dk" => dk_order.max(1.0) as f32,
            _ => 1.0,
        };
        numbers.0.push(order);
        numbers.1.push(f64::from(order));
        assert_close(&what, &numbers.0, &numbers.1, tolerance);
    }
}

#[test]
fn forward_and_backward_follow_the_formula() {
    for causal in [true, false] {
        for s in [
            shape(2, 7, [2, 1, 8], causal),
            shape(1, 1, [1, 1, 2], causal),
            shape(1, 64, [2, 2, 64], causal),
            shape(2, 65, [4, 2, 18], causal),
            shape(1, 129, [3, 3, 34], causal),
            shape(1, 515, [2, 1, 16], causal),
            shape(1, 640, [1, 1, 128], causal),
        ] {
            let case = Case::new(s);
            let expected = case.reference();
            on_every_backend(|cpu| {
                for ((name, got), expected) in
                    NAMES.iter().zip(case.run(cpu)).zip(&expected.results)
                {
                    assert_close(&format!("{name} of {s:?}"), &got, expected, TOLERANCE);
                }
            });
        }
    }
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let case = Case::new(shape(2, 100, [4, 2, 16], true));
    assert_same_on_any_threads("attention", |cpu| case.run(cpu).concat());
}

/// Queries are partitioned too if there are fewer heads than threads.
#[test]
fn one_head_is_the_same_on_any_number_of_threads() {
    let case = Case::new(shape(1, 1100, [2, 1, 8], true));
    assert_same_on_any_threads("attention", |cpu| case.run(cpu).concat());
}

/// The backward is partitioned by blocks of keys if there are fewer key/value heads than threads: every dtype, mask and
/// score function, and several query heads of one key/value head.
#[test]
fn key_blocks_are_independent_of_threads() {
    let causal = shape(1, 1300, [3, 1, 16], true);
    let window = Band { before: Some(700), ..Band::CAUSAL };
    let ahead = Band { offset: 130, before: Some(600), after: Some(50) };
    let documents = |_, query| [query as u32 / 300 * 300, query as u32 / 300 * 300 + 300];
    let odd = AttentionShape { value_dim: 34, ..shape(2, 705, [2, 1, 18], true) };
    let cases = [
        Case::new(causal),
        Case::new(AttentionShape { band: window, ..causal }),
        Case::new(AttentionShape { band: ahead, soft_cap: Some(2.0), ..causal }),
        Case::new(AttentionShape { keys: SequenceLayout { len: 1500, pitch: 1600 }, ..causal })
            .with_ranges(documents)
            .with_sinks(),
        Case::new(odd).with_sinks(),
        Case::new(odd).with_bias(40, 30),
    ];
    for case in cases {
        assert_same_on_any_threads("f32", |cpu| case.run(cpu).concat());
        assert_same_on_any_threads("bf16", |cpu| {
            let (out, lse) = case.forward::<bf16, bf16>(cpu);
            let mut gradients = case.initial::<f32>();
            case.backward::<bf16, bf16, f32>(cpu, (&out, &lse), &mut gradients);
            let Gradients { dq, dk, dv, dbias, dsinks } = gradients;
            [dq, dk, dv, dbias, dsinks].concat()
        });
    }
}

/// The backward of a window holds only the queries and keys near it.
#[test]
fn windows_take_little_scratch() {
    let kept = |band: Band| {
        let case = Case::new(AttentionShape { band, ..shape(1, 16384, [2, 1, 32], true) });
        let run = || {
            case.run(&CpuBackend::new(1).expect("one thread starts nothing"));
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
fn a_nan_reaches_every_row_that_sees_it_and_no_other() {
    let mut case = Case::new(shape(1, 200, [1, 1, 8], true));
    case.k[70 * 8] = f32::NAN;
    on_every_backend(|cpu| {
        let [out, lse, ..] = case.run(cpu);
        for (i, row) in out.chunks_exact(8).enumerate() {
            assert_eq!(row[0].is_nan(), i >= 70, "row {i}");
            assert_eq!(lse[i].is_nan(), i >= 70, "row {i}");
        }
    });
}

#[test]
fn operations_are_counted_as_executed() {
    let count = |s: AttentionShape| {
        let cpu = CpuBackend::new(1).expect("one thread starts nothing");
        Case::new(s).run(&cpu);
        cpu.flops()
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
    let count = |case: Case| {
        let cpu = CpuBackend::new(1).expect("one thread starts nothing");
        case.run(&cpu);
        cpu.flops() as f64
    };
    let window = Band { before: Some(255), ..Band::CAUSAL };
    let windowed = count(Case::new(AttentionShape { band: window, ..s }));
    let documents = |_, query| [query as u32 / 256 * 256, query as u32 / 256 * 256 + 256];
    let documents = count(Case::new(s).with_ranges(documents));
    // Pairs that queries see, and those that tiles add.
    let pairs = 4096.0 * 256.0;
    assert!(windowed < 14.0 * 8.0 * pairs * 1.3, "{}", windowed / (14.0 * 8.0 * pairs));
    assert!(documents < 14.0 * 8.0 * pairs * 0.7, "{}", documents / (14.0 * 8.0 * pairs));
}
