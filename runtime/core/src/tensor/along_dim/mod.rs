//! Operations that read along a dim: maxima and minima, variances, norms, log-sum-exps and softmaxes. Each takes a dim
//! that every rank holds whole, or one whose shards the ranks of some axes read together.

mod across;
mod extreme;
mod log_sum_exp;
mod masked_mean;
mod methods;
mod running_sum;
mod softmax;
mod spread;

use std::panic::Location;

use crate::autograd::Value;
use crate::context::{Rank, scope};
use crate::layout::AxisSet;
use meshwright_backend::ops::middle_dim::{MapDimArgs, ReduceDimArgs};
use meshwright_backend::{
    Buffer, DType, DimFunction, DimPositions, DimReduction, Expr, MiddleDim, Node, ReduceOp,
    UnaryFunction, View,
};
use meshwright_comm::Site;
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

pub use across::Across;
pub(super) use softmax::softmax_of_rows;

/// The dim that an operation reads along, and the ranks that hold its shards.
#[derive(Clone)]
struct AlongDim {
    dim: MiddleDim,
    /// Position of the dim.
    position: usize,
    /// This rank's range of the dim.
    extent: Extent,
    /// The axes over which the dim is split or distributed.
    axes: AxisSet,
    site: Site,
}

impl AlongDim {
    /// Dim number `position` of `x`, in the messages of collectives with the name of a function.
    #[track_caller]
    fn new(x: &Value, position: usize, axes: AxisSet, function: &'static str) -> AlongDim {
        let site = Site::new(scope::current_or(function)).at_location(Location::caller());
        let (before, rest) = x.extents().split_at(position);
        let (extent, after) = (rest[0], &rest[1..]);
        let dim =
            MiddleDim { outer: local_len(before), len: extent.local, inner: local_len(after) };
        AlongDim { dim, position, extent, axes, site }
    }

    /// Returns the extents of `x` without the dim.
    fn extents_left(&self, x: &Value) -> Vec<Extent> {
        let mut extents = x.extents().to_vec();
        extents.remove(self.position);
        extents
    }

    /// Returns the number of results.
    fn columns(&self) -> usize {
        self.dim.outer * self.dim.inner
    }

    /// Returns true if all elements are on this rank.
    fn is_whole(&self, rank: &Rank) -> bool {
        rank.degree_of(self.axes) == 1
    }

    /// Returns the global indices of this rank's elements.
    fn positions(&self) -> DimPositions {
        let (gap_at, gap) = self.extent.gap();
        DimPositions { offset: self.extent.offset, gap_at, gap }
    }

    /// Returns `scale` times a reduction of each column over all ranks that hold shards of it.
    fn reduce(&self, rank: &Rank, reduction: DimReduction, args: Reduced<'_>) -> Buffer {
        let Reduced { x, second, column, scale } = args;
        let second = second.unwrap_or(x);
        let mut y = rank.alloc_statistics(self.columns());
        let args = ReduceDimArgs { x, second, column, scale, y: y.view_mut() };
        rank.backend().reduce_dim(self.dim, reduction, args);
        match reduction {
            DimReduction::Largest => self.all_reduce(rank, ReduceOp::Max, &mut y),
            DimReduction::Smallest if !self.is_whole(rank) => {
                rank.backend().scale(y.view_mut(), -1.0);
                self.all_reduce(rank, ReduceOp::Max, &mut y);
                rank.backend().scale(y.view_mut(), -1.0);
            }
            DimReduction::Smallest => {}
            DimReduction::ExpSum | DimReduction::SquareSum | DimReduction::DotSum => {
                self.all_reduce(rank, ReduceOp::Sum, &mut y);
            }
        }
        y
    }

    /// Returns the sum of each column times `scale`, over all ranks that hold shards of it.
    fn sum(&self, rank: &Rank, x: View<'_>, scale: f32) -> Buffer {
        let mut y = rank.alloc_statistics(self.columns());
        rank.backend().sum_dim(self.dim, x, y.view_mut(), scale);
        self.all_reduce(rank, ReduceOp::Sum, &mut y);
        y
    }

    /// Returns the maximum of each column, and the sum of exponentials relative to it.
    fn max_exp_sum(&self, rank: &Rank, x: View<'_>) -> [Buffer; 2] {
        let max = self.reduce(rank, DimReduction::Largest, Reduced::new(x));
        let args = Reduced { column: Some(max.view()), ..Reduced::new(x) };
        let sum = self.reduce(rank, DimReduction::ExpSum, args);
        [max, sum]
    }

    fn all_reduce(&self, rank: &Rank, op: ReduceOp, y: &mut Buffer) {
        if !self.is_whole(rank) {
            rank.all_reduce(self.axes, &self.site, op, y.view_mut());
        }
    }

    /// Returns a function of each element of `x`, of a second operand, and of numbers of the columns.
    fn map(
        &self,
        rank: &Rank,
        function: DimFunction,
        [x, second]: [View<'_>; 2],
        [c, d]: [View<'_>; 2],
    ) -> Buffer {
        let mut y = rank.alloc_activation(x.len());
        let args = MapDimArgs { x, second, c, d, y: y.view_mut() };
        rank.backend().map_dim(self.dim, function, args);
        y
    }
}

/// Operands of a reduction.
struct Reduced<'a> {
    x: View<'a>,
    second: Option<View<'a>>,
    column: Option<View<'a>>,
    scale: f32,
}

impl<'a> Reduced<'a> {
    fn new(x: View<'a>) -> Reduced<'a> {
        Reduced { x, second: None, column: None, scale: 1.0 }
    }
}

/// Returns f32 statistics as an activation.
fn as_activation(rank: &Rank, statistics: &Buffer) -> Buffer {
    let mut out = rank.alloc_activation(statistics.len());
    rank.backend().cast(statistics.view(), out.view_mut());
    out
}

/// Returns `factor` times a gradient, in f32.
fn wide_gradient(rank: &Rank, dy: &Buffer, factor: f32) -> Buffer {
    let mut wide = rank.alloc_scratch(DType::F32, dy.len());
    rank.backend().cast(dy.view(), wide.view_mut());
    if factor != 1.0 {
        rank.backend().scale(wide.view_mut(), factor);
    }
    wide
}

/// Returns an elementwise function of statistics.
fn map_statistics(rank: &Rank, nodes: Vec<Node>, leaves: &[View<'_>]) -> Buffer {
    let mut out = rank.alloc_statistics(leaves[0].len());
    rank.backend().map(&Expr { nodes }, leaves, out.view_mut());
    out
}

/// Returns the logarithms of statistics.
fn logarithms(rank: &Rank, x: &Buffer) -> Buffer {
    let nodes = vec![Node::Leaf(0), Node::Apply(UnaryFunction::Log, 0)];
    map_statistics(rank, nodes, &[x.view()])
}
