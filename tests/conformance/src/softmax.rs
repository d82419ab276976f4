//! Softmax over rows.

use crate::{FLOATS, Target, scaled, values};

/// Rows and columns: less than a warp of a GPU, a warp, a block, and more than registers hold.
const SIZES: [[usize; 2]; 11] = [
    [0, 8],
    [1, 1],
    [3, 1],
    [20, 7],
    [50, 64],
    [9, 515],
    [40, 1003],
    [4, 1032],
    [3, 4104],
    [2, 20000],
    [2, 20001],
];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 2]; 3] = [[130, 64], [257, 200], [300, 515]];

fn reference(cols: usize, x: &[f64]) -> Vec<f64> {
    let softmax = |row: &[f64]| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exp: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
        let total: f64 = exp.iter().sum();
        exp.into_iter().map(move |exp| exp / total)
    };
    x.chunks_exact(cols).flat_map(softmax).collect()
}

/// Softmax and its gradient follow the formula.
pub fn formula(target: &Target) {
    for [rows, cols] in target.cases(&SIZES, &LARGE) {
        for dtype in FLOATS {
            for factor in [8.0, 20.0] {
                let x = target.floats(dtype, &scaled(rows * cols, 1, factor));
                let dy = target.floats(dtype, &values(rows * cols, 2));
                let [mut y, mut dx] = [(); 2].map(|()| target.blank(dtype, rows * cols));
                target.backend().softmax(cols, x.view(), y.view_mut());
                target.backend().softmax_backward(cols, y.view(), dy.view(), dx.view_mut());
                let mut expected = Vec::new();
                for (y, dy) in y.wide().chunks_exact(cols).zip(dy.wide().chunks_exact(cols)) {
                    let dot: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
                    expected.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy - dot)));
                }
                let what = |name| format!("{name} of {rows} x {cols}, up to {factor}");
                target.check(&what("y"), &y, &reference(cols, &x.wide()), 1e-6);
                target.check(&what("dx"), &dx, &expected, 1e-6);
            }
        }
    }
}

/// Infinities and NaN change every result of their rows, and of no other.
pub fn special_values(target: &Target) {
    for cols in [4, 40, 131, 700] {
        let mut rows = vec![values(cols, 1); 7];
        rows[0][..cols / 2].fill(f32::NEG_INFINITY);
        rows[1].fill(f32::NEG_INFINITY);
        rows[2][cols - 1] = f32::INFINITY;
        rows[3][cols / 2] = f32::NAN;
        rows[4][cols - 1] = f32::NEG_INFINITY;
        rows[5][1..].fill(f32::NEG_INFINITY);
        for position in [0, 3, 63, 64, 130].into_iter().filter(|position| *position < cols) {
            rows.push(values(cols, 2));
            rows.last_mut().expect("a row")[position] = f32::NAN;
        }
        for dtype in FLOATS {
            let x = target.floats(dtype, &rows.concat());
            let mut y = target.blank(dtype, x.numbers().len());
            target.backend().softmax(cols, x.view(), y.view_mut());
            target.check(&format!("{cols} columns"), &y, &reference(cols, &x.wide()), 1e-6);
        }
    }
}
