//! Entries of declared parameters in their unit: named blocks of the unit's flat buffers.

use std::cell::Cell;
use std::ops::Range;

use crate::context::{Rank, block_index};
use crate::layout::{AxisSet, DimInfo, Dims};
use crate::random;
use meshwright_backend::{Buffer, DType};
use meshwright_comm::Site;
use meshwright_mesh::__internal::{global_sizes, local_len};
use meshwright_mesh::Extent;

/// Initialization of a parameter. Every element is a function of the seed, the parameter's path and the element's index
/// in the global tensor, so every mesh starts from the same model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All zeros: biases.
    Zeros,
    /// All ones: gains.
    Ones,
    /// All equal to this number.
    Constant(f32),
    /// Normally distributed around zero with this standard deviation.
    Normal(f32),
    /// Like `Normal`, but zeros in one row, the index of the first dim: embeddings with a row for padding.
    NormalExceptRow {
        /// The standard deviation.
        std: f32,
        /// The row.
        row: usize,
    },
    /// Normally distributed with the standard deviation `gain / sqrt(fan_in)`, of the **global** weight (LeCun et al.,
    /// "Efficient BackProp", 1998, with a gain of 1; He et al., "Delving Deep into Rectifiers", 2015, with a gain of
    /// `sqrt(2)`).
    Kaiming(f32),
    /// Normally distributed with the standard deviation `gain * sqrt(2 / (fan_in + fan_out))`, of the **global** weight
    /// (Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010).
    Xavier(f32),
}

impl Init {
    /// Returns the standard deviation of normally distributed values of a weight with these fans; `None` of constant
    /// values.
    fn std(self, [fan_in, fan_out]: [usize; 2]) -> Option<f32> {
        match self {
            Init::Zeros | Init::Ones | Init::Constant(_) => None,
            Init::Normal(std) | Init::NormalExceptRow { std, .. } => Some(std),
            Init::Kaiming(gain) => Some(gain / (fan_in as f32).sqrt()),
            Init::Xavier(gain) => Some(gain * (2.0 / (fan_in + fan_out) as f32).sqrt()),
        }
    }
}

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
    init: Init,
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
        init: Init,
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
        let mut block = rank.alloc_scratch(DType::F32, self.local_len());
        match self.init.std(self.global_fans()) {
            None => {
                let constant = match self.init {
                    Init::Ones => 1.0,
                    Init::Constant(number) => number,
                    _ => 0.0,
                };
                rank.backend().fill(block.view_mut(), constant);
            }
            Some(std) => {
                let key = random::key(rank.seed(), self.path());
                let index = block_index(&self.extents);
                rank.backend().fill_normal(key, std, &index, block.view_mut());
            }
        }
        if let Init::NormalExceptRow { row, .. } = self.init
            && let Some(row) = row.checked_sub(self.extents[0].offset)
            && row < self.extents[0].local
        {
            let len = self.local_len() / self.extents[0].local;
            rank.backend().fill(block.view_mut().slice(row * len..(row + 1) * len), 0.0);
        }
        block
    }
}
