//! Reductions over a middle dim other than sums, functions of elements and of the results of their columns, and the
//! first element of a column.
//!
//! The results of a reduction are f32 `[outer, inner]`: one for each *column*, the elements along the dim.

use crate::{DryRunBackend, MiddleDim, View, ViewMut};

/// Kernels along a middle dim.
pub trait MiddleDimOps {
    /// Computes `scale` times a reduction of each column.
    fn reduce_dim(&self, dim: MiddleDim, reduction: DimReduction, args: ReduceDimArgs);
    /// Computes a function of each element and of numbers of its column.
    fn map_dim(&self, dim: MiddleDim, function: DimFunction, args: MapDimArgs);
    /// Writes minus the global index of the first element of each column that equals the column's number, where two NaN
    /// are equal; -infinity if there is none. So the maximum over ranks belongs to the first element of all.
    fn find_in_dim(&self, dim: MiddleDim, args: FindInDimArgs);
    /// Computes `dx = dy` at the elements that [`find_in_dim`](Self::find_in_dim) has found, else 0.
    fn place_in_dim(&self, dim: MiddleDim, args: PlaceInDimArgs);
}

impl MiddleDimOps for DryRunBackend {
    fn reduce_dim(&self, _: MiddleDim, _: DimReduction, _: ReduceDimArgs) {}
    fn map_dim(&self, _: MiddleDim, _: DimFunction, _: MapDimArgs) {}
    fn find_in_dim(&self, _: MiddleDim, _: FindInDimArgs) {}
    fn place_in_dim(&self, _: MiddleDim, _: PlaceInDimArgs) {}
}

/// A reduction of a column of elements `x`, with elements `second` of another operand, and a number `c` of the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimReduction {
    /// The largest element; NaN if one is NaN, -infinity of none.
    Largest,
    /// The smallest element; NaN if one is NaN, infinity of none.
    Smallest,
    /// `sum(exp(x - c))`; an infinite `c` counts as 0.
    ExpSum,
    /// `sum((x - c)^2)`.
    SquareSum,
    /// `sum(x * second)`.
    DotSum,
}

impl DimReduction {
    /// All reductions.
    pub const ALL: [DimReduction; 5] = [
        DimReduction::Largest,
        DimReduction::Smallest,
        DimReduction::ExpSum,
        DimReduction::SquareSum,
        DimReduction::DotSum,
    ];

    /// Returns the name in kernels.
    pub const fn name(self) -> &'static str {
        match self {
            DimReduction::Largest => "largest",
            DimReduction::Smallest => "smallest",
            DimReduction::ExpSum => "exp_sum",
            DimReduction::SquareSum => "square_sum",
            DimReduction::DotSum => "dot_sum",
        }
    }
}

/// A function of an element `x`, of an element `second` of another operand, and of two numbers `c` and `d` of its
/// column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimFunction {
    /// `exp(x - c) / d`: a softmax, from the maximum and the sum of exponentials. NaN if `c` is infinite.
    Softmax,
    /// `x - c - d`: a log-softmax, from the maximum and the logarithm of the sum. NaN if `c` is infinite.
    LogSoftmax,
    /// `exp(x - c) * d`; 0 if `c` is -infinity: the gradient of a log-sum-exp.
    ScaledExp,
    /// `x * (second - c)`: the gradient of a softmax `x`.
    SoftmaxGrad,
    /// `second - exp(x) * c`: the gradient of a log-softmax `x`.
    LogSoftmaxGrad,
    /// `(x - c) * d`: the gradient of a variance.
    Centered,
    /// `x / c * d`; 0 if `c` is 0: the gradient of a norm.
    Direction,
}

impl DimFunction {
    /// All functions.
    pub const ALL: [DimFunction; 7] = [
        DimFunction::Softmax,
        DimFunction::LogSoftmax,
        DimFunction::ScaledExp,
        DimFunction::SoftmaxGrad,
        DimFunction::LogSoftmaxGrad,
        DimFunction::Centered,
        DimFunction::Direction,
    ];

    /// Returns the name in kernels.
    pub const fn name(self) -> &'static str {
        match self {
            DimFunction::Softmax => "softmax",
            DimFunction::LogSoftmax => "log_softmax",
            DimFunction::ScaledExp => "scaled_exp",
            DimFunction::SoftmaxGrad => "softmax_grad",
            DimFunction::LogSoftmaxGrad => "log_softmax_grad",
            DimFunction::Centered => "centered",
            DimFunction::Direction => "direction",
        }
    }
}

/// Operands of [`MiddleDimOps::reduce_dim`].
pub struct ReduceDimArgs<'a> {
    /// Elements, `[outer, len, inner]`.
    pub x: View<'a>,
    /// Elements of a second operand of the dtype of `x`; `x` itself if the reduction reads none.
    pub second: View<'a>,
    /// Numbers `c` of the columns, f32; 0 if there are none.
    pub column: Option<View<'a>>,
    /// Factor of sums; of maxima and minima it is 1.
    pub scale: f32,
    /// The results, f32, written.
    pub y: ViewMut<'a>,
}

/// Operands of [`MiddleDimOps::map_dim`].
pub struct MapDimArgs<'a> {
    /// Elements, `[outer, len, inner]`.
    pub x: View<'a>,
    /// Elements of a second operand of the dtype of `x`; `x` itself if the function reads none.
    pub second: View<'a>,
    /// Numbers `c` of the columns, f32.
    pub c: View<'a>,
    /// Numbers `d` of the columns, f32; `c` if the function reads none.
    pub d: View<'a>,
    /// The results, of the dtype of `x`, written.
    pub y: ViewMut<'a>,
}

/// Operands of [`MiddleDimOps::find_in_dim`].
pub struct FindInDimArgs<'a> {
    /// Elements, `[outer, len, inner]`.
    pub x: View<'a>,
    /// Numbers of the columns, f32.
    pub column: View<'a>,
    /// Global indices of the elements.
    pub positions: DimPositions,
    /// The results, f32, written.
    pub found: ViewMut<'a>,
}

/// Operands of [`MiddleDimOps::place_in_dim`].
pub struct PlaceInDimArgs<'a> {
    /// Minus the global index of the element of each column, f32.
    pub found: View<'a>,
    /// Global indices of the elements.
    pub positions: DimPositions,
    /// Gradient of each column.
    pub dy: View<'a>,
    /// Gradients of the elements, of the dtype of `dy`, written.
    pub dx: ViewMut<'a>,
}

/// Global indices of the elements along a dim, below 2^24, so that they are exact in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DimPositions {
    /// Index of the first element.
    pub offset: usize,
    /// Number of elements before a gap; all if there is none.
    pub gap_at: usize,
    /// Number of indices in the gap.
    pub gap: usize,
}

impl DimPositions {
    /// Returns the global index of element `local`.
    #[inline(always)]
    pub fn global(&self, local: usize) -> usize {
        self.offset + local + if local < self.gap_at { 0 } else { self.gap }
    }
}
