//! The order in which the kernel adds up gradients of embedding tables.

use meshwright::backend::DType;
use meshwright_conformance::frequent_tokens;

use crate::support::{FLOATS, assert_same, devices, host, values};

/// Occurrences of a token that are summed before the sum is added to others.
const SEGMENT: usize = 64;

/// The gradient with the summation order of segments.
fn in_segments(
    dtype: DType,
    tokens: &[u32],
    [rows, cols, first]: [usize; 3],
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

#[test]
fn frequent_tokens_are_added_up_in_segments() {
    for (tokens, sizes @ [rows, cols, first]) in frequent_tokens() {
        for dtype in FLOATS {
            let before = values(rows * cols, 3);
            let expected = in_segments(dtype, &tokens, sizes, &before);
            for device in devices() {
                let dout = device.floats(dtype, &values(tokens.len() * cols, 2));
                let mut dtable = device.put(&before);
                let put = device.put(&tokens);
                let (dout, to) = (dout.view(), dtable.view_mut());
                device.backend().embedding_backward(put.view(), None, first, dout, to);
                let what = format!("{dtype}, {} tokens", tokens.len());
                assert_same(&what, &dtable.get::<f32>(), &expected);
            }
        }
    }
}
