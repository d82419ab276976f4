//! Boxes of global tensors, and copying between them.

use std::ops::Range;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// A box of a global tensor: a range of indices in every dim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TensorBox {
    /// First index in every dim.
    pub offset: Vec<usize>,
    /// Length in every dim.
    pub shape: Vec<usize>,
}

/// Dtype of the numbers in a file, always little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredDtype {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16, the upper half of single precision.
    Bf16,
}

impl TensorBox {
    /// Creates the box at `offset` of `shape`.
    ///
    /// # Panics
    /// If the two have different numbers of dims: a fault of the calling code.
    pub fn new(offset: &[usize], shape: &[usize]) -> TensorBox {
        assert_eq!(offset.len(), shape.len(), "offset and shape of a box");
        TensorBox { offset: offset.to_vec(), shape: shape.to_vec() }
    }

    /// Creates the box of a whole tensor.
    pub fn whole(shape: &[usize]) -> TensorBox {
        TensorBox { offset: vec![0; shape.len()], shape: shape.to_vec() }
    }

    /// Cuts a run of the row-major elements of a tensor of `shape` into boxes, in the order of the elements: at most
    /// two for each dim and one more.
    pub fn of_run(shape: &[usize], run: Range<usize>) -> Vec<TensorBox> {
        let Some((rows, rest)) = shape.split_first() else {
            return if run.is_empty() { Vec::new() } else { vec![TensorBox::whole(&[])] };
        };
        if run.is_empty() {
            return Vec::new();
        }
        let row_len: usize = rest.iter().product();
        // Elements of one row, as boxes of the whole tensor.
        let within = |row: usize, run: Range<usize>| {
            TensorBox::of_run(rest, run).into_iter().map(move |part| {
                let with_row = |first: usize, rest: Vec<usize>| [vec![first], rest].concat();
                TensorBox { offset: with_row(row, part.offset), shape: with_row(1, part.shape) }
            })
        };
        let (first, last) = (run.start / row_len, run.end / row_len);
        debug_assert!(last <= *rows);
        if first == last {
            return within(first, run.start % row_len..run.end % row_len).collect();
        }
        let whole_from = run.start.div_ceil(row_len);
        let mut boxes = Vec::new();
        if whole_from > first {
            boxes.extend(within(first, run.start % row_len..row_len));
        }
        if last > whole_from {
            let mut rows = TensorBox::whole(shape);
            (rows.offset[0], rows.shape[0]) = (whole_from, last - whole_from);
            boxes.push(rows);
        }
        boxes.extend(within(last, 0..run.end % row_len));
        boxes
    }

    /// Returns the box moved by `offset`.
    pub fn moved_by(mut self, offset: &[usize]) -> TensorBox {
        self.offset.iter_mut().zip(offset).for_each(|(start, by)| *start += by);
        self
    }

    /// Returns the number of elements; `None` if it overflows.
    pub fn checked_len(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |len, extent| len.checked_mul(*extent))
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the box is inside of a tensor of `shape`.
    pub fn is_inside(&self, shape: &[usize]) -> bool {
        let fits = |((offset, extent), size): ((&usize, &usize), &usize)| {
            offset.checked_add(*extent).is_some_and(|end| end <= *size)
        };
        self.offset.len() == shape.len()
            && self.shape.len() == shape.len()
            && self.offset.iter().zip(&self.shape).zip(shape).all(fits)
    }

    /// Returns the intersection of two boxes; `None` if they share no element.
    pub fn intersection(&self, other: &TensorBox) -> Option<TensorBox> {
        let mut common = TensorBox { offset: Vec::new(), shape: Vec::new() };
        for dim in 0..self.offset.len() {
            let start = self.offset[dim].max(other.offset[dim]);
            let end = self.end(dim).min(other.end(dim));
            if start >= end {
                return None;
            }
            common.offset.push(start);
            common.shape.push(end - start);
        }
        Some(common)
    }

    /// Returns one past the last index of `dim`. Saturates, as the numbers of a file may be any.
    pub fn end(&self, dim: usize) -> usize {
        self.offset[dim].saturating_add(self.shape[dim])
    }

    /// Returns the position of the global index `at` in the row-major elements of this box.
    fn position(&self, at: &[usize]) -> usize {
        let mut position = 0;
        for (dim, at) in at.iter().enumerate() {
            position = position * self.shape[dim] + at - self.offset[dim];
        }
        position
    }
}

impl std::fmt::Display for TensorBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = |(start, extent): (&usize, &usize)| {
            format!("{start}..{}", start.saturating_add(*extent))
        };
        let dims: Vec<_> = self.offset.iter().zip(&self.shape).map(range).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

impl std::fmt::Display for StoredDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StoredDtype::F32 => "f32",
            StoredDtype::F16 => "f16",
            StoredDtype::Bf16 => "bf16",
        })
    }
}

impl StoredDtype {
    /// Returns the bytes of one number.
    pub const fn bytes(self) -> usize {
        match self {
            StoredDtype::F32 => 4,
            StoredDtype::F16 | StoredDtype::Bf16 => 2,
        }
    }
}

/// Calls `visit` with the runs of memory of `source_box` that hold its intersection with `target_box`, as ranges of
/// elements.
#[cfg(feature = "remote")]
pub fn runs_of_common(
    source_box: &TensorBox,
    target_box: &TensorBox,
    mut visit: impl FnMut(Range<usize>),
) {
    let common = source_box.intersection(target_box).filter(|common| !common.is_empty());
    let Some(common) = common else { return };
    let Some(last) = common.shape.len().checked_sub(1) else { return visit(0..1) };
    let mut at = common.offset.clone();
    for _ in 0..common.len() / common.shape[last] {
        let start = source_box.position(&at);
        visit(start..start + common.shape[last]);
        advance_index(&mut at[..last], &common);
    }
}

/// Copies the intersection of two boxes of a tensor, as f32, and returns its number of elements.
///
/// `source` has the elements of `source_box` row by row, `target` the elements of `target_box`.
pub fn copy_common(
    source: &[u8],
    stored: StoredDtype,
    source_box: &TensorBox,
    target: &mut [f32],
    target_box: &TensorBox,
) -> usize {
    let Some(common) = source_box.intersection(target_box) else { return 0 };
    // Trailing dims that both boxes span fully form one run of memory with the dim before them.
    let mut first_in_run = common.shape.len();
    let mut run = 1;
    while first_in_run > 0 {
        first_in_run -= 1;
        run *= common.shape[first_in_run];
        let extents = [source_box.shape[first_in_run], target_box.shape[first_in_run]];
        if extents != [common.shape[first_in_run]; 2] {
            break;
        }
    }
    let mut at = common.offset.clone();
    for _ in 0..common.len() / run {
        let (from, to) = (source_box.position(&at), target_box.position(&at));
        let width = stored.bytes();
        let bytes = &source[from * width..(from + run) * width];
        decode_stored(bytes, stored, &mut target[to..to + run]);
        advance_index(&mut at[..first_in_run], &common);
    }
    common.len()
}

/// Advances an index in row-major order over the leading dims of `within`.
fn advance_index(at: &mut [usize], within: &TensorBox) {
    for dim in (0..at.len()).rev() {
        at[dim] += 1;
        if at[dim] < within.end(dim) {
            return;
        }
        at[dim] = within.offset[dim];
    }
}

fn decode_stored(bytes: &[u8], stored: StoredDtype, out: &mut [f32]) {
    match stored {
        // The same bytes, on the little-endian machines that `tensors` requires.
        StoredDtype::F32 => bytemuck::cast_slice_mut(out).copy_from_slice(bytes),
        StoredDtype::F16 => widen_bytes(bytes, out, |pair| f16::from_le_bytes(pair).to_f32()),
        StoredDtype::Bf16 => widen_bytes(bytes, out, |pair| bf16::from_le_bytes(pair).to_f32()),
    }
}

fn widen_bytes(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; 2]) -> f32) {
    for (out, pair) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *out = decode(*pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every box of a tensor of `shape`.
    fn boxes(shape: &[usize]) -> Vec<TensorBox> {
        shape.iter().fold(vec![TensorBox::whole(&[])], |boxes, size| {
            let ranges =
                (0..*size).flat_map(|start| (start + 1..=*size).map(move |end| (start, end)));
            let ranges: Vec<_> = ranges.collect();
            let grow = |tensor_box: &TensorBox, (start, end): (usize, usize)| {
                let mut tensor_box = tensor_box.clone();
                tensor_box.offset.push(start);
                tensor_box.shape.push(end - start);
                tensor_box
            };
            boxes
                .iter()
                .flat_map(|tensor_box| ranges.iter().map(|range| grow(tensor_box, *range)))
                .collect()
        })
    }

    /// Global indices of a box, in row-major order.
    fn indices(tensor_box: &TensorBox) -> Vec<Vec<usize>> {
        let mut at = tensor_box.offset.clone();
        (0..tensor_box.len())
            .map(|_| {
                let now = at.clone();
                advance_index(&mut at, tensor_box);
                now
            })
            .collect()
    }

    #[test]
    fn intersections_match_a_search_by_element() {
        for shape in [vec![], vec![5], vec![3, 3], vec![2, 3, 2]] {
            let whole = TensorBox::whole(&shape);
            let value = |at: &Vec<usize>| whole.position(at) as f32 + 1.0;
            for source_box in boxes(&shape) {
                let bytes: Vec<u8> =
                    indices(&source_box).iter().flat_map(|at| value(at).to_le_bytes()).collect();
                for target_box in boxes(&shape) {
                    let mut target = vec![0.0; target_box.len()];
                    let n = copy_common(
                        &bytes,
                        StoredDtype::F32,
                        &source_box,
                        &mut target,
                        &target_box,
                    );
                    let in_source = indices(&source_box);
                    let expected: Vec<_> = indices(&target_box)
                        .iter()
                        .map(|at| if in_source.contains(at) { value(at) } else { 0.0 })
                        .collect();
                    assert_eq!(target, expected, "{source_box} to {target_box}");
                    assert_eq!(n, expected.iter().filter(|x| **x > 0.0).count());
                }
            }
        }
    }

    #[test]
    fn half_precision_is_widened_exactly() {
        let numbers = [0.0, -1.5, 6.1e-5, 65504.0];
        let (mut out, whole) = ([0.0; 4], TensorBox::whole(&[4]));
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
        copy_common(&bytes, StoredDtype::F16, &whole, &mut out, &whole);
        assert_eq!(out, numbers.map(|x| f16::from_f32(x).to_f32()));
        let bytes: Vec<u8> =
            numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
        copy_common(&bytes, StoredDtype::Bf16, &whole, &mut out, &whole);
        assert_eq!(out, numbers.map(|x| bf16::from_f32(x).to_f32()));
    }

    #[test]
    fn runs_are_cut_into_boxes_in_order() {
        for shape in [vec![], vec![7], vec![3, 4], vec![3, 2, 4], vec![2, 3, 1, 2]] {
            let whole = TensorBox::whole(&shape);
            for start in 0..=whole.len() {
                for end in start..=whole.len() {
                    let boxes = TensorBox::of_run(&shape, start..end);
                    let elements: Vec<usize> = boxes
                        .iter()
                        .flat_map(|part| indices(part).into_iter().map(|at| whole.position(&at)))
                        .collect();
                    assert_eq!(elements, (start..end).collect::<Vec<_>>(), "{shape:?}");
                    assert!(boxes.len() <= 2 * shape.len() + 1);
                }
            }
        }
    }

    #[test]
    fn boxes_outside_a_tensor_are_recognized() {
        assert!(TensorBox::new(&[1, 0], &[2, 3]).is_inside(&[3, 3]));
        assert!(!TensorBox::new(&[2, 0], &[2, 3]).is_inside(&[3, 3]));
        assert!(!TensorBox::new(&[usize::MAX], &[2]).is_inside(&[3]));
        assert!(!TensorBox::new(&[0], &[2]).is_inside(&[3, 3]));
    }
}
