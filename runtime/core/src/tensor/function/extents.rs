//! Local extents of a function's output, and the rules between dims that types do not state.

use crate::context::Rank;
use crate::layout::{AxisSet, DimInfo};
use meshwright_mesh::__internal::{named_sizes, shape_name};
use meshwright_mesh::Extent;

/// An operand with its dims and local extents.
pub(super) struct OperandDims<'a> {
    /// `input 0` or `parameter 1`.
    pub(super) name: String,
    pub(super) dims: &'static [DimInfo],
    pub(super) extents: &'a [Extent],
}

impl OperandDims<'_> {
    fn iter(&self) -> impl Iterator<Item = (&'static DimInfo, &Extent)> {
        self.dims.iter().zip(self.extents)
    }
}

/// Checks that each dim has one size and one distribution of samples in all operands.
///
/// # Panics
/// If two operands disagree.
#[track_caller]
pub(super) fn check_dims_agree(path: &str, operands: &[OperandDims<'_>]) {
    let all = || operands.iter().flat_map(|operand| operand.iter().map(move |dim| (operand, dim)));
    for (index, (left, (dim, own))) in all().enumerate() {
        for (right, (_, other)) in all().skip(index + 1).filter(|(_, (info, _))| is_same(dim, info))
        {
            let sizes = |extent: &Extent| named_sizes(&[*dim], &[extent.unsplit()]);
            assert!(
                own.unsplit() == other.unsplit(),
                "`{path}`: {} has {}, but {} has {}: a dim has one size in all operands of a function, and operands \
                 are of one micro-batch",
                left.name,
                sizes(own),
                right.name,
                sizes(other)
            );
        }
    }
}

/// Checks that the output keeps each distributed dim of an operand, split alike, or is partial over its axes.
///
/// # Panics
/// If it does neither, or if it is partial over an axis that distributes no operand.
#[track_caller]
pub(super) fn check_distribution(
    path: &str,
    operands: &[OperandDims<'_>],
    (output, partial_over): (&[DimInfo], AxisSet),
) {
    let mut summed_over = AxisSet::NONE;
    for operand in operands {
        for dim in operand.dims.iter().filter(|dim| !dim.axes().is_empty()) {
            let (axes, name) = (dim.axes(), &operand.name);
            if output.iter().any(|info| info.is_same_dim(dim)) {
                continue;
            }
            let kept = output.iter().find(|info| is_same(info, dim));
            assert!(
                kept.is_none(),
                "`{path}`: {name} has the dim `{dim}`, but the output {} has another split of this dim: a rank would \
                 compute elements that it cannot read; gather or split it before the function",
                shape_name(output)
            );
            assert!(
                axes.difference(partial_over).is_empty(),
                "`{path}`: {name} has the dim `{dim}`, distributed over {axes}, and the output {} has not: a sum over \
                 it is partial, `type Output = Partial<.., ..>` over {axes}",
                shape_name(output)
            );
            summed_over = summed_over.union(axes);
        }
    }
    let idle = partial_over.difference(summed_over);
    assert!(
        idle.is_empty(),
        "`{path}`: the output is partial over {idle}, but no dim that {idle} distributes is summed over: each rank \
         would add the whole output; make it a `Tensor`, or split an operand first"
    );
}

/// Returns the local extents of the output, from the extents of the operands that have its dims. `new_size` returns the
/// size of a dim that none has.
///
/// # Panics
/// If `new_size` does not know a size.
#[track_caller]
pub(super) fn output_extents(
    rank: &Rank,
    path: &str,
    operands: &[OperandDims<'_>],
    output: &[DimInfo],
    new_size: impl Fn(&DimInfo) -> Option<usize>,
) -> Vec<Extent> {
    let all = || operands.iter().flat_map(OperandDims::iter);
    let extent = |dim: &DimInfo| {
        if let Some((_, extent)) = all().find(|(info, _)| info.is_same_dim(dim)) {
            return *extent;
        }
        if let Some((_, extent)) = all().find(|(info, _)| is_same(info, dim)) {
            let whole = extent.unsplit();
            return whole.split(rank.position(dim.split), rank.degree_of(dim.split));
        }
        let size = new_size(dim).unwrap_or_else(|| {
            panic!(
                "`{path}`: no operand has the dim `{}` of the output, so the function states its size by `new_size`",
                dim.name
            )
        });
        rank.local_extent(dim, size)
    };
    output.iter().map(extent).collect()
}

/// Returns true if both are the same declared dim, split alike or not.
fn is_same(a: &DimInfo, b: &DimInfo) -> bool {
    (a.key)() == (b.key)()
}
