//! Embedding tables on a simulated device.

mod support;

use meshwright::backend::DType;
use support::{FLOATS, Side, assert_same, numbers_below, on_both, values};

/// Tokens, rows of the table, columns, and the first row.
const SIZES: [(usize, usize, usize, usize); 7] = [
    (0, 3, 4, 0),
    (1, 1, 1, 0),
    (37, 11, 5, 7),
    (70, 20, 24, 3),
    (9, 50, 264, 0),
    (2500, 300, 3, 20),
    (600, 70_000, 2, 0),
];

/// Some before and some after the table.
fn tokens(n: usize, rows: usize, first_row: usize) -> Vec<u32> {
    let mut tokens = numbers_below((rows + 2 * first_row) as u32, n, 9);
    if let Some(last) = tokens.last_mut() {
        *last = u32::MAX;
    }
    tokens
}

fn gather(
    side: &Side,
    dtype: DType,
    tokens: &[u32],
    rows: usize,
    cols: usize,
    first: usize,
) -> Vec<f32> {
    let table = side.floats(dtype, &values(rows * cols, 1));
    let mut out = side.blank(dtype, tokens.len() * cols);
    let tokens = side.put(tokens);
    side.backend().embedding(tokens.view(), table.view(), first, out.view_mut());
    out.numbers()
}

fn backward(
    side: &Side,
    dtype: DType,
    tokens: &[u32],
    rows: usize,
    cols: usize,
    first: usize,
) -> Vec<f32> {
    let dout = side.floats(dtype, &values(tokens.len() * cols, 2));
    let mut dtable = side.put(&values(rows * cols, 3));
    let tokens = side.put(tokens);
    side.backend().embedding_backward(tokens.view(), first, dout.view(), dtable.view_mut());
    dtable.get()
}

#[test]
fn rows_are_gathered_as_they_are() {
    for dtype in FLOATS {
        for (n, rows, cols, first) in SIZES {
            let tokens = tokens(n, rows, first);
            on_both(
                |side| gather(side, dtype, &tokens, rows, cols, first),
                |got, expected| assert_same(&format!("{dtype} {rows}x{cols}"), got, expected),
            );
        }
    }
}

#[test]
fn gradients_are_added_in_the_order_of_tokens() {
    for dtype in FLOATS {
        for (n, rows, cols, first) in SIZES {
            let tokens = tokens(n, rows, first);
            on_both(
                |side| backward(side, dtype, &tokens, rows, cols, first),
                |got, expected| assert_same(&format!("{dtype} {rows}x{cols}"), got, expected),
            );
        }
    }
}

#[test]
fn one_token_everywhere_is_one_sum() {
    for n in [1, 4, 5, 2048, 2300] {
        let tokens = vec![2; n];
        on_both(
            |side| backward(side, DType::Bf16, &tokens, 4, 8, 0),
            |got, expected| assert_same(&format!("{n} tokens"), got, expected),
        );
    }
}
