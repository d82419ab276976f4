//! Embedding tables on a simulated device.

use meshwright::backend::DType;

use crate::support::{
    FLOATS, Side, assert_close, assert_same, host, numbers_below, on_both, values,
};

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

/// Some tokens are before and some after the table.
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
    padding: Option<u32>,
    rows: usize,
    cols: usize,
    first: usize,
) -> Vec<f32> {
    let dout = side.floats(dtype, &values(tokens.len() * cols, 2));
    let mut dtable = side.put(&values(rows * cols, 3));
    let tokens = side.put(tokens);
    side.backend().embedding_backward(
        tokens.view(),
        padding,
        first,
        dout.view(),
        dtable.view_mut(),
    );
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
                |side| backward(side, dtype, &tokens, tokens.first().copied(), rows, cols, first),
                |got, expected| assert_same(&format!("{dtype} {rows}x{cols}"), got, expected),
            );
        }
    }
}

/// Occurrences of a token that are summed before the sum is added to others.
const SEGMENT: usize = 64;

/// The gradient with the summation order of segments.
fn in_segments(
    dtype: DType,
    tokens: &[u32],
    rows: usize,
    cols: usize,
    first: usize,
    dtable: &[f32],
) -> Vec<f32> {
    let dout = host().floats(dtype, &values(tokens.len() * cols, 2)).numbers();
    let mut sums = dtable.to_vec();
    for (row, sum) in sums.chunks_exact_mut(cols).enumerate() {
        let is_row = |token: u32| token as usize == row + first;
        let occurrences: Vec<&[f32]> = (tokens.iter().zip(dout.chunks_exact(cols)))
            .filter(|(token, _)| is_row(**token))
            .map(|(_, dout)| dout)
            .collect();
        let add = |sum: &mut [f32], x: &[f32]| sum.iter_mut().zip(x).for_each(|(s, x)| *s += x);
        for (index, segment) in occurrences.chunks(SEGMENT).enumerate() {
            let mut partial = if index == 0 { sum.to_vec() } else { vec![0.0; cols] };
            segment.iter().for_each(|dout| add(&mut partial, dout));
            if index == 0 {
                sum.copy_from_slice(&partial);
            } else {
                add(sum, &partial);
            }
        }
    }
    assert_eq!(sums.len(), rows * cols);
    sums
}

/// Tokens distributed as in text: the i-th most frequent one is 1 / i as frequent as the first.
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

/// The result is bitwise that of segments, and close to that of the CPU.
#[track_caller]
fn assert_in_segments(tokens: &[u32], rows: usize, cols: usize, first: usize) {
    for dtype in FLOATS {
        let ordered = in_segments(dtype, tokens, rows, cols, first, &values(rows * cols, 3));
        on_both(
            |side| backward(side, dtype, tokens, None, rows, cols, first),
            |got, expected| {
                let what = format!("{dtype}, {} tokens", tokens.len());
                assert_same(&what, got, &ordered);
                assert_close(&what, got, expected, 1e-5, 1e-3);
            },
        );
    }
}

#[test]
fn one_token_everywhere_is_added_up_in_segments() {
    for n in [1, 4, 5, 63, 64, 65, 127, 128, 129, 2048, 2300] {
        assert_in_segments(&vec![2; n], 4, 8, 0);
    }
    // Runs that start anywhere in 64 keys, some of several segments, and tokens outside the table.
    for before in [1, 31, 63, 64, 65] {
        let runs = [(0, before), (1, 200), (2, 64), (3, 65), (5, 130), (9, 70)];
        let tokens: Vec<u32> =
            runs.into_iter().flat_map(|(token, count)| vec![token; count]).collect();
        assert_in_segments(&tokens, 5, 6, 1);
    }
}

#[test]
fn frequent_tokens_are_added_up_in_segments() {
    let tokens = zipf(4096, 300);
    let most = (0..300).map(|token| tokens.iter().filter(|t| **t == token).count()).max().unwrap();
    assert!(most > 10 * SEGMENT, "{most}");
    assert_in_segments(&tokens, 280, 24, 5);
}
