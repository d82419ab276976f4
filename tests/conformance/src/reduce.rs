//! Sums over a dim and over whole operands.

use meshwright_backend::{DType, MiddleDim};

use crate::values::{float_pairs, values};
use crate::{FLOATS, Operand, Target};

/// Outer, summed and inner sizes.
const SIZES: [[usize; 3]; 19] = [
    [0, 3, 4],
    [3, 0, 4],
    [3, 4, 0],
    [1, 1, 1],
    [3, 16, 1],
    [5, 7, 1],
    [5, 300, 1],
    [2, 9000, 1],
    [3, 4, 7],
    [3, 5, 4],
    [2, 3, 48],
    [2, 20, 72],
    [40, 3, 33],
    [1, 700, 40],
    [2, 130, 257],
    [1, 9, 1024],
    [1, 33, 5000],
    [40, 17, 130],
    [2, 1, 5],
];

/// Sums for several threads of a CPU.
const LARGE: [[usize; 3]; 1] = [[3, 40, 5001]];

const SCALE: f32 = 0.7;

/// Sums over a dim follow the formula, for each pair of dtypes.
pub fn sums(target: &Target) {
    for [outer, len, inner] in target.cases(&SIZES, &LARGE) {
        for (from, to) in float_pairs() {
            let x = target.floats(from, &values(outer * len * inner, 1));
            let mut y = target.blank(to, outer * inner);
            let dim = MiddleDim { outer, len, inner };
            target.backend().sum_dim(dim, x.view(), y.view_mut(), SCALE);
            let x = x.wide();
            let sum =
                |o: usize, i: usize| (0..len).map(|j| x[(o * len + j) * inner + i]).sum::<f64>();
            let expected: Vec<f64> =
                (0..outer * inner).map(|i| f64::from(SCALE) * sum(i / inner, i % inner)).collect();
            target.check(&format!("{dim:?} from {from}"), &y, &expected, 1e-6);
        }
    }
}

/// Broadcasts along a dim are exact, for each pair of dtypes.
pub fn broadcasts(target: &Target) {
    for [outer, len, inner] in target.cases(&SIZES, &LARGE) {
        for (from, to) in float_pairs() {
            let dy = target.floats(from, &values(outer * inner, 1));
            let mut dx = target.blank(to, outer * len * inner);
            let dim = MiddleDim { outer, len, inner };
            target.backend().broadcast_dim(dim, dy.view(), dx.view_mut(), SCALE);
            let dy = dy.numbers();
            let element = |i: usize| SCALE * dy[i / (len * inner) * inner + i % inner];
            let expected: Vec<f32> = (0..outer * len * inner).map(element).collect();
            target.check_exactly(&format!("{dim:?} from {from}"), &dx, &expected);
        }
    }
}

/// Checks a sum of squares; it is f64 on every device.
#[track_caller]
fn check_squares(what: &str, got: f64, terms: &[Operand]) {
    let expected: f64 = terms.iter().flat_map(Operand::wide).map(|x| x * x).sum();
    assert!((got - expected).abs() <= 1e-12 * expected, "{what}: {got} instead of {expected}");
}

/// Sums of squares are f64, and their bits do not depend on the alignment.
pub fn sums_of_squares(target: &Target) {
    for dtype in FLOATS {
        for len in [0, 1, 5, 1000, 20_003, 100_003, 300_000] {
            let x = target.floats(dtype, &values(len, 1));
            let got = target.backend().sum_squares(x.view());
            target.note(got);
            check_squares(&format!("{len} of {dtype}"), got, &[x]);
            let padded = target.floats(dtype, &[&[0.0], &values(len, 1)[..]].concat());
            let again = target.backend().sum_squares(padded.view().slice(1..len + 1));
            assert_eq!(again.to_bits(), got.to_bits(), "{len} of {dtype}");
        }
    }
}

/// A batched sum of squares has the bits of the single ones, added in order: of more operands than one launch of a GPU
/// takes, of two dtypes, some of them empty.
pub fn batched_sums_of_squares(target: &Target) {
    let operand = |index: usize| {
        let len = if index % 7 == 3 { 0 } else { [3, 0, 4099, 17, 512][index % 5] + index };
        let dtype = if (70..140).contains(&index) { DType::Bf16 } else { DType::F32 };
        target.floats(dtype, &values(len, index as u64))
    };
    let operands: Vec<Operand> = (0..150).map(operand).collect();
    let views: Vec<_> = operands.iter().map(Operand::view).collect();
    let one_by_one: f64 = views.iter().map(|view| target.backend().sum_squares(*view)).sum();
    let got = target.backend().sum_squares_of(&views);
    target.note(got);
    assert_eq!(got.to_bits(), one_by_one.to_bits());
    check_squares("the batch", got, &operands);
}

/// NaN and infinities anywhere reach the sum of squares.
pub fn special_squares(target: &Target) {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (len, position) in
            [(1000, 0), (1000, 700), (1000, 999), (100_003, 50_000), (100_003, 100_002)]
        {
            let mut x = values(len, 1);
            x[position] = bad;
            let sum = target.backend().sum_squares(target.put(&x).view());
            assert!(
                if bad.is_nan() { sum.is_nan() } else { sum == f64::INFINITY },
                "{bad} at {position}"
            );
        }
    }
}
