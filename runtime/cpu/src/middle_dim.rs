//! Reductions over a middle dim other than sums, functions of elements and of the results of their columns, and the
//! first element of a column.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::math::{LANES, exp, fold_lanes, lane_sum, larger};
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::ops::middle_dim::{
    FindInDimArgs, MapDimArgs, PlaceInDimArgs, ReduceDimArgs,
};
use meshwright_backend::{DimFunction, DimPositions, DimReduction, MiddleDim, MiddleDimOps};

/// Columns that are reduced together, so that their results stay in the L1 cache.
const COLUMNS: usize = 1024;

impl MiddleDimOps for CpuBackend {
    fn reduce_dim(&self, dim: MiddleDim, reduction: DimReduction, mut args: ReduceDimArgs) {
        assert_eq!(args.x.len(), args.second.len(), "reduce_dim: operands of one size");
        let column = args.column.map_or(&[][..], |column| column.typed());
        let y = args.y.typed();
        macro_rules! reduce {
            ($T:ident: $($name:ident)*) => {
                match reduction {
                    $(DimReduction::$name => reduce_dim::<$T, $name>(
                        &self.workers, dim, args.x.typed(), args.second.typed(), column, y, args.scale,
                    ),)*
                }
            };
        }
        by_float!(args.x.dtype() => T; reduce!(T: Largest Smallest ExpSum SquareSum DotSum));
    }

    fn map_dim(&self, dim: MiddleDim, function: DimFunction, mut args: MapDimArgs) {
        let columns = [args.c, args.d].map(|column| column.typed());
        macro_rules! map {
            ($T:ident: $($name:ident)*) => {
                match function {
                    $(DimFunction::$name => map_dim::<$T, $name>(
                        &self.workers, dim, [args.x, args.second].map(|x| x.typed()), columns, args.y.typed(),
                    ),)*
                }
            };
        }
        by_float!(args.x.dtype() => T; map!(T: Softmax LogSoftmax ScaledExp SoftmaxGrad LogSoftmaxGrad Centered
            Direction));
    }

    fn find_in_dim(&self, dim: MiddleDim, mut args: FindInDimArgs) {
        let (column, found) = (args.column.typed(), args.found.typed());
        by_float!(args.x.dtype() => T;
            find_in_dim::<T>(&self.workers, dim, args.x.typed(), column, args.positions, found));
    }

    fn place_in_dim(&self, dim: MiddleDim, mut args: PlaceInDimArgs) {
        by_float!(args.dy.dtype() => T;
        place_in_dim::<T>(
            &self.workers, dim, args.found.typed(), args.positions, args.dy.typed(), args.dx.typed(),
        ));
    }
}

/// A [`DimReduction`]: the sum of a term of each element, or the largest one.
trait Reduction {
    const IS_SUM: bool = true;
    /// Factor of the result.
    const SIGN: f32 = 1.0;

    fn term<const FMA: bool>(x: f32, second: f32, c: f32) -> f32;
}

/// A [`DimFunction`].
trait Function {
    fn result<const FMA: bool>(x: f32, second: f32, c: f32, d: f32) -> f32;
}

macro_rules! reductions {
    ($($name:ident { $($constants:tt)* } |$x:ident, $second:ident, $c:ident, $fma:ident| $term:expr;)*) => {$(
        struct $name;

        impl Reduction for $name {
            $($constants)*

            #[inline(always)]
            fn term<const $fma: bool>($x: f32, $second: f32, $c: f32) -> f32 {
                $term
            }
        }
    )*};
}

reductions! {
    Largest { const IS_SUM: bool = false; } |x, _s, _c, FMA| x;
    Smallest { const IS_SUM: bool = false; const SIGN: f32 = -1.0; } |x, _s, _c, FMA| -x;
    ExpSum {} |x, _s, c, FMA| exp::<FMA>(x - if c.is_infinite() { 0.0 } else { c });
    SquareSum {} |x, _s, c, FMA| (x - c) * (x - c);
    DotSum {} |x, second, _c, FMA| x * second;
}

macro_rules! functions {
    ($($name:ident |$x:ident, $second:ident, $c:ident, $d:ident, $fma:ident| $result:expr;)*) => {$(
        struct $name;

        impl Function for $name {
            #[inline(always)]
            fn result<const $fma: bool>($x: f32, $second: f32, $c: f32, $d: f32) -> f32 {
                $result
            }
        }
    )*};
}

functions! {
    Softmax |x, _s, c, d, FMA| if c.is_infinite() { f32::NAN } else { exp::<FMA>(x - c) / d };
    LogSoftmax |x, _s, c, d, FMA| if c.is_infinite() { f32::NAN } else { x - c - d };
    ScaledExp |x, _s, c, d, FMA| if c == f32::NEG_INFINITY { 0.0 } else { exp::<FMA>(x - c) * d };
    SoftmaxGrad |x, second, c, _d, FMA| x * (second - c);
    LogSoftmaxGrad |x, second, c, _d, FMA| second - exp::<FMA>(x) * c;
    Centered |x, _s, c, d, FMA| (x - c) * d;
    Direction |x, _s, c, d, FMA| if c == 0.0 { 0.0 } else { x / c * d };
}

fn reduce_dim<T: Float, R: Reduction>(
    workers: &Workers,
    MiddleDim { outer, len: n, inner }: MiddleDim,
    x: &[T],
    second: &[T],
    column: &[f32],
    y: &mut [f32],
    scale: f32,
) {
    assert_eq!((x.len(), y.len()), (outer * n * inner, outer * inner), "reduce_dim: sizes");
    assert!(column.is_empty() || column.len() == y.len(), "reduce_dim: a number for each column");
    let scale = scale * R::SIGN;
    workers.rows(outer * inner, n, Rows(y, 1), |range, y| {
        if inner == 1 {
            let elements = range.start * n..range.end * n;
            let column = if column.is_empty() { column } else { &column[range] };
            let operands = (&x[elements.clone()], &second[elements]);
            reduce_rows::<T, R>(operands.0, operands.1, column, n, y.0, scale);
            return;
        }
        let mut at = range.start;
        let mut rest = y.0;
        while !rest.is_empty() {
            let (block, first) = (at / inner, at % inner);
            let columns = rest.len().min(inner - first).min(COLUMNS);
            let (head, tail) = rest.split_at_mut(columns);
            let elements = block * n * inner..(block + 1) * n * inner;
            let column = if column.is_empty() { &[0.0; COLUMNS] } else { &column[at..] };
            let operands = (&x[elements.clone()], &second[elements]);
            reduce_columns::<T, R>(operands.0, operands.1, column, inner, first, head, scale);
            at += columns;
            rest = tail;
        }
    });
}

dispatch! {
    fn reduce_rows<const FMA: bool, T: Float, R: Reduction>(
        x: &[T], second: &[T], column: &[f32], n: usize, y: &mut [f32], scale: f32,
    ) {
        for (row, y) in y.iter_mut().enumerate() {
            let (x, second) = (&x[row * n..][..n], &second[row * n..][..n]);
            let c = column.get(row).copied().unwrap_or(0.0);
            if R::IS_SUM {
                *y = scale * lane_sum([x, second], |[x, second]| R::term::<FMA>(x, second, c));
                continue;
            }
            let mut lanes = [f32::NEG_INFINITY; LANES];
            for chunk in x.chunks(LANES) {
                for (lane, x) in lanes.iter_mut().zip(chunk) {
                    *lane = larger(*lane, R::term::<FMA>(x.widen_to_f32(), 0.0, c));
                }
            }
            *y = scale * fold_lanes(lanes, larger);
        }
    }
}

dispatch! {
    fn reduce_columns<const FMA: bool, T: Float, R: Reduction>(
        x: &[T], second: &[T], column: &[f32], inner: usize, first: usize, y: &mut [f32], scale: f32,
    ) {
        y.fill(if R::IS_SUM { 0.0 } else { f32::NEG_INFINITY });
        for (x, second) in x.chunks_exact(inner).zip(second.chunks_exact(inner)) {
            let elements = x[first..].iter().zip(&second[first..]).zip(column);
            for (y, ((x, second), c)) in y.iter_mut().zip(elements) {
                let term = R::term::<FMA>(x.widen_to_f32(), second.widen_to_f32(), *c);
                *y = if R::IS_SUM { *y + term } else { larger(*y, term) };
            }
        }
        for y in y {
            *y *= scale;
        }
    }
}

fn map_dim<T: Float, F: Function>(
    workers: &Workers,
    MiddleDim { outer, len: n, inner }: MiddleDim,
    [x, second]: [&[T]; 2],
    [c, d]: [&[f32]; 2],
    y: &mut [T],
) {
    let sizes = [x.len(), second.len(), y.len()];
    assert_eq!(sizes, [outer * n * inner; 3], "map_dim: operands of one size");
    assert_eq!([c.len(), d.len()], [outer * inner; 2], "map_dim: numbers of each column");
    if y.is_empty() {
        return;
    }
    if inner == 1 {
        workers.rows(outer, n, Rows(y, n), |range, y| {
            for (row, y) in range.zip(y.0.chunks_exact_mut(n)) {
                let elements = row * n..(row + 1) * n;
                map_column::<T, F>(&x[elements.clone()], &second[elements], c[row], d[row], y);
            }
        });
        return;
    }
    workers.rows(outer * n, inner, Rows(y, inner), |range, y| {
        for (row, y) in range.zip(y.0.chunks_exact_mut(inner)) {
            let elements = row * inner..(row + 1) * inner;
            let columns = row / n * inner..(row / n + 1) * inner;
            let (c, d) = (&c[columns.clone()], &d[columns]);
            map_row::<T, F>(&x[elements.clone()], &second[elements], c, d, y);
        }
    });
}

dispatch! {
    fn map_column<const FMA: bool, T: Float, F: Function>(
        x: &[T], second: &[T], c: f32, d: f32, y: &mut [T],
    ) {
        for (y, (x, second)) in y.iter_mut().zip(x.iter().zip(second)) {
            let result = F::result::<FMA>(x.widen_to_f32(), second.widen_to_f32(), c, d);
            *y = T::narrow_from_f32(result);
        }
    }
}

dispatch! {
    fn map_row<const FMA: bool, T: Float, F: Function>(
        x: &[T], second: &[T], c: &[f32], d: &[f32], y: &mut [T],
    ) {
        let elements = x.iter().zip(second).zip(c.iter().zip(d));
        for (y, ((x, second), (c, d))) in y.iter_mut().zip(elements) {
            let result = F::result::<FMA>(x.widen_to_f32(), second.widen_to_f32(), *c, *d);
            *y = T::narrow_from_f32(result);
        }
    }
}

fn find_in_dim<T: Float>(
    workers: &Workers,
    MiddleDim { outer, len: n, inner }: MiddleDim,
    x: &[T],
    column: &[f32],
    positions: DimPositions,
    found: &mut [f32],
) {
    let sizes = (x.len(), column.len(), found.len());
    assert_eq!(sizes, (outer * n * inner, outer * inner, outer * inner), "find_in_dim: sizes");
    workers.rows(outer * inner, n, Rows(found, 1), |range, found| {
        let mut at = range.start;
        let mut rest = found.0;
        while !rest.is_empty() {
            let (block, first) = (at / inner, at % inner);
            let columns = rest.len().min(inner - first).min(COLUMNS);
            let (head, tail) = rest.split_at_mut(columns);
            let x = &x[block * n * inner..][..n * inner];
            find_in_columns(x, inner, first, &column[at..], positions, head);
            at += columns;
            rest = tail;
        }
    });
}

dispatch! {
    fn find_in_columns<const FMA: bool, T: Float>(
        x: &[T], inner: usize, first: usize, column: &[f32], positions: DimPositions, found: &mut [f32],
    ) {
        found.fill(f32::NEG_INFINITY);
        // Backward, so that the first element is written last: without branches, the loop vectorizes.
        for (local, x) in x.chunks_exact(inner).enumerate().rev() {
            let index = -(positions.global(local) as f32);
            for (found, (x, number)) in found.iter_mut().zip(x[first..].iter().zip(column)) {
                let x = x.widen_to_f32();
                let is_equal = (x == *number) | (x.is_nan() & number.is_nan());
                *found = if is_equal { index } else { *found };
            }
        }
    }
}

fn place_in_dim<T: Float>(
    workers: &Workers,
    MiddleDim { outer, len: n, inner }: MiddleDim,
    found: &[f32],
    positions: DimPositions,
    dy: &[T],
    dx: &mut [T],
) {
    let sizes = (dx.len(), found.len(), dy.len());
    assert_eq!(sizes, (outer * n * inner, outer * inner, outer * inner), "place_in_dim: sizes");
    if dx.is_empty() {
        return;
    }
    workers.rows(outer * n, inner, Rows(dx, inner), |range, dx| {
        for (row, dx) in range.zip(dx.0.chunks_exact_mut(inner)) {
            let columns = row / n * inner..(row / n + 1) * inner;
            let index = -(positions.global(row % n) as f32);
            let columns = found[columns.clone()].iter().zip(&dy[columns]);
            for (dx, (found, dy)) in dx.iter_mut().zip(columns) {
                *dx = if *found == index { *dy } else { T::ZERO };
            }
        }
    });
}
