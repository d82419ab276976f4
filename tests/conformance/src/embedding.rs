//! Embedding tables.

use meshwright_backend::DType;

use crate::values::{numbers_below, wide};
use crate::{FLOATS, Target, values};

/// Tokens, rows of the table, columns, and the first row.
const SIZES: [[usize; 4]; 9] = [
    [0, 3, 4, 0],
    [1, 1, 1, 0],
    [1, 50, 1, 10],
    [6, 50, 5, 10],
    [37, 11, 5, 7],
    [70, 20, 24, 3],
    [9, 50, 264, 0],
    [2500, 300, 3, 20],
    [600, 70_000, 2, 0],
];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 4]; 2] = [[700, 50, 129, 10], [3000, 500, 100, 0]];

/// Returns tokens, some before and some after the table.
fn tokens(n: usize, rows: usize, first_row: usize) -> Vec<u32> {
    let mut tokens = numbers_below((rows + 2 * first_row) as u32, n, 9);
    if let Some(last) = tokens.last_mut() {
        *last = u32::MAX;
    }
    tokens
}

/// Rows are gathered as they are; tokens of other shards give zeros.
pub fn gather(target: &Target) {
    for [n, rows, cols, first] in target.cases(&SIZES, &LARGE) {
        for dtype in FLOATS {
            let table = target.floats(dtype, &values(rows * cols, 1));
            let tokens = tokens(n, rows, first);
            let mut out = target.blank(dtype, n * cols);
            target.backend().embedding(
                target.put(&tokens).view(),
                table.view(),
                first,
                out.view_mut(),
            );
            let table = table.numbers();
            let row = |token: &u32| {
                let row = (*token as usize).checked_sub(first).filter(|row| *row < rows);
                row.map_or(vec![0.0; cols], |row| table[row * cols..][..cols].to_vec())
            };
            let expected: Vec<f32> = tokens.iter().flat_map(row).collect();
            target.check_exactly(&format!("{n} of {rows} x {cols}"), &out, &expected);
        }
    }
}

/// Checks the gradient of a table that holds some already.
#[track_caller]
fn check_gradient(
    target: &Target,
    dtype: DType,
    tokens: &[u32],
    padding: Option<u32>,
    [rows, cols, first]: [usize; 3],
) {
    let dout = target.floats(dtype, &values(tokens.len() * cols, 2));
    let before = values(rows * cols, 3);
    let mut dtable = target.put(&before);
    let put = target.put(tokens);
    target.backend().embedding_backward(put.view(), padding, first, dout.view(), dtable.view_mut());
    let mut expected = wide(&before);
    for (token, dout) in tokens.iter().zip(dout.wide().chunks_exact(cols)) {
        let row = (*token as usize).checked_sub(first).filter(|row| *row < rows);
        if let Some(row) = row.filter(|_| padding != Some(*token)) {
            expected[row * cols..][..cols].iter_mut().zip(dout).for_each(|(sum, x)| *sum += x);
        }
    }
    let what = format!("{} tokens of {dtype}, {rows} x {cols}, padding {padding:?}", tokens.len());
    target.check(&what, &dtable, &expected, 1e-6);
    // Rows that no token reads keep their bits.
    let is_read = |row: usize| tokens.iter().any(|token| *token as usize == row + first);
    for row in (0..rows.min(400)).filter(|row| !is_read(*row)) {
        let range = row * cols..(row + 1) * cols;
        assert_eq!(dtable.get::<f32>()[range.clone()], before[range], "{what}: row {row}");
    }
}

/// Rows of gradients are added to their tokens' rows, except for the padding.
pub fn gradient(target: &Target) {
    for [n, rows, cols, first] in target.cases(&SIZES, &LARGE) {
        for dtype in FLOATS {
            let tokens = tokens(n, rows, first);
            for padding in [None, tokens.first().copied(), Some(1)] {
                check_gradient(target, dtype, &tokens, padding, [rows, cols, first]);
            }
        }
    }
}

/// Returns tokens distributed as in text: the i-th most frequent one is 1 / i as frequent as the first.
fn zipf(n: usize, vocab: usize) -> Vec<u32> {
    let weights: Vec<f64> = (1..=vocab).map(|rank| 1.0 / rank as f64).collect();
    let total: f64 = weights.iter().sum();
    let draw = |x: f32| {
        let mut left = f64::from(x + 1.0) / 2.0 * total;
        let token = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // Token ids are not in the order of their frequencies.
        token.unwrap_or(0) as u32 * 7 % vocab as u32
    };
    values(n, 5).into_iter().map(draw).collect()
}

/// Returns tokens, some of them frequent, with rows, columns and the first row of a table: one token everywhere,
/// runs that start anywhere in 64 tokens, and tokens as in text.
pub fn frequent_tokens() -> Vec<(Vec<u32>, [usize; 3])> {
    let one = [1, 4, 5, 63, 64, 65, 127, 128, 129, 2048, 2300].map(|n| (vec![2; n], [4, 8, 0]));
    let runs = [1, 31, 63, 64, 65].map(|before| {
        let runs = [(0, before), (1, 200), (2, 64), (3, 65), (5, 130), (9, 70)];
        let tokens = runs.into_iter().flat_map(|(token, count)| vec![token; count]).collect();
        (tokens, [5, 6, 1])
    });
    let text = (zipf(4096, 300), [280, 24, 5]);
    one.into_iter().chain(runs).chain([text]).collect()
}

/// Gradients of frequent tokens follow the formula.
pub fn frequent(target: &Target) {
    for (tokens, sizes) in frequent_tokens() {
        FLOATS.into_iter().for_each(|dtype| check_gradient(target, dtype, &tokens, None, sizes));
    }
}
