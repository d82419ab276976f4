//! Dropout of weights.

use meshwright_backend::{
    AttentionShape, Band, DType, GlobalPositions, SequenceLayout, WeightDropout,
};

use super::case::{Case, shape};
use super::check;
use super::random::{DIMS, Random};
use crate::{FLOATS, Target};

/// Computes the factor of a weight, from a second generator and rule.
pub(super) fn factor(dropout: &WeightDropout, [sample, head, query, key]: [usize; 4]) -> f64 {
    let position = |positions: &GlobalPositions, index: usize| {
        positions.first + index + if index < positions.gap_at { 0 } else { positions.gap }
    };
    let [query, key] =
        [position(&dropout.queries, query), position(&dropout.keys, key)].map(|at| at as u32);
    let unit = |at: u32| (at >> 4) << 3 | at & 7;
    let counter = [
        unit(key),
        unit(query),
        (dropout.first_head + head) as u32,
        position(&dropout.rows, sample) as u32,
    ];
    let word = philox([dropout.key as u32, (dropout.key >> 32) as u32], counter)
        [(query >> 3 & 1) as usize * 2 + (key >> 3 & 1) as usize];
    let rate = f64::from(dropout.rate);
    if f64::from(word) < (rate * 4_294_967_296.0).floor() { 0.0 } else { 1.0 / (1.0 - rate) }
}

/// Philox 4x32-10.
fn philox(mut key: [u32; 2], mut x: [u32; 4]) -> [u32; 4] {
    for _ in 0..10 {
        let [a, b] = [(0xd251_1f53_u64, x[0]), (0xcd9e_8d57, x[2])].map(|(m, x)| m * u64::from(x));
        let high = |product: u64| (product >> 32) as u32;
        x = [high(b) ^ x[1] ^ key[0], b as u32, high(a) ^ x[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    x
}

fn at(first: usize) -> GlobalPositions {
    GlobalPositions::consecutive(first)
}

/// Returns dropout of the rows from 5 and the heads from 3 on.
fn dropout(rate: f32, queries: GlobalPositions, keys: GlobalPositions) -> Option<WeightDropout> {
    let (key, rows) = (0x1234_5678_9abc_def0, at(5));
    Some(WeightDropout { key, rate, rows, first_head: 3, queries, keys })
}

/// Draws of whole tiles, of positions that are not aligned to them, and of those with a gap, follow the formula, with
/// every kernel.
pub fn dropped(target: &Target) {
    let gap = |first, gap_at, gap| GlobalPositions { first, gap_at, gap };
    let positions = [
        [at(0), at(0)],
        [at(48), at(7)],
        [gap(16, 32, 64), gap(0, 48, 16)],
        [gap(3, 21, 30), at(64)],
        [gap(0, 8, 24), gap(8, 40, 5)],
    ];
    for (index, [queries, keys]) in positions.into_iter().enumerate() {
        for (dtype, dims) in
            [(DType::F32, [2, 1, 8]), (DType::Bf16, [4, 2, 64]), (DType::Bf16, [2, 2, 18])]
        {
            let rate = [0.1, 0.5, 0.9][index % 3];
            let s = shape(2, 75, dims, index % 2 == 0);
            let s = AttentionShape { dropout: dropout(rate, queries, keys), ..s };
            check(target, "dropped weights", &Case::new(s, dtype));
        }
    }
    for dims in [[1, 1, 128], [1, 1, 96], [1, 1, 136], [1, 1, 256]] {
        let s =
            AttentionShape { dropout: dropout(0.3, at(0), at(32)), ..shape(1, 100, dims, true) };
        check(target, "dropped weights", &Case::new(s, DType::Bf16));
    }
}

/// Random cases with masks, caps, biases and sinks follow the formula.
pub fn dropped_at_random(target: &Target) {
    let check = |seed: u64, dtype: DType, lengths: &[usize], dims: &[[usize; 2]]| {
        let mut random = Random(4000 + seed);
        let mut case = random.case(dtype, lengths, dims);
        let mut positions = || GlobalPositions {
            first: random.one_of(&[0, 16, 33]),
            gap_at: random.one_of(&[16, 29, 64, usize::MAX]),
            gap: random.one_of(&[0, 16, 21]),
        };
        case.s.dropout = dropout(0.25, positions(), positions());
        // The output of a query with one key is not exact in bf16, and neither is the gradient of that key.
        case.wide = true;
        check(target, &format!("dropped weights of random case {seed}"), &case);
    };
    (0..16).for_each(|seed| check(seed, DType::F32, &[70], &DIMS));
    (16..24).for_each(|seed| check(seed, DType::Bf16, &[150], &[[64, 64]]));
    for seed in target.cases(&[], &(100..220).collect::<Vec<_>>()) {
        let dtype = if seed % 4 == 3 { DType::Bf16 } else { DType::F32 };
        check(seed, dtype, &[2, 40, 40, 150, 150, 700], &DIMS);
    }
}

/// Parts of queries, keys, heads and rows have the masks of the whole: the output over all keys is the same.
pub fn dropped_parts(target: &Target) {
    let whole = AttentionShape {
        dropout: Some(WeightDropout {
            rows: at(0),
            first_head: 0,
            ..dropout(0.4, at(0), at(0)).expect("some")
        }),
        ..shape(2, 40, [2, 2, 8], false)
    };
    for dtype in FLOATS {
        let case = Case::new(whole, dtype);
        let [out, ..] = case.run(target);
        // The queries from 24 on of the second head of the second row, over all keys.
        let queries = SequenceLayout::dense(16);
        let part = WeightDropout {
            rows: at(1),
            first_head: 1,
            queries: at(24),
            ..whole.dropout.expect("the whole has dropout")
        };
        let row = |x: &[f32], position: usize| x[((40 + position) * 2 + 1) * 8..][..8].to_vec();
        let rows =
            |x: &[f32], from: usize| (from..40).flat_map(|at| row(x, at)).collect::<Vec<f32>>();
        let s = AttentionShape { queries, dropout: Some(part), ..shape(1, 40, [1, 1, 8], false) };
        let mut of_part = Case::new(s, dtype);
        (of_part.q, of_part.dout) = (rows(&case.q, 24), rows(&case.dout, 24));
        (of_part.k, of_part.v) = (rows(&case.k, 0), rows(&case.v, 0));
        of_part.s.band = Band::ALL;
        let [of_part, ..] = of_part.run(target);
        for (i, (got, expected)) in of_part.iter().zip(rows(&out, 24)).enumerate() {
            assert!(
                (got - expected).abs() <= 1e-6_f32.max(expected.abs() / 64.0),
                "{dtype} {i}: {got} {expected}"
            );
        }
    }
}

/// The rate of weights is dropped, and the mean of a long row is kept.
pub fn dropped_rate(target: &Target) {
    let len = 512;
    for rate in [0.1, 0.6] {
        let s = AttentionShape {
            dropout: dropout(rate, at(0), at(0)),
            ..shape(1, len, [1, 1, 1], false)
        };
        let mut case = Case::new(s, DType::F32);
        // Equal scores, and a value of one: the output is the number of kept weights by their expected number.
        case.k.fill(0.0);
        case.v.fill(1.0);
        let [out, ..] = case.run(target);
        let mean = out.iter().map(|x| f64::from(*x)).sum::<f64>() / len as f64;
        assert!((mean - 1.0).abs() < 0.01, "rate {rate}: {mean}");
        let spread = out.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / len as f64;
        let expected = f64::from(rate / (1.0 - rate)) / len as f64;
        assert!((spread / expected - 1.0).abs() < 0.3, "rate {rate}: {spread}, not {expected}");
    }
}
