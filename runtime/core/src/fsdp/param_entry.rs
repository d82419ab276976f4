//! Entries of declared parameters in their unit: named blocks of the unit's flat buffers.

use std::cell::Cell;
use std::ops::Range;

use crate::context::Rank;
use crate::layout::{AxisSet, DimInfo, Dims};
use meshwright_backend::Buffer;
use meshwright_comm::Site;
use meshwright_mesh::__internal::{global_sizes, local_len};
use meshwright_mesh::Extent;

use super::init::InitialValues;

/// Purpose of a parameter, as far as it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The weight, gain or bias of a layer.
    Layer,
    /// Rows that are looked up by id: [`ParamRef::is_table`](super::ParamRef::is_table).
    Table,
    /// A field that the model's author declared.
    Field,
}

/// The dims of a parameter: those that count stacked weights, those that a weight reads, and those that it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParamDims {
    pub(crate) infos: &'static [DimInfo],
    pub(crate) stacked: usize,
    contracted: usize,
    /// The axes over which ranks hold different shards.
    pub(crate) varies: AxisSet,
}

impl ParamDims {
    /// Returns the dims of a parameter shaped `S`.
    pub(crate) fn of_shape<S: Dims>() -> ParamDims {
        ParamDims { infos: S::DIMS, stacked: S::STACKS, contracted: S::READS, varies: S::VARIES }
    }
}

/// A declared parameter at its place in a unit's flat buffers, and the state of its gradient.
pub(crate) struct ParamEntry {
    pub(super) site: Site,
    pub(super) infos: &'static [DimInfo],
    pub(super) extents: Vec<Extent>,
    init: InitialValues,
    pub(super) start: usize,
    pub(super) varies: AxisSet,
    pub(super) stacked: usize,
    pub(super) contracted: usize,
    pub(super) role: Role,
    /// The axes over which uses so far have declared the gradient partial.
    pub(super) gradient_axes: Cell<AxisSet>,
    /// The axes over which the gradient in the unit's buffer is still to be reduced.
    pub(super) reduce_axes: Cell<AxisSet>,
    pub(super) has_gradient: Cell<bool>,
}

impl ParamEntry {
    /// Places a parameter at element `start` of the flat buffers.
    pub(super) fn new(
        path: &str,
        dims: ParamDims,
        extents: Vec<Extent>,
        init: InitialValues,
        role: Role,
        start: usize,
    ) -> ParamEntry {
        let ParamDims { infos, stacked, contracted, varies } = dims;
        ParamEntry {
            site: Site::new(path),
            infos,
            init,
            start,
            varies,
            stacked,
            contracted,
            role,
            gradient_axes: Cell::default(),
            reduce_axes: Cell::default(),
            has_gradient: Cell::new(false),
            extents,
        }
    }

    pub(super) fn path(&self) -> &str {
        self.site.field()
    }

    /// Returns the number of elements on this rank.
    pub(super) fn local_len(&self) -> usize {
        local_len(&self.extents)
    }

    /// Returns the range of the unit's flat buffers that holds the parameter.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.local_len()
    }

    /// Marks the gradient as having no contribution yet.
    pub(super) fn reset_gradient(&self) {
        self.has_gradient.set(false);
        self.reduce_axes.set(AxisSet::NONE);
    }

    /// Returns true if the gradient has no contribution yet, and marks it as having one.
    pub(super) fn take_missing_gradient(&self) -> bool {
        !self.has_gradient.replace(true)
    }

    /// Formats path, global sizes and initialization.
    pub(super) fn declaration(&self) -> String {
        format!("{} {:?} {:?}", self.path(), global_sizes(&self.extents), self.init)
    }

    /// Returns the number of inputs and of outputs of the global weight, of a stack that of each weight.
    fn global_fans(&self) -> [usize; 2] {
        let sizes = global_sizes(&self.extents);
        let (inputs, outputs) = sizes[self.stacked..].split_at(self.contracted);
        [inputs.iter().product(), outputs.iter().product()]
    }

    /// Computes the initial values of this rank's block.
    pub(super) fn initial_values(&self, rank: &Rank) -> Buffer {
        self.init.compute(rank, self.path(), &self.extents, self.global_fans())
    }
}
