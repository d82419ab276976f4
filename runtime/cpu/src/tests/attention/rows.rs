//! Special rows and equal masks.

use half::bf16;

use super::super::{assert_same_on_any_threads, on_every_backend};
use super::case::{Case, Gradients};
use super::families::{Random, sizes};
use super::{TOLERANCE, assert_results, shape};
use meshwright_backend::{AttentionShape, Band, SequenceLayout};

/// A window is the same as a band, and as a range of keys for each query.
#[test]
fn windows_are_bands_or_ranges() {
    for (len, before) in [(200, 31), (300, 0), (700, 150), (1300, 512)] {
        let causal = shape(2, len, [2, 1, 6], true);
        let window = Band { before: Some(before), ..Band::CAUSAL };
        let band = Case::new(AttentionShape { band: window, ..causal });
        let range =
            |query: usize| [query.saturating_sub(before) as u32, (query + 1).min(len) as u32];
        let everything = AttentionShape { band: Band::ALL, ..causal };
        let ranges = Case::new(everything).with_ranges(|_, query| range(query));
        let both = Case::new(causal).with_ranges(|_, query| [range(query)[0], len as u32]);
        on_every_backend(|cpu| {
            let expected = band.run(cpu);
            assert!(expected == ranges.run(cpu), "{len} keys, {before} before");
            assert!(expected == both.run(cpu), "{len} keys, {before} before");
        });
    }
}

/// No query of the first half of a sample sees a key; a sink sees to it that log-sum-exps are finite.
#[test]
fn rows_without_keys() {
    let s = AttentionShape {
        band: Band { offset: -50, before: Some(20), after: Some(0) },
        ..shape(2, 100, [2, 2, 8], true)
    };
    for case in [Case::new(s), Case::new(s).with_sinks()] {
        on_every_backend(|cpu| {
            let [out, lse, dq, dk, dv, ..] = case.run(cpu);
            for (i, row) in out.chunks_exact(16).enumerate() {
                let sees = i % 100 >= 50;
                assert_eq!(row.iter().any(|x| *x != 0.0), sees, "row {i} of the output");
                // The only key of a row has weight one, whatever the query.
                if i % 100 != 50 {
                    let dq = &dq[i * 16..][..16];
                    assert_eq!(dq.iter().any(|x| *x != 0.0), sees, "row {i} of dq");
                }
            }
            for (i, lse) in lse.iter().enumerate() {
                let empty = case.sinks.as_ref().map_or(f32::NEG_INFINITY, |s| s[i / 100 % 2]);
                assert!(i % 100 >= 50 || *lse == empty, "log-sum-exp {i}: {lse}");
            }
            assert!(dk.iter().chain(&dv).all(|x| x.is_finite()));
        });
    }
}

/// Ranges that end before they begin, next to others far from there.
#[test]
fn ranges_that_end_before_they_begin() {
    for empty in [20, 32, 100, 170] {
        let s = shape(2, 700, [2, 1, 4], false);
        let s = AttentionShape { queries: SequenceLayout::dense(170), ..s };
        let ends = |query: usize| if query < empty { 37 } else { 690 };
        let case = Case::new(s).with_ranges(|_, query| [600, ends(query)]);
        let expected = case.reference();
        on_every_backend(|cpu| {
            assert_results(&format!("{empty} empty"), &case.run(cpu), &expected, TOLERANCE);
        });
    }
}

/// Neither keys nor values, nor queries, nor samples.
#[test]
fn empty_operands() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut s = sizes(&mut random);
        match seed % 3 {
            0 => s.keys.len = 0,
            1 => s.queries.len = 0,
            _ => s.batch = 0,
        }
        for accumulate in [false, true] {
            let mut case = Case::new(s).with_bias(3, 1).with_sinks();
            case.accumulate = accumulate;
            let expected = case.reference();
            on_every_backend(|cpu| {
                assert_results(&format!("{s:?}"), &case.run(cpu), &expected, TOLERANCE);
            });
        }
    }
}

/// A NaN in a key and in its value reaches no query whose tiles do not contain the key, by bands and by ranges.
#[test]
fn a_nan_stays_in_its_document() {
    let documents = |_, query: usize| {
        let start = query as u32 / 64 * 64;
        [start, start + 64]
    };
    let mut case = Case::new(shape(1, 256, [1, 1, 8], true)).with_ranges(documents);
    case.k[100 * 8] = f32::NAN;
    case.v[100 * 8] = f32::NAN;
    on_every_backend(|cpu| {
        let [out, lse, dq, dk, dv, ..] = case.run(cpu);
        let names = ["out", "dq", "dk", "dv"];
        for (name, x) in names.iter().zip([out, dq, dk, dv]) {
            for (i, row) in x.chunks_exact(8).enumerate() {
                let is_nan = row.iter().any(|x| x.is_nan());
                assert!(!is_nan || (64..128).contains(&i), "row {i} of {name}");
            }
        }
        for (i, lse) in lse.iter().enumerate() {
            assert_eq!(lse.is_nan(), (100..128).contains(&i), "log-sum-exp {i}");
        }
    });
}

/// A score of `-inf` has weight zero, also in a row without any other.
#[test]
fn infinite_biases_hide_keys() {
    let s = shape(1, 90, [1, 1, 4], false);
    let mut case = Case::new(s).with_bias(180, 90);
    let values = &mut case.bias.as_mut().expect("a bias").values;
    // Of the keys 0 to 9 before the query only, so the last rows have some, and row 0 one.
    for (index, value) in values.iter_mut().enumerate() {
        *value = if (81..=90).contains(&index) { 0.0 } else { f32::NEG_INFINITY };
    }
    let window = Case::new(AttentionShape { band: Band { before: Some(9), ..Band::CAUSAL }, ..s });
    let expected = window.reference();
    on_every_backend(|cpu| {
        let mut got = case.run(cpu);
        got[5].clear();
        assert_results("a window by biases", &got, &expected, TOLERANCE);
    });
    let mut nothing = case.clone();
    nothing.bias.as_mut().expect("a bias").values.fill(f32::NEG_INFINITY);
    on_every_backend(|cpu| {
        let [out, lse, gradients @ ..] = nothing.run(cpu);
        assert!(lse.iter().all(|x| *x == f32::NEG_INFINITY));
        assert!(out.iter().chain(gradients.iter().flatten()).all(|x| *x == 0.0));
    });
}

/// Results in f32 of operands in bf16 are those that would be rounded.
#[test]
fn wide_results_are_those_before_rounding() {
    let s = AttentionShape { value_dim: 16, ..shape(2, 130, [4, 2, 18], true) };
    let case = Case::new(s).rounded().with_bias(50, 40).with_sinks();
    on_every_backend(|cpu| {
        let (narrow_out, narrow_lse) = case.forward::<bf16, bf16>(cpu);
        let (wide_out, wide_lse) = case.forward::<bf16, f32>(cpu);
        assert_eq!(narrow_lse, wide_lse);
        let round = |x: &[f32]| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        assert_eq!(round(&wide_out), narrow_out);

        let given: Vec<f32> = narrow_out.iter().map(|x| x.to_f32()).collect();
        let mut narrow = case.initial::<bf16>();
        case.backward::<bf16, bf16, bf16>(cpu, (&narrow_out, &narrow_lse), &mut narrow);
        let mut wide = case.initial::<f32>();
        case.backward::<bf16, f32, f32>(cpu, (&given, &narrow_lse), &mut wide);
        assert_eq!(round(&wide.dq), narrow.dq);
        assert_eq!(round(&wide.dk), narrow.dk);
        assert_eq!(round(&wide.dv), narrow.dv);
        assert_eq!((wide.dbias, wide.dsinks), (narrow.dbias, narrow.dsinks));
    });
}

/// Windows over more queries than one task of the forward pass has.
#[test]
fn long_windows() {
    let s = shape(1, 5000, [1, 1, 4], true);
    let case = Case::new(AttentionShape { band: Band { before: Some(600), ..Band::CAUSAL }, ..s });
    let expected = case.reference();
    on_every_backend(|cpu| {
        assert_results("a long window", &case.run(cpu), &expected, TOLERANCE);
    });
    assert_same_on_any_threads("a long window", |cpu| case.run(cpu).concat());
}

/// Ranges that would skip tiles that queries see are refused.
#[test]
fn key_ranges_must_not_decrease() {
    let refused = |range: fn(usize) -> [u32; 2]| {
        let case = Case::new(shape(1, 10, [1, 1, 2], false)).with_ranges(|_, query| range(query));
        let run = || {
            let cpu = super::CpuBackend::new(1).expect("one thread starts nothing");
            case.run(&cpu);
        };
        let error = std::panic::catch_unwind(run).expect_err("a refusal");
        error.downcast_ref::<String>().expect("a message").clone()
    };
    assert!(refused(|query| [10 - query as u32, 10]).contains("never decrease"));
    assert!(refused(|query| [0, 10 - query as u32]).contains("never decrease"));
    assert!(refused(|_| [0, 11]).contains("end at the last key"));
}

/// Accumulated gradients start from the previous values, in either dtype.
#[test]
fn gradients_are_added_in_either_dtype() {
    let case = Case::new(shape(1, 70, [2, 1, 4], true)).rounded();
    let adding = Case { accumulate: true, ..case.clone() };
    on_every_backend(|cpu| {
        let (out, lse) = case.forward::<bf16, bf16>(cpu);
        let mut alone = case.initial::<f32>();
        case.backward::<bf16, bf16, f32>(cpu, (&out, &lse), &mut alone);
        let before: Gradients<bf16> = adding.initial();
        let mut added = before.clone();
        adding.backward::<bf16, bf16, bf16>(cpu, (&out, &lse), &mut added);
        let sets = [
            (alone.dq, before.dq, added.dq),
            (alone.dk, before.dk, added.dk),
            (alone.dv, before.dv, added.dv),
        ];
        for (alone, before, added) in sets {
            for ((alone, before), added) in alone.iter().zip(before).zip(added) {
                assert_eq!(bf16::from_f32(before.to_f32() + alone), added);
            }
        }
    });
}
