//! Copies to another order of dims.

use meshwright_backend::{CopyDim, StridedCopy};

use crate::values::values;
use crate::{FLOATS, Target};

/// Sizes of three dims: none, one, vectors, partial tiles.
const SIZES: [[usize; 3]; 6] =
    [[0, 3, 2], [1, 1, 1], [2, 8, 16], [3, 33, 40], [70, 2, 9], [5, 64, 7]];

/// Several tiles, and rows for several threads of a CPU.
const LARGE: [[usize; 3]; 1] = [[9, 67, 70]];

/// All orders of three dims.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Returns the place of each element of dims of `sizes` with these strides, row-major.
fn places(sizes: &[usize], strides: &[usize]) -> Vec<usize> {
    let total = sizes.iter().product();
    let place = |flat: usize| {
        let (mut rest, mut place) = (flat, 0);
        for (size, stride) in sizes.iter().zip(strides).rev() {
            place += rest % size * stride;
            rest /= size;
        }
        place
    };
    (0..total).map(place).collect()
}

/// Returns the strides of dims in `order` of a row-major operand with `room` further elements in each row.
fn strides(sizes: &[usize], order: &[usize], room: usize) -> Vec<usize> {
    let (mut strides, mut stride) = (vec![0; sizes.len()], 1);
    for (at, dim) in order.iter().enumerate().rev() {
        strides[*dim] = stride;
        stride *= sizes[*dim] + if at + 1 == order.len() { room } else { 0 };
    }
    strides
}

/// Checks a copy of dims of `sizes` from and to these strides and starts.
fn check(target: &Target, sizes: &[usize], strides: [&[usize]; 2], starts: [usize; 2]) {
    let dims = sizes.iter().zip(strides[0]).zip(strides[1]);
    let dims = dims.map(|((size, src), dst)| CopyDim { size: *size, src: *src, dst: *dst });
    let copy = StridedCopy::new(dims).starting_at(starts[0], starts[1]);
    let [from, to] = strides.map(|strides| places(sizes, strides));
    let len =
        |places: &[usize], start: usize| start + places.iter().max().map_or(0, |last| last + 3);
    for dtype in FLOATS {
        let src = target.floats(dtype, &values(len(&from, starts[0]), 1));
        let mut dst = target.floats(dtype, &values(len(&to, starts[1]), 2));
        let (numbers, mut expected) = (src.numbers(), dst.numbers());
        for (from, to) in from.iter().zip(&to) {
            expected[starts[1] + to] = numbers[starts[0] + from];
        }
        target.backend().copy_strided(&copy, src.view(), dst.view_mut());
        target.check_exactly(&format!("{copy:?} of {dtype}"), &dst, &expected);
    }
}

/// Every order of dims, of whole operands and of parts of larger ones; elements between are not written.
pub fn orders(target: &Target) {
    for sizes in target.cases(&SIZES, &LARGE) {
        for order in ORDERS {
            let whole = strides(&sizes, &[0, 1, 2], 0);
            check(target, &sizes, [&whole, &strides(&sizes, &order, 0)], [0, 0]);
            let part = strides(&sizes, &[0, 1, 2], 4);
            check(target, &sizes, [&part, &strides(&sizes, &order, 2)], [1, 8]);
        }
    }
}

/// Five dims, and elements of the source that are repeated.
pub fn repeated(target: &Target) {
    let sizes = [2, 3, 4, 2, 5];
    let whole = strides(&sizes, &[0, 1, 2, 3, 4], 0);
    check(target, &sizes, [&whole, &strides(&sizes, &[4, 2, 0, 3, 1], 0)], [0, 0]);
    check(target, &sizes, [&[0, 5, 0, 0, 1], &whole], [0, 0]);
    check(target, &[9, 40], [&[1, 0], &[40, 1]], [2, 0]);
}
