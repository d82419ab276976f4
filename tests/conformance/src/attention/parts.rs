//! Attention over parts of the keys, merged.

use meshwright_backend::ops::attention::MergeAttentionArgs;
use meshwright_backend::{AttentionShape, Band, DType, SequenceLayout};

use super::case::{Call, Case, Results, shape};
use super::random::{DIMS, Random};
use crate::{FLOATS, Operand, Target, values};

fn merge(target: &Target, s: &AttentionShape, part: [&Operand; 2], sums: [&mut Operand; 2]) {
    let ([out, lse], [sum, sum_lse]) = (part.map(Operand::view), sums.map(Operand::view_mut));
    target.backend().merge_attention(s, MergeAttentionArgs { out, lse, sum, sum_lse });
}

/// Computes all results from parts of the keys that end at these places, with results in f32.
fn by_parts(target: &Target, case: &Case, ends: &[usize]) -> Results {
    let starts = [0].into_iter().chain(ends.iter().copied());
    let part = |(index, (start, end)): (usize, (usize, &usize))| {
        let mut part = Case { wide: true, ..case.part(start..*end) };
        // A sink is seen once.
        part.sinks = part.sinks.filter(|_| index == 0);
        (start, part)
    };
    let parts: Vec<(usize, Case)> = starts.zip(ends).enumerate().map(part).collect();

    // Nothing is known of any key.
    let initial = case.initial(0.0);
    let (mut out, lse) = (target.put(&initial.out), case.initial(f32::NEG_INFINITY).lse);
    let mut lse = target.put(&lse);
    for (_, part) in &parts {
        let mut call = Call::new(target, part);
        call.forward(target, part);
        let [part_out, part_lse, ..] = &call.results;
        merge(target, &case.s, [part_out, part_lse], [&mut out, &mut lse]);
    }
    let (out, lse) = (out.numbers(), lse.numbers());

    let [mut dq, mut dk, mut dv] = [initial.dq, initial.dk, initial.dv];
    let (mut dbias, mut dsinks) = (initial.dbias, initial.dsinks);
    for (start, mut part) in parts {
        part.accumulate = true;
        let AttentionShape { kv_heads, head_dim, value_dim, .. } = case.s;
        let at = |x: &[f32], dim: usize| (start * kv_heads * dim).min(x.len());
        let (dk_at, dv_at) = (at(&dk, head_dim), at(&dv, value_dim));
        let mut call = Call::new(target, &part);
        let sinks = part.sinks.as_ref().map_or(vec![], |sinks| vec![f32::NAN; sinks.len()]);
        call.results = [&out, &lse, &dq, &dk[dk_at..], &dv[dv_at..], &dbias, &sinks]
            .map(|x: &[f32]| target.put(x));
        call.backward(target, &part);
        let [_, _, new_dq, part_dk, part_dv, new_dbias, new_dsinks] =
            call.results.map(|operand| operand.numbers());
        dk.splice(dk_at.., part_dk);
        dv.splice(dv_at.., part_dv);
        (dq, dbias) = (new_dq, new_dbias);
        dsinks = if start == 0 && part.sinks.is_some() { new_dsinks } else { dsinks };
    }
    [out, lse, dq, dk, dv, dbias, dsinks]
}

#[track_caller]
fn check(target: &Target, case: &Case, ends: &[usize]) {
    let got = by_parts(target, case, ends);
    let what = format!("parts to {ends:?} of {:?}", case.s);
    case.reference(&got[0]).check(target, &what, case.dtype, &got);
}

/// Random parts of random cases make the whole.
pub fn random_parts(target: &Target) {
    let lengths = target.cases(&[60], &[40, 40, 150, 150, 700]);
    for seed in target.cases(&[0, 1, 2, 3, 4, 5, 6, 7], &(8..60).collect::<Vec<_>>()) {
        let mut random = Random(2000 + seed);
        let case = random.case(DType::F32, &lengths, &DIMS);
        let keys = case.s.keys.len;
        let mut ends = [random.below(keys + 1), random.below(keys + 1), keys];
        ends.sort();
        check(target, &case, &ends);
    }
}

/// Parts whose keys a query sees all, in part or not, in every place, make the whole.
pub fn fixed_parts(target: &Target) {
    for dtype in FLOATS {
        for (causal, ends) in [(true, [40, 41, 90].as_slice()), (false, &[33, 90])] {
            check(target, &Case::new(shape(2, 90, [2, 1, 16], causal), dtype), ends);
        }
    }
}

/// Rows without keys on one side, on the other, and on both; large and equal log-sum-exps; gaps between samples, which
/// are not written.
pub fn merged_rows(target: &Target) {
    const GAP: f32 = -3e33;
    let queries = SequenceLayout { len: 8, pitch: 10 };
    let s =
        AttentionShape { queries, value_dim: 3, ..AttentionShape::new(2, 8, [1, 1, 2], Band::ALL) };
    let none = f32::NEG_INFINITY;
    let lse = [
        none,
        1.5,
        none,
        88.0,
        -1e4,
        300.0,
        1.0,
        5.0,
        GAP,
        GAP,
        0.0,
        0.0,
        0.0,
        f32::NAN,
        0.0,
        0.0,
        3e4,
        none,
    ];
    let before = [
        none,
        none,
        -2.0,
        -100.0,
        1e4,
        300.0,
        -3e4,
        none,
        GAP,
        GAP,
        1.0,
        -1.0,
        0.5,
        0.0,
        f32::NAN,
        0.0,
        1.0,
        1.0,
    ];
    let rows = lse.len();
    let [out, mut sum] = [1, 2].map(|seed| target.put(&values(rows * 3, seed)));
    let (part_lse, mut sum_lse) = (target.put(&lse), target.put(&before));
    let (mut expected, mut expected_lse) = (sum.wide(), Vec::new());
    for (i, (a, b)) in lse.into_iter().zip(before).enumerate() {
        let (a, b) = (f64::from(a), f64::from(b));
        let is_kept = lse[i] == GAP || lse[i] == none;
        let max = a.max(b);
        let total = max + ((a - max).exp() + (b - max).exp()).ln();
        expected_lse.push(if is_kept { b } else { total });
        for (sum, x) in expected[i * 3..][..3].iter_mut().zip(&out.wide()[i * 3..]) {
            *sum = if is_kept { *sum } else { (a - total).exp() * x + (b - total).exp() * *sum };
        }
    }
    merge(target, &s, [&out, &part_lse], [&mut sum, &mut sum_lse]);
    target.check("the sum", &sum, &expected, 1e-6);
    for (i, (got, expected)) in sum_lse.wide().into_iter().zip(expected_lse).enumerate() {
        let same = got == expected || got.is_nan() && expected.is_nan();
        let bound = 1e-6 * expected.abs().max(1.0);
        assert!(same || (got - expected).abs() <= bound, "log-sum-exp {i}: {got}, not {expected}");
    }
}
