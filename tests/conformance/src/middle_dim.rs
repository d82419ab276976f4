//! Reductions over a middle dim other than sums, functions of elements and of numbers of their columns, and the first
//! element of a column.

use meshwright_backend::ops::middle_dim::{
    FindInDimArgs, MapDimArgs, PlaceInDimArgs, ReduceDimArgs,
};
use meshwright_backend::{DType, DimFunction, DimPositions, DimReduction, MiddleDim};

use crate::{FLOATS, Target, scaled, values};

/// Outer sizes, sizes of the dim, and inner sizes.
const SIZES: [[usize; 3]; 11] = [
    [0, 3, 4],
    [3, 0, 4],
    [1, 1, 1],
    [5, 7, 1],
    [1, 9000, 1],
    [3, 4, 7],
    [2, 3, 48],
    [40, 3, 33],
    [1, 200, 40],
    [1, 70, 257],
    [1, 9, 1100],
];

/// Sizes for several threads of a CPU.
const LARGE: [[usize; 3]; 2] = [[2, 10, 3001], [200, 200, 1]];

const SCALE: f32 = 0.7;

fn dim_of([outer, len, inner]: [usize; 3]) -> MiddleDim {
    MiddleDim { outer, len, inner }
}

/// Returns the indices of the elements of column `column`.
fn elements(dim: MiddleDim, column: usize) -> impl Iterator<Item = usize> {
    let first = column / dim.inner * dim.len * dim.inner + column % dim.inner;
    (0..dim.len).map(move |local| first + local * dim.inner)
}

/// Returns the column of an element.
fn column_of(dim: MiddleDim, element: usize) -> usize {
    element / (dim.len * dim.inner) * dim.inner + element % dim.inner
}

fn reduction(kind: DimReduction, terms: impl Iterator<Item = (f64, f64)>, c: f64) -> f64 {
    let larger = |a: f64, b: f64| if a > b || a.is_nan() { a } else { b };
    let scale = f64::from(SCALE);
    match kind {
        DimReduction::Largest => terms.map(|(x, _)| x).fold(f64::NEG_INFINITY, larger),
        DimReduction::Smallest => -terms.map(|(x, _)| -x).fold(f64::NEG_INFINITY, larger),
        DimReduction::ExpSum => {
            let c = if c.is_infinite() { 0.0 } else { c };
            scale * terms.map(|(x, _)| (x - c).exp()).sum::<f64>()
        }
        DimReduction::SquareSum => scale * terms.map(|(x, _)| (x - c).powi(2)).sum::<f64>(),
        DimReduction::DotSum => scale * terms.map(|(x, second)| x * second).sum::<f64>(),
    }
}

/// Checks a reduction of `x`, with numbers of columns and without.
fn check_reduction(target: &Target, dim: MiddleDim, kind: DimReduction, dtype: DType, x: &[f32]) {
    let columns = dim.outer * dim.inner;
    let (x, second) = (target.floats(dtype, x), target.floats(dtype, &values(x.len(), 2)));
    for numbers in [Some(scaled(columns, 3, 4.0)), None] {
        let column = numbers.as_ref().map(|numbers| target.put(numbers));
        let mut y = target.blank(DType::F32, columns);
        let is_sum = !matches!(kind, DimReduction::Largest | DimReduction::Smallest);
        let args = ReduceDimArgs {
            x: x.view(),
            second: second.view(),
            column: column.as_ref().map(|column| column.view()),
            scale: if is_sum { SCALE } else { 1.0 },
            y: y.view_mut(),
        };
        target.backend().reduce_dim(dim, kind, args);
        let (x, second) = (x.wide(), second.wide());
        let number = |column: usize| numbers.as_ref().map_or(0.0, |c| f64::from(c[column]));
        let result = |column| {
            let terms = elements(dim, column).map(|at| (x[at], second[at]));
            reduction(kind, terms, number(column))
        };
        let expected: Vec<f64> = (0..columns).map(result).collect();
        target.check(&format!("{kind:?} of {dim:?}, {dtype}"), &y, &expected, 2e-6);
    }
}

/// Reductions follow the formula.
pub fn reductions(target: &Target) {
    for dim in target.cases(&SIZES, &LARGE).into_iter().map(dim_of) {
        for dtype in FLOATS {
            let x = scaled(dim.outer * dim.len * dim.inner, 1, 4.0);
            for kind in DimReduction::ALL {
                check_reduction(target, dim, kind, dtype, &x);
            }
        }
    }
}

fn function(kind: DimFunction, x: f64, second: f64, c: f64, d: f64) -> f64 {
    match kind {
        DimFunction::Softmax if c.is_infinite() => f64::NAN,
        DimFunction::LogSoftmax if c.is_infinite() => f64::NAN,
        DimFunction::ScaledExp if c == f64::NEG_INFINITY => 0.0,
        DimFunction::Direction if c == 0.0 => 0.0,
        DimFunction::Softmax => (x - c).exp() / d,
        DimFunction::LogSoftmax => x - c - d,
        DimFunction::ScaledExp => (x - c).exp() * d,
        DimFunction::SoftmaxGrad => x * (second - c),
        DimFunction::LogSoftmaxGrad => second - x.exp() * c,
        DimFunction::Centered => (x - c) * d,
        DimFunction::Direction => x / c * d,
    }
}

/// Checks a function of `x` and of numbers `c` of the columns.
fn check_function(target: &Target, dim: MiddleDim, kind: DimFunction, x: &[f32], c: &[f32]) {
    for dtype in FLOATS {
        let (x, second) = (target.floats(dtype, x), target.floats(dtype, &values(x.len(), 2)));
        let d: Vec<f32> = values(c.len(), 4).into_iter().map(|d| d + 1.5).collect();
        let mut y = target.blank(dtype, x.numbers().len());
        let [c_of, d_of] = [c, &d].map(|numbers| target.put(numbers));
        let args = MapDimArgs {
            x: x.view(),
            second: second.view(),
            c: c_of.view(),
            d: d_of.view(),
            y: y.view_mut(),
        };
        target.backend().map_dim(dim, kind, args);
        let operands = x.wide().into_iter().zip(second.wide()).enumerate();
        let expected: Vec<f64> = operands
            .map(|(at, (x, second))| {
                let column = column_of(dim, at);
                function(kind, x, second, c[column].into(), d[column].into())
            })
            .collect();
        target.check(&format!("{kind:?} of {dim:?}"), &y, &expected, 2e-6);
    }
}

/// Functions of elements and of numbers of their columns follow the formula.
pub fn functions(target: &Target) {
    let aligned = [[4, 16, 1], [3, 5, 16]];
    for dim in target.cases(&[&SIZES[..], &aligned].concat(), &LARGE).into_iter().map(dim_of) {
        let x = scaled(dim.outer * dim.len * dim.inner, 1, 4.0);
        let c: Vec<f32> = scaled(dim.outer * dim.inner, 3, 4.0);
        for kind in DimFunction::ALL {
            check_function(target, dim, kind, &x, &c);
        }
    }
}

/// Infinities and NaN, and numbers that are infinite or 0, have the results of the formula.
pub fn special_values(target: &Target) {
    for dim in [[9, 70, 1], [1, 70, 9], [1, 6, 9]].map(dim_of) {
        let mut x = scaled(dim.outer * dim.len * dim.inner, 1, 4.0);
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        for (column, special) in special.into_iter().enumerate() {
            x[elements(dim, column).nth(3).expect("an element")] = special;
        }
        for at in elements(dim, 3) {
            x[at] = f32::NEG_INFINITY;
        }
        for kind in [DimReduction::Largest, DimReduction::Smallest] {
            for dtype in FLOATS {
                check_reduction(target, dim, kind, dtype, &x);
            }
        }
        let finite = scaled(x.len(), 5, 4.0);
        let mut c = vec![0.5; 9];
        c[..4].copy_from_slice(&[f32::NEG_INFINITY, f32::INFINITY, 0.0, -0.0]);
        for kind in [DimFunction::ScaledExp, DimFunction::Softmax, DimFunction::Direction] {
            check_function(target, dim, kind, &finite, &c);
        }
        check_function(target, dim, DimFunction::ScaledExp, &x, &[f32::NEG_INFINITY; 9]);
        // An infinite number counts as 0.
        let x = target.put(&x);
        let mut y = target.blank(DType::F32, 9);
        let column = target.put(&[f32::NEG_INFINITY; 9]);
        let args = ReduceDimArgs {
            x: x.view(),
            second: x.view(),
            column: Some(column.view()),
            scale: 1.0,
            y: y.view_mut(),
        };
        target.backend().reduce_dim(dim, DimReduction::ExpSum, args);
        let y = y.numbers();
        assert!(y[0].is_nan() && y[1] == f32::INFINITY && y[3] == 0.0, "{y:?}");
        assert!(y[2].is_finite() && y[2] > 0.0, "{y:?}");
    }
}

/// The first of equal elements is found, also beyond a gap, and gets the gradient.
pub fn first_elements(target: &Target) {
    let positions = DimPositions { offset: 5, gap_at: 2, gap: 100 };
    for dim in target.cases(&SIZES, &LARGE).into_iter().map(dim_of) {
        let columns = dim.outer * dim.inner;
        for dtype in FLOATS {
            // Few different numbers, so that many are equal; column 1 has NaN, and column 2 has no such number.
            let numbers = values(dim.outer * dim.len * dim.inner, 1);
            let mut x: Vec<f32> = numbers.iter().map(|x| (4.0 * x).round()).collect();
            let mut column: Vec<f32> =
                values(columns, 2).iter().map(|x| (4.0 * x).round()).collect();
            if columns > 2 && dim.len > 0 {
                x[elements(dim, 1).last().expect("an element")] = f32::NAN;
                (column[1], column[2]) = (f32::NAN, 9.0);
            }
            let is_equal =
                |at: usize, number: f32| x[at] == number || x[at].is_nan() && number.is_nan();
            let first: Vec<Option<usize>> = (0..columns)
                .map(|c| elements(dim, c).position(|at| is_equal(at, column[c])))
                .collect();
            let expected = |first: &Option<usize>| {
                first.map_or(f32::NEG_INFINITY, |local| -(positions.global(local) as f32))
            };
            let [elements_of, column_of_x] = [target.floats(dtype, &x), target.put(&column)];
            let mut found = target.blank(DType::F32, columns);
            let args = FindInDimArgs {
                x: elements_of.view(),
                column: column_of_x.view(),
                positions,
                found: found.view_mut(),
            };
            target.backend().find_in_dim(dim, args);
            let expected: Vec<f32> = first.iter().map(expected).collect();
            target.check_exactly(&format!("found in {dim:?}"), &found, &expected);

            let dy = target.floats(dtype, &values(columns, 3));
            let mut dx = target.blank(dtype, x.len());
            let (of_found, of_dx) = (found.view(), dx.view_mut());
            let args = PlaceInDimArgs { found: of_found, positions, dy: dy.view(), dx: of_dx };
            target.backend().place_in_dim(dim, args);
            let mut placed = vec![0.0; x.len()];
            for (c, (first, dy)) in first.iter().zip(dy.numbers()).enumerate() {
                if let Some(at) = first.and_then(|local| elements(dim, c).nth(local)) {
                    placed[at] = dy;
                }
            }
            target.check_exactly(&format!("placed in {dim:?}"), &dx, &placed);
        }
    }
}
