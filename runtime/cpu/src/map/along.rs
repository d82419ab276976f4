//! Leaves that are read along some dims of the result, in runs of its innermost dim.

use std::borrow::Cow;
use std::ops::Range;

use crate::float::{Float, convert};
use meshwright_backend::{Expr, LeafPositions, LeafStrides, Node};

/// Returns the expression with the strides of its leaves merged.
pub(super) fn merge_strides(expr: &Expr) -> Cow<'_, Expr> {
    if !expr.nodes.iter().any(|node| matches!(node, Node::Along(..))) {
        return Cow::Borrowed(expr);
    }
    let nodes = expr.nodes.iter().map(|node| match node {
        Node::Along(leaf, strides) => Node::Along(*leaf, strides.merged()),
        node => node.clone(),
    });
    Cow::Owned(Expr { nodes: nodes.collect() })
}

/// Calls `run` for each run of the elements that lie along the innermost dim: with its elements, relative to the first
/// one, and the element of the leaf that the first of them reads; the others are a stride further each.
#[inline(always)]
pub(super) fn each_run(
    strides: &LeafStrides,
    elements: Range<usize>,
    mut run: impl FnMut(Range<usize>, usize, usize),
) {
    let (inner, stride) = match (strides.sizes.last(), strides.strides.last()) {
        (Some(inner), Some(stride)) => (*inner, *stride),
        _ => (1, 0),
    };
    let outer = strides.sizes.len().saturating_sub(1);
    let mut at = elements.start;
    while at < elements.end {
        let (mut rest, column) = (at / inner, at % inner);
        let mut index = column * stride;
        for dim in (0..outer).rev() {
            index += rest % strides.sizes[dim] * strides.strides[dim];
            rest /= strides.sizes[dim];
        }
        let len = (inner - column).min(elements.end - at);
        let first = at - elements.start;
        run(first..first + len, index, stride);
        at += len;
    }
}

/// Fills `out` with a leaf read along some dims, from element `start` of the result on.
#[inline(always)]
pub(super) fn read_along<T: Float>(
    leaf: &[T],
    strides: &LeafStrides,
    start: usize,
    out: &mut [f32],
) {
    each_run(strides, start..start + out.len(), |elements, index, stride| {
        let out = &mut out[elements];
        match stride {
            0 => {
                convert(&leaf[index..index + 1], &mut out[..1]);
                let number = out[0];
                out.fill(number);
            }
            1 => convert(&leaf[index..index + out.len()], out),
            _ => {
                for (k, out) in out.iter_mut().enumerate() {
                    let at = index + k * stride;
                    convert(&leaf[at..at + 1], std::slice::from_mut(out));
                }
            }
        }
    });
}

/// Fills `out` with the global positions along a dim, from element `start` of the result on.
#[inline(always)]
pub(super) fn read_positions(positions: &LeafPositions, start: usize, out: &mut [f32]) {
    let mut strides = vec![0; positions.sizes.len()];
    strides[positions.dim] = 1;
    let along = LeafStrides { sizes: positions.sizes.clone(), strides }.merged();
    each_run(&along, start..start + out.len(), |elements, index, stride| {
        for (k, out) in out[elements].iter_mut().enumerate() {
            *out = positions.position(index + k * stride) as f32;
        }
    });
}

/// Adds the gradients of a leaf that is read along some dims to `sums`, whose first element is that of element `low` of
/// the leaf. The order of the sums depends on the sizes alone.
#[inline(always)]
pub(super) fn sum_along(
    strides: &LeafStrides,
    start: usize,
    grad: &[f32],
    low: usize,
    sums: &mut [f32],
) {
    each_run(strides, start..start + grad.len(), |elements, index, stride| {
        let (grad, sums) = (&grad[elements], &mut sums[index - low..]);
        match stride {
            0 => sums[0] += sum_in_lanes(grad),
            1 => sums.iter_mut().zip(grad).for_each(|(sum, grad)| *sum += grad),
            _ => sums.iter_mut().step_by(stride).zip(grad).for_each(|(sum, grad)| *sum += grad),
        }
    });
}

/// Returns the sum of numbers, in eight parts, which vectorizes.
#[inline(always)]
fn sum_in_lanes(x: &[f32]) -> f32 {
    let (vectors, rest) = x.as_chunks::<8>();
    let mut lanes = [0.0f32; 8];
    for vector in vectors {
        lanes.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
    rest.iter().fold(sum, |sum, x| sum + x)
}

/// Returns the range of elements of the leaf that `elements` of the result read.
pub(super) fn leaf_range(strides: &LeafStrides, elements: Range<usize>) -> Range<usize> {
    if elements.is_empty() {
        return 0..0;
    }
    let (mut first, mut last) = (elements.start, elements.end - 1);
    let (mut low, mut inner) = (0, strides.result_len());
    for (dim, (size, stride)) in strides.sizes.iter().zip(&strides.strides).enumerate() {
        inner /= size;
        let (from, to) = (first / inner, last / inner);
        if from != to {
            let behind = strides.sizes[dim + 1..].iter().zip(&strides.strides[dim + 1..]);
            let rest: usize = behind.map(|(size, stride)| (size - 1) * stride).sum();
            return low + from * stride..low + to * stride + rest + 1;
        }
        low += from * stride;
        (first, last) = (first % inner, last % inner);
    }
    low..low + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_all_that_is_read() {
        let cases: [(&[usize], &[usize]); 5] = [
            (&[2, 3, 4], &[4, 0, 1]),
            (&[2, 3, 4], &[3, 1, 0]),
            (&[3, 4], &[1, 0]),
            (&[3, 4], &[1, 3]),
            (&[12], &[0]),
        ];
        for (sizes, strides) in cases {
            let strides = LeafStrides { sizes: sizes.to_vec(), strides: strides.to_vec() };
            let len = strides.result_len();
            for first in 0..len {
                for last in first..len {
                    let range = leaf_range(&strides, first..last + 1);
                    assert!(range.end <= strides.leaf_len().max(1), "{strides:?}");
                    for i in first..=last {
                        assert!(range.contains(&strides.leaf_index(i)), "{i} of {strides:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn lanes_sum_all_numbers() {
        for len in 0..40 {
            let numbers: Vec<f32> = (0..len).map(|i| i as f32).collect();
            assert_eq!(sum_in_lanes(&numbers), numbers.iter().sum::<f32>());
        }
    }
}
