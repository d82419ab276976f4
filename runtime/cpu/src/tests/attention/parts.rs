//! Attention over parts of the keys, merged.

use super::super::{on_every_backend, values};
use super::case::{Case, GAP, Gradients};
use super::families::{Random, anything};
use super::{TOLERANCE, assert_results};
use meshwright_backend::ops::attention::MergeAttentionArgs;
use meshwright_backend::{AttentionShape, Backend, SequenceLayout};

/// All results from parts of the keys that end at these places.
fn by_parts(case: &Case, ends: &[usize], cpu: &dyn Backend) -> [Vec<f32>; 7] {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let parts: Vec<(usize, Case)> = starts
        .zip(ends)
        .enumerate()
        .map(|(index, (start, end))| {
            let mut part = case.part(start..*end);
            // A sink is seen once.
            part.sinks = part.sinks.filter(|_| index == 0);
            (start, part)
        })
        .collect();

    let (mut out, mut lse) = case.unwritten::<f32>();
    let replace = |x: &mut [f32], by: f32| {
        x.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = by);
    };
    replace(&mut out, 0.0);
    replace(&mut lse, f32::NEG_INFINITY);
    for (_, part) in &parts {
        let (part_out, part_lse) = part.forward::<f32, f32>(cpu);
        cpu.merge_attention(
            &case.s,
            MergeAttentionArgs {
                out: part_out[..].into(),
                lse: part_lse[..].into(),
                sum: (&mut out[..]).into(),
                sum_lse: (&mut lse[..]).into(),
            },
        );
    }

    let mut sums = case.initial::<f32>();
    if !case.accumulate {
        for x in [&mut sums.dq, &mut sums.dk, &mut sums.dv, &mut sums.dbias] {
            replace(x, 0.0);
        }
    }
    for (start, mut part) in parts {
        part.accumulate = true;
        let AttentionShape { kv_heads, head_dim, value_dim, .. } = case.s;
        let at = |x: &[f32], dim: usize| (start * kv_heads * dim).min(x.len());
        let (dk_at, dv_at) = (at(&sums.dk, head_dim), at(&sums.dv, value_dim));
        let mut gradients = Gradients {
            dq: sums.dq,
            dk: sums.dk.split_off(dk_at),
            dv: sums.dv.split_off(dv_at),
            dbias: sums.dbias,
            dsinks: sums.dsinks,
        };
        part.backward::<f32, f32, f32>(cpu, (&out, &lse), &mut gradients);
        sums.dk.append(&mut gradients.dk);
        sums.dv.append(&mut gradients.dv);
        (sums.dq, sums.dbias, sums.dsinks) = (gradients.dq, gradients.dbias, gradients.dsinks);
    }
    [out, lse, sums.dq, sums.dk, sums.dv, sums.dbias, sums.dsinks]
}

#[test]
fn parts_of_the_keys_make_the_whole() {
    for seed in 0..60 {
        let mut random = Random::new(2000 + seed);
        let case = anything(&mut random);
        let keys = case.s.keys.len;
        let mut ends = [random.below(keys + 1), random.below(keys + 1), keys];
        ends.sort();
        let expected = case.reference();
        on_every_backend(|cpu| {
            let what = format!("parts to {ends:?} of {seed}, {:?}", case.s);
            assert_results(&what, &by_parts(&case, &ends, cpu), &expected, TOLERANCE);
        });
    }
}

/// Rows without keys on one side, on the other, and on both; large and equal log-sum-exps; gaps between samples.
#[test]
fn merged_rows() {
    let queries = SequenceLayout { len: 6, pitch: 8 };
    let s = AttentionShape {
        queries,
        value_dim: 3,
        ..AttentionShape::new(2, 6, [1, 1, 2], meshwright_backend::Band::ALL)
    };
    let none = f32::NEG_INFINITY;
    let lse = [none, 1.5, none, 88.0, -1e4, 300.0, GAP, GAP, 0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0];
    let sum_lse =
        [none, none, -2.0, -100.0, 1e4, 300.0, GAP, GAP, 1.0, -1.0, 0.5, 0.0, f32::NAN, 0.0];
    let (out, sum) = (values(14 * 3, 1), values(14 * 3, 2));
    on_every_backend(|cpu| {
        let (mut got, mut got_lse) = (sum.clone(), sum_lse);
        cpu.merge_attention(
            &s,
            MergeAttentionArgs {
                out: out[..].into(),
                lse: lse[..].into(),
                sum: (&mut got[..]).into(),
                sum_lse: (&mut got_lse[..]).into(),
            },
        );
        for i in 0..14 {
            let (a, b) = (f64::from(lse[i]), f64::from(sum_lse[i]));
            if lse[i] == GAP || lse[i] == none {
                assert_eq!(got_lse[i], sum_lse[i], "row {i}");
                assert_eq!(got[i * 3..][..3], sum[i * 3..][..3], "row {i}");
                continue;
            }
            if a.is_nan() || b.is_nan() {
                assert!(got_lse[i].is_nan() && got[i * 3].is_nan(), "row {i}");
                continue;
            }
            let max = a.max(b);
            let expected = max + ((a - max).exp() + (b - max).exp()).ln();
            assert!((f64::from(got_lse[i]) - expected).abs() <= 1e-6 * expected.abs().max(1.0));
            for at in i * 3..i * 3 + 3 {
                let (x, y) = (f64::from(out[at]), f64::from(sum[at]));
                let expected = (a - expected).exp() * x + (b - expected).exp() * y;
                assert!((f64::from(got[at]) - expected).abs() <= 1e-6, "row {i}: {}", got[at]);
            }
        }
    });
}
