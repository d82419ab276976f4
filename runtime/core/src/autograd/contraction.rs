//! Contraction of a value with a weight: enters the tensor-parallel region, multiplies, and leaves the region.

use std::rc::Rc;

use crate::fsdp::ParamRef;
use crate::layout::{AxisId, AxisSet, Entry};
use meshwright_comm::Site;
use meshwright_mesh::__internal::{check_sizes, local_len};

use super::matmul::{Matmul, MatmulDims};
use super::tensor_parallel::{RegionExit, enter_region};
use super::value::Value;

/// Dims of a weight that are summed over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reads {
    /// The leading dims, by number: a linear layer's `(I, O)`.
    First(usize),
    /// The trailing dims, by number: a head's `(Vocab, Hidden)`.
    Last(usize),
}

/// Description of a contraction, apart from its operands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contraction {
    /// Dims of the weight that are summed over.
    pub(crate) reads: Reads,
    /// Entry of the tensor into the tensor-parallel region.
    pub(crate) entry: Entry,
    /// The axes over which the weight's gradient is partial.
    pub(crate) gradient_axes: AxisSet,
    /// Axis over which the result is reduced, and the dim that the reduction shards, if any.
    pub(crate) leaves: Option<(AxisId, Option<usize>)>,
}

/// Returns the axes over which a parameter's gradient is partial: those over which its operation's input and output
/// vary and the parameter does not.
pub(crate) const fn gradient_axes(input: AxisSet, output: AxisSet, param: AxisSet) -> AxisSet {
    input.union(output).difference(param)
}

/// Contracts the last dims of `x` with the last dims of `weight`, after `x` has entered the region, and leaves the
/// region.
#[track_caller]
pub(crate) fn contract(x: &Value, weight: &ParamRef, how: Contraction, site: &Site) -> Value {
    x.rank().check_same(weight.rank());
    x.rank().segments().note_param(weight.path());
    let x = enter_region(x, how.entry, site);
    let weight_extents = weight.local_extents();
    let (contracted, weight_in, weight_out) = match how.reads {
        Reads::First(dims) => {
            let (read, written) = weight_extents.split_at(dims);
            (dims, read, written)
        }
        Reads::Last(dims) => {
            let (written, read) = weight_extents.split_at(weight_extents.len() - dims);
            (dims, read, written)
        }
    };
    let (lead, read) = x.extents().split_at(x.extents().len() - contracted);
    let read_dims = match how.reads {
        Reads::First(dims) => &weight.dims()[..dims],
        Reads::Last(dims) => &weight.dims()[weight.dims().len() - dims..],
    };
    let name = format!("what `{}` reads", weight.path());
    check_sizes(read_dims, (&name, weight_in), ("its input", read));
    let dims = MatmulDims {
        m: local_len(lead),
        k: local_len(weight_in),
        n: local_len(weight_out),
        transposed: matches!(how.reads, Reads::Last(_)),
    };
    let inside = [lead, weight_out].concat();
    let exit = Rc::new(RegionExit::new(x.rank(), &inside, how.leaves, site));
    let extents = exit.extents(inside);
    // The operations before `x` are computed here, even if the matmul is deferred.
    let x = x.unchanged_computed();
    let matmul = Matmul {
        x,
        weight: weight.defer(),
        gradient_axes: how.gradient_axes,
        dims,
        exit,
        site: site.clone(),
    };
    matmul.into_value(extents)
}
