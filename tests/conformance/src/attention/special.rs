//! Rows without keys, NaN, infinities, and roundings.

use meshwright_backend::{AttentionShape, Band, DType};

use super::case::{Call, Case, NAMES, Results, shape};
use super::check;
use crate::values::round;
use crate::{FLOATS, Target, assert_same};

/// Rows without keys are zero, and their log-sum-exps that of the sink, or `-inf`.
pub fn rows_without_keys(target: &Target) {
    let band = Band { offset: -50, before: Some(20), after: Some(0) };
    let s = AttentionShape { band, ..shape(2, 100, [2, 2, 8], true) };
    for dtype in FLOATS {
        for case in [Case::new(s, dtype), Case::new(s, dtype).with_sinks()] {
            check(target, "rows without keys", &case);
            let [out, lse, dq, ..] = case.run(target);
            for (i, (row, dq)) in out.chunks_exact(16).zip(dq.chunks_exact(16)).enumerate() {
                let has_keys = i % 100 >= 50;
                assert_eq!(row.iter().any(|x| *x != 0.0), has_keys, "row {i} of the output");
                assert!(has_keys || dq.iter().all(|x| *x == 0.0), "row {i} of dq");
            }
            for (i, lse) in lse.iter().enumerate().filter(|(i, _)| i % 100 < 50) {
                let empty = case.sinks.as_ref().map_or(f32::NEG_INFINITY, |s| s[i / 100 % 2]);
                assert_eq!(*lse, empty, "log-sum-exp {i}");
            }
        }
    }
}

/// Rows without any score but `-inf`, by a bias, are like queries without keys.
pub fn rows_without_scores(target: &Target) {
    for dtype in FLOATS {
        let mut case = Case::new(shape(1, 90, [1, 1, 4], false), dtype).with_bias(180, 90);
        case.bias.as_mut().expect("a bias").values.fill(f32::NEG_INFINITY);
        let [out, lse, gradients @ ..] = case.run(target);
        assert!(lse.iter().all(|x| *x == f32::NEG_INFINITY), "{dtype}");
        assert!(out.iter().chain(gradients.iter().flatten()).all(|x| *x == 0.0), "{dtype}");
    }
}

/// NaN in a key reaches every row that sees it, and no other.
pub fn nan(target: &Target) {
    for (dtype, dim) in FLOATS.into_iter().flat_map(|dtype| [(dtype, 8), (dtype, 16)]) {
        let mut case = Case::new(shape(1, 200, [1, 1, dim], true), dtype);
        case.k[70 * dim] = f32::NAN;
        let [out, lse, ..] = case.run(target);
        for (i, row) in out.chunks_exact(dim).enumerate() {
            assert!(row.iter().all(|x| x.is_nan() == (i >= 70)), "{dtype} row {i}");
            assert_eq!(lse[i].is_nan(), i >= 70, "{dtype} row {i}");
        }
    }
}

/// NaN in a key and in its value reaches no query whose tiles do not contain the key, by bands and by ranges.
pub fn nan_in_document(target: &Target) {
    let mut case = Case::new(shape(1, 256, [1, 1, 8], true), DType::F32).with_documents(&[64; 4]);
    case.k[100 * 8] = f32::NAN;
    case.v[100 * 8] = f32::NAN;
    let [out, lse, dq, dk, dv, ..] = case.run(target);
    for (name, x) in [("out", out), ("dq", dq), ("dk", dk), ("dv", dv)] {
        for (i, row) in x.chunks_exact(8).enumerate() {
            let is_nan = row.iter().any(|x| x.is_nan());
            assert!(!is_nan || (64..128).contains(&i), "row {i} of {name}");
        }
    }
    for (i, lse) in lse.iter().enumerate() {
        assert_eq!(lse.is_nan(), (100..128).contains(&i), "log-sum-exp {i}");
    }
}

/// A score of `-inf` has weight zero.
pub fn infinite_biases(target: &Target) {
    let s = shape(1, 90, [1, 1, 4], false);
    let mut case = Case::new(s, DType::F32).with_bias(180, 90);
    // Of the keys 0 to 9 before the query only, so the last rows have some, and row 0 one.
    let bias = case.bias.as_mut().expect("a bias");
    for (index, value) in bias.values.iter_mut().enumerate() {
        *value = if (81..=90).contains(&index) { 0.0 } else { f32::NEG_INFINITY };
    }
    let window = AttentionShape { band: Band { before: Some(9), ..Band::CAUSAL }, ..s };
    let mut got = case.run(target);
    got[5].clear();
    let expected = Case::new(window, DType::F32).reference(&got[0]);
    expected.check(target, "a window by biases", DType::F32, &got);
}

/// Large scores give finite results.
pub fn large_scores(target: &Target) {
    for dtype in FLOATS {
        let mut case = Case::new(shape(1, 100, [1, 1, 16], true), dtype);
        case.q.iter_mut().for_each(|x| *x *= 256.0);
        assert!(case.run(target).iter().flatten().all(|x| x.is_finite()), "{dtype}");
    }
}

/// Computes gradients in f32 from this output and these log-sum-exps.
fn wide_gradients(target: &Target, case: &Case, [out, lse]: [&[f32]; 2]) -> Results {
    let case = Case { wide: true, ..case.clone() };
    let mut call = Call::new(target, &case);
    (call.results[0], call.results[1]) = (target.put(out), target.put(lse));
    call.backward(target, &case);
    call.results.map(|operand| operand.numbers())
}

/// Results in f32 of operands in bf16 are those before rounding, to the bit.
pub fn wide_results(target: &Target) {
    let s = AttentionShape { value_dim: 16, ..shape(2, 130, [4, 2, 18], true) };
    let narrow = Case::new(s, DType::Bf16).with_bias(50, 40).with_sinks();
    let wide = Case { wide: true, ..narrow.clone() };
    check(target, "wide results", &wide);
    let ([out, lse, gradients @ ..], wide) = (narrow.run(target), wide.run(target));
    let rounded = |x: &[f32]| x.iter().map(|x| round(DType::Bf16, *x)).collect::<Vec<_>>();
    assert_same("log-sum-exps", &wide[1], &lse);
    assert_same("outputs", &rounded(&wide[0]), &out);
    let wide = wide_gradients(target, &narrow, [&out, &lse]);
    for (i, (got, wide)) in gradients.iter().zip(&wide[2..]).enumerate() {
        let expected = if i < 3 { rounded(wide) } else { wide.clone() };
        assert_same(NAMES[i + 2], got, &expected);
    }
}

/// Gradients are added in f32 and rounded once, in either dtype.
pub fn accumulation(target: &Target) {
    for dtype in FLOATS {
        let alone = Case::new(shape(1, 70, [2, 1, 4], true), dtype);
        let adding = Case { accumulate: true, ..alone.clone() };
        let before = adding.initial(0.0);
        let [out, lse, sums @ ..] = adding.run(target);
        let [_, _, terms @ ..] = wide_gradients(target, &alone, [&out, &lse]);
        for (i, before) in [before.dq, before.dk, before.dv].iter().enumerate() {
            let sum = |(before, term): (&f32, &f32)| round(dtype, before + term);
            let expected: Vec<f32> = before.iter().zip(&terms[i]).map(sum).collect();
            assert_same(&format!("{}, {dtype}", NAMES[i + 2]), &sums[i], &expected);
        }
    }
}
