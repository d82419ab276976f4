//! Elements by their index along a dim, indices of the largest elements, and running sums.

use meshwright_backend::{DType, IndexedDim, MiddleDim};

use crate::values::values;
use crate::{FLOATS, Target};

/// Sizes before, along and after a dim.
const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [2, 5, 1], [3, 4, 7], [1, 70, 2], [2, 9, 33], [0, 4, 3]];

/// Rows for several threads of a CPU, and parts of rows.
const LARGE: [[usize; 3]; 2] = [[9, 600, 3], [70, 300, 1]];

/// Returns numbers of which some are equal.
fn coarse(len: usize, seed: u64) -> Vec<f32> {
    values(len, seed).into_iter().map(|x| (x * 4.0).round() / 4.0).collect()
}

/// Elements are taken and added up by their index; indices that are not held are zero, and not added.
pub fn by_index(target: &Target) {
    for [outer, len, inner] in target.cases(&SIZES, &LARGE) {
        for (is_elementwise, count, first, gap) in [
            (false, len, 0, [len, 0]),
            (true, 2 * len, 3, [len, 0]),
            (false, 3, 1, [len / 2, 2]),
            (true, 1, 0, [len / 2, 1]),
        ] {
            let shape = IndexedDim { outer, len, inner, count, is_elementwise, first, gap };
            let index = |at: usize| (at * 7 + at / 5) % (len + 6);
            let indices: Vec<u32> = (0..shape.indices()).map(|at| index(at) as u32).collect();
            let place = |index: u32| {
                (0..len)
                    .find(|at| first + at + if *at < gap[0] { 0 } else { gap[1] } == index as usize)
            };
            // Each element in the order of indices, and its place among the held ones.
            let places: Vec<Option<usize>> = (0..outer * count * inner)
                .map(|at| {
                    let (row, i) = (at / inner, at % inner);
                    let index = indices[if is_elementwise { at } else { row }];
                    place(index).map(|place| (row / count * len + place) * inner + i)
                })
                .collect();
            for dtype in FLOATS {
                let what = format!("{shape:?} of {dtype}");
                let of = target.put(&indices);
                let x = target.floats(dtype, &values(outer * len * inner, 1));
                let held = x.numbers();
                let taken: Vec<f32> =
                    places.iter().map(|at| at.map_or(0.0, |at| held[at])).collect();
                let mut out = target.blank(dtype, taken.len());
                target.backend().take_elements(&shape, of.view(), x.view(), out.view_mut());
                target.check_exactly(&what, &out, &taken);

                let x = target.floats(dtype, &coarse(places.len(), 2));
                let mut sums = target.floats(DType::F32, &coarse(outer * len * inner, 3));
                let mut expected = sums.numbers();
                for (x, at) in x.numbers().iter().zip(&places) {
                    if let Some(at) = at {
                        expected[*at] += x;
                    }
                }
                target.backend().add_elements(&shape, of.view(), x.view(), sums.view_mut());
                target.check_exactly(&what, &sums, &expected);
            }
        }
    }
}

/// The largest elements are found in order, the first of equal ones first, and NaN before all others.
pub fn largest(target: &Target) {
    for [outer, len, inner] in target.cases(&SIZES, &LARGE) {
        for k in [0, 1, 2, len] {
            let k = k.min(len);
            let dim = MiddleDim { outer, len, inner };
            for dtype in FLOATS {
                let mut numbers = coarse(outer * len * inner, 1);
                let special = [f32::NAN, -0.0, f32::NEG_INFINITY, 0.0, f32::INFINITY];
                numbers
                    .iter_mut()
                    .step_by(5)
                    .zip(special.iter().cycle())
                    .for_each(|(x, y)| *x = *y);
                let x = target.floats(dtype, &numbers);
                let mut positions = target.put(&vec![7u32; outer * k * inner]);
                target.backend().largest(dim, k, x.view(), positions.view_mut());
                let numbers = x.numbers();
                let mut expected = vec![0; outer * k * inner];
                for (block, i) in (0..outer).flat_map(|block| (0..inner).map(move |i| (block, i))) {
                    let value = |at: usize| numbers[(block * len + at) * inner + i];
                    let mut order: Vec<usize> = (0..len).collect();
                    order.sort_by(|a, b| {
                        let (a, b) = (value(*a), value(*b));
                        b.is_nan()
                            .cmp(&a.is_nan())
                            .then(b.partial_cmp(&a).unwrap_or(a.is_nan().cmp(&b.is_nan())))
                    });
                    for (at, position) in order[..k].iter().enumerate() {
                        expected[(block * k + at) * inner + i] = *position as u32;
                    }
                }
                assert_eq!(positions.get::<u32>(), expected, "{k} of {dim:?} of {dtype}");
            }
        }
    }
}

/// Sums up to each element and from each element on.
pub fn running_sums(target: &Target) {
    for [outer, len, inner] in target.cases(&SIZES, &LARGE) {
        for (dtype, from_end) in
            FLOATS.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)])
        {
            let x = target.floats(dtype, &values(outer * len * inner, 1));
            let wide = x.wide();
            let mut expected = vec![0.0; wide.len()];
            for (block, i) in (0..outer).flat_map(|block| (0..inner).map(move |i| (block, i))) {
                let mut sum = 0.0;
                for at in 0..len {
                    let at = (block * len + if from_end { len - 1 - at } else { at }) * inner + i;
                    sum += wide[at];
                    expected[at] = sum;
                }
            }
            let mut y = target.blank(dtype, wide.len());
            target.backend().running_sum(
                MiddleDim { outer, len, inner },
                from_end,
                x.view(),
                y.view_mut(),
            );
            target.check(&format!("{len} of {dtype}"), &y, &expected, 1e-6);
        }
    }
}
