//! Softmax over rows on a simulated device.

use crate::support::{FLOATS, Side, assert_close, epsilon, on_both, values};

/// Rows and columns: less than a warp, a warp, a block, and more than registers hold.
const SIZES: [[usize; 2]; 9] =
    [[0, 8], [3, 1], [20, 7], [50, 64], [9, 515], [4, 1032], [3, 4104], [2, 20000], [2, 20001]];

#[test]
fn softmax_and_its_gradient_are_those_of_the_host() {
    for [rows, cols] in SIZES {
        for dtype in FLOATS {
            let run = |side: &Side| {
                let logits: Vec<f32> =
                    values(rows * cols, 1).into_iter().map(|x| 8.0 * x).collect();
                let x = side.floats(dtype, &logits);
                let dy = side.floats(dtype, &values(rows * cols, 2));
                let [mut y, mut dx] = [(); 2].map(|()| side.blank(dtype, rows * cols));
                side.backend().softmax(cols, x.view(), y.view_mut());
                side.backend().softmax_backward(cols, y.view(), dy.view(), dx.view_mut());
                [y, dx].map(|operand| operand.numbers())
            };
            on_both(run, |got, expected| {
                for (i, what) in ["y", "dx"].into_iter().enumerate() {
                    let what = format!("{what} of {rows} x {cols}, {dtype}");
                    assert_close(&what, &got[i], &expected[i], 4.0 * epsilon(dtype), 1e-6);
                }
            });
        }
    }
}

#[test]
fn rows_with_infinities_and_nan_match_the_cpu() {
    for cols in [4, 40, 700] {
        let mut rows = vec![values(cols, 1); 6];
        rows[0][..cols / 2].fill(f32::NEG_INFINITY);
        rows[1].fill(f32::NEG_INFINITY);
        rows[2][cols - 1] = f32::INFINITY;
        rows[3][cols / 2] = f32::NAN;
        rows[4][cols - 1] = f32::NEG_INFINITY;
        rows[5][1..].fill(f32::NEG_INFINITY);
        for dtype in FLOATS {
            let run = |side: &Side| {
                let x = side.floats(dtype, &rows.concat());
                let mut y = side.blank(dtype, 6 * cols);
                side.backend().softmax(cols, x.view(), y.view_mut());
                y.numbers()
            };
            on_both(run, |got, expected| {
                let what = format!("{cols} columns, {dtype}");
                assert_close(&what, got, expected, 4.0 * epsilon(dtype), 0.0);
            });
        }
    }
}
