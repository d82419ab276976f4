//! Sums over a dim and over all elements on a simulated device.

use meshwright::backend::{DType, MiddleDim};

use crate::support::{
    FLOATS, Side, assert_close, assert_same, device, epsilon, host, on_both, values,
};

/// Outer, summed and inner sizes.
const SIZES: [[usize; 3]; 12] = [
    [0, 3, 4],
    [3, 0, 4],
    [3, 4, 0],
    [1, 1, 1],
    [5, 7, 1],
    [2, 9000, 1],
    [3, 5, 4],
    [2, 20, 72],
    [40, 3, 33],
    [1, 700, 40],
    [2, 130, 257],
    [1, 9, 1024],
];

fn dtypes() -> impl Iterator<Item = (DType, DType)> {
    FLOATS.into_iter().flat_map(|from| FLOATS.map(|to| (from, to)))
}

#[test]
fn sums_over_a_dim_are_those_of_the_host() {
    for [outer, n, inner] in SIZES {
        for (from, to) in dtypes() {
            let sum = |side: &Side| {
                let x = side.floats(from, &values(outer * n * inner, 1));
                let mut y = side.blank(to, outer * inner);
                side.backend().sum_dim(
                    MiddleDim { outer, len: n, inner },
                    x.view(),
                    y.view_mut(),
                    0.7,
                );
                y.numbers()
            };
            // Two summation orders of n numbers below 1 differ by rounding errors; the tolerance is that of one
            // rounding.
            let floor = 1e-7 * n as f32;
            on_both(sum, |got, expected| {
                let what = format!("{outer}x{n}x{inner}, {from} to {to}");
                assert_close(&what, got, expected, epsilon(to), floor);
            });
        }
    }
}

#[test]
fn copies_along_a_dim_are_those_of_the_host() {
    for [outer, n, inner] in SIZES.into_iter().chain([[3, 16, 1], [2, 3, 48]]) {
        for (from, to) in dtypes() {
            let copy = |side: &Side| {
                let dy = side.floats(from, &values(outer * inner, 1));
                let mut dx = side.blank(to, outer * n * inner);
                side.backend().broadcast_dim(
                    MiddleDim { outer, len: n, inner },
                    dy.view(),
                    dx.view_mut(),
                    0.7,
                );
                dx.numbers()
            };
            on_both(copy, |got, expected| {
                assert_same(&format!("{outer}x{n}x{inner}, {from} to {to}"), got, expected);
            });
        }
    }
}

#[test]
fn sums_of_squares_depend_on_the_length_alone() {
    for dtype in FLOATS {
        for len in [0, 1, 5, 1000, 20_003, 300_000] {
            let sum = |side: &Side| {
                side.backend().sum_squares(side.floats(dtype, &values(len, 1)).view())
            };
            let (expected, got) = (sum(&host()), sum(&device(1, 0)));
            assert!((got - expected).abs() <= 1e-13 * expected, "{got} instead of {expected}");
            for (seed, skew) in [(2, 0), (3, 1), (4, 3)] {
                assert_eq!(sum(&device(seed, skew)).to_bits(), got.to_bits(), "{dtype} x {len}");
            }
        }
    }
}

#[test]
fn batched_sums_of_squares_equal_single_ones() {
    // More buffers than one launch takes, of two dtypes, some of them empty.
    let lens: Vec<usize> = (0..150).map(|index| [3, 0, 4099, 17, 512][index % 5] + index).collect();
    let dtype = |index: usize| FLOATS[usize::from((70..140).contains(&index))];
    let sums = |side: &Side| {
        let floats = |(index, len): (usize, &usize)| {
            side.floats(dtype(index), &values(if index % 7 == 3 { 0 } else { *len }, index as u64))
        };
        let buffers: Vec<_> = lens.iter().enumerate().map(floats).collect();
        let views: Vec<_> = buffers.iter().map(|buffer| buffer.view()).collect();
        let one_by_one: f64 = views.iter().map(|view| side.backend().sum_squares(*view)).sum();
        (side.backend().sum_squares_of(&views), one_by_one)
    };
    let ((expected, _), (got, one_by_one)) = (sums(&host()), sums(&device(5, 1)));
    assert_eq!(got.to_bits(), one_by_one.to_bits());
    assert!((got - expected).abs() <= 1e-13 * expected, "{got} instead of {expected}");
}

#[test]
fn a_sum_of_squares_of_nan_is_nan() {
    for position in [0, 700, 999] {
        let mut x = values(1000, 1);
        x[position] = f32::NAN;
        let device = device(1, 1);
        assert!(device.backend().sum_squares(device.put(&x).view()).is_nan());
    }
}
