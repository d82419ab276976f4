//! Values of a parameter: reads for kernels, gathers, writes.

use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::context::{Rank, fail, gather_block};
use crate::layout::{AxisId, AxisSet};
use meshwright_backend::{Buffer, View};
use meshwright_mesh::__internal::local_len;

use super::param::ParamRef;
use super::unit::UnitSlice;

/// A parameter that a deferred operation will read.
#[derive(Clone)]
pub(crate) struct DeferredParam {
    pub(crate) param: ParamRef,
    /// Version of the values when the operation was deferred.
    pub(crate) version: u64,
    /// The values of its unit at ZeRO stage 3.
    held: Option<Arc<Buffer>>,
}

/// Values of a parameter for an operation that was deferred.
pub(crate) enum DeferredValues<'a> {
    Held(View<'a>),
    Here(UnitSlice<'a>),
}

impl DeferredParam {
    /// Returns the parameter's values on this rank for a kernel of forward, as [`ParamRef::read`] does, but without
    /// communication.
    #[track_caller]
    pub(crate) fn read(&self, axes: AxisSet) -> DeferredValues<'_> {
        self.param.note_gradient_axes(axes);
        self.param.unit.log_read();
        self.peek()
    }

    /// Returns true if both read the same values of one parameter.
    pub(crate) fn is_same(&self, other: &DeferredParam) -> bool {
        Rc::ptr_eq(&self.param.entry, &other.param.entry) && self.version == other.version
    }

    /// Returns the parameter's values on this rank, without communication, and without noting that they are read.
    pub(crate) fn peek(&self) -> DeferredValues<'_> {
        let range = self.param.range();
        match &self.held {
            Some(held) => DeferredValues::Held(held.view().slice(range)),
            None => DeferredValues::Here(self.param.unit.read(range)),
        }
    }
}

impl DeferredValues<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            DeferredValues::Held(view) => *view,
            DeferredValues::Here(values) => values.view(),
        }
    }
}

impl ParamRef {
    /// Gathers the global parameter in f32, row-major, from the ranks that hold its parts; all of them call it.
    ///
    /// # Panics
    /// If other pipeline stages [own](Self::is_owned) it.
    #[track_caller]
    pub fn gather(&self, rank: &Rank) -> Vec<f32> {
        self.gather_block(rank, self.to_local_vec())
    }

    /// Gathers a global tensor from `block`, this rank's part, split like the parameter.
    #[track_caller]
    pub(crate) fn gather_block(&self, rank: &Rank, block: Vec<f32>) -> Vec<f32> {
        gather_block(rank, self.dims(), self.local_extents(), block)
    }

    /// Gathers the global parameter at its first owners, and sends it to world rank 0; `None` on other ranks. Every
    /// rank calls it.
    #[track_caller]
    #[doc(hidden)]
    pub fn gather_to_rank_0(&self, rank: &Rank) -> Option<Vec<f32>> {
        self.send_to_rank_0(rank, self.global_len(), || self.gather(rank))
    }

    /// Gathers weight `index` of a stack at the first owners of the parameter, and sends it to world rank 0; `None` on
    /// other ranks. Every rank calls it, the first owners with their [local block](Self::to_local_vec).
    ///
    /// # Panics
    /// If a first owner calls it without a block.
    #[track_caller]
    #[doc(hidden)]
    pub fn gather_weight_to_rank_0(
        &self,
        rank: &Rank,
        index: usize,
        block: Option<&[f32]>,
    ) -> Option<Vec<f32>> {
        let len = self.local_extents()[1..].iter().map(|extent| extent.global).product();
        self.send_to_rank_0(rank, len, || {
            let block = block.expect("first owners have a block");
            self.gather_weight(rank, index, block)
        })
    }

    /// Gathers weight `index` of a stack: the rank that has it in its block sends it to those with other weights.
    #[track_caller]
    fn gather_weight(&self, rank: &Rank, index: usize, block: &[f32]) -> Vec<f32> {
        let (stack, weight) = (self.local_extents()[0], &self.local_extents()[1..]);
        let len = local_len(weight);
        let group = rank.process_group(self.dims()[0].axes());
        let is_at = |member: usize| {
            let held = stack.unsplit().split(member, group.size());
            (held.offset..held.offset + held.local).contains(&index)
        };
        let holder = (0..group.size()).find(|member| is_at(*member));
        let holder = holder.expect("the ranks hold all weights of the stack");
        let mut values = if holder == group.rank() {
            block[(index - stack.offset) * len..][..len].to_vec()
        } else {
            vec![0.0; len]
        };
        if group.size() > 1 {
            let sent = group.broadcast(self.site(), holder, values.as_mut_slice().into());
            sent.unwrap_or_else(|error| fail(error));
        }
        gather_block(rank, &self.dims()[1..], weight, values)
    }

    /// Sends `len` elements of the first owners, which `gather` returns there, to world rank 0; `None` on other ranks.
    #[track_caller]
    fn send_to_rank_0(
        &self,
        rank: &Rank,
        len: usize,
        gather: impl FnOnce() -> Vec<f32>,
    ) -> Option<Vec<f32>> {
        const PP: AxisSet = AxisSet::of(AxisId::Pp);
        let gathered = self.is_first_owner().then(gather);
        let first_owner = self.unit.first_owner();
        // Of all replicas, also if they train apart.
        let is_of_group_0 = rank.position(AxisSet::ALL.difference(PP)) == 0 && rank.replica() == 0;
        if first_owner == 0 || !is_of_group_0 {
            return gathered.filter(|_| rank.index() == 0);
        }
        let (group, site) = (rank.process_group(PP), self.site());
        if let Some(values) = gathered {
            group.send(site, 0, values.as_slice().into()).unwrap_or_else(|error| fail(error));
            return None;
        }
        (rank.index() == 0).then(|| {
            let mut values = vec![0.0f32; len];
            let received = group.recv(site, first_owner, values.as_mut_slice().into());
            received.unwrap_or_else(|error| fail(error));
            values
        })
    }

    /// Returns the parameter's elements on this rank in f32, row-major: [`gather`](Self::gather) returns the global
    /// parameter. If they are sharded over the `fsdp` axis, all of its ranks call it.
    ///
    /// # Panics
    /// If other pipeline stages [own](Self::is_owned) it.
    #[track_caller]
    pub fn to_local_vec(&self) -> Vec<f32> {
        self.gather_unit().view().slice(self.range()).to_vec()
    }

    /// Gathers the values of the parameter's unit in f32: the memory that [`gather`](Self::gather) allocates.
    ///
    /// # Panics
    /// If other pipeline stages [own](Self::is_owned) it.
    #[track_caller]
    #[doc(hidden)]
    pub fn gather_unit(&self) -> Buffer {
        self.check_owned();
        self.unit.gather_shards(self.unit.master().view())
    }

    /// Returns the elements that this rank [owns](Self::owned), in f32.
    ///
    /// # Panics
    /// If other pipeline stages [own](Self::is_owned) it.
    #[track_caller]
    pub fn owned_values(&self) -> UnitSlice<'_> {
        self.check_owned();
        self.unit.master().part(self.owned_in_shard())
    }

    /// Returns the elements that this rank [owns](Self::owned) as they are stored: in f32, but for a
    /// [frozen](Self::is_frozen) parameter, which has the compute dtype.
    ///
    /// # Panics
    /// If other pipeline stages [own](Self::is_owned) it.
    #[track_caller]
    #[doc(hidden)]
    pub fn stored_values(&self) -> UnitSlice<'_> {
        self.check_owned();
        self.unit.stored_shard().part(self.owned_in_shard())
    }

    /// Writes new elements: `block` is this rank's block of the parameter, row-major, the same on every rank that holds
    /// it. [`write_global`](Self::write_global) takes the global parameter.
    ///
    /// # Panics
    /// If `block` has another number of elements, or other pipeline stages [own](Self::is_owned) the parameter.
    #[track_caller]
    pub fn write(&self, block: &[f32]) {
        self.check_owned();
        let name = || format!("the block of `{}`", self.path());
        let declared = self.rank().declared_values();
        declared.note_elements(name, self.written_axes(), Location::caller(), block);
        assert_eq!(block.len(), self.local_len(), "a block of `{}`", self.path());
        self.write_block(block);
    }

    /// Writes new elements: `values` is the global parameter, row-major, the same on every rank. Each rank takes its
    /// block; [`gather`](Self::gather) is the inverse.
    ///
    /// # Panics
    /// If `values` has another number of elements, or other pipeline stages [own](Self::is_owned) the parameter.
    #[track_caller]
    pub fn write_global(&self, values: &[f32]) {
        self.check_owned();
        assert_eq!(values.len(), self.global_len(), "the global elements of `{}`", self.path());
        let name = || format!("the elements of `{}`", self.path());
        let declared = self.rank().declared_values();
        let axes = self.written_axes().difference(self.varies());
        declared.note_elements(name, axes, Location::caller(), values);
        let global_index = |mut rest: usize| {
            let (mut index, mut stride) = (0, 1);
            for extent in self.local_extents().iter().rev() {
                index += extent.index(rest % extent.local) * stride;
                rest /= extent.local;
                stride *= extent.global;
            }
            index
        };
        let block: Vec<f32> =
            (0..self.local_len()).map(|local| values[global_index(local)]).collect();
        self.write_block(&block);
    }

    fn write_block(&self, block: &[f32]) {
        self.unit.write(self.range().start, self.unit.stage_values(block).view());
    }

    /// Returns the parameter's values on this rank, row-major, for a kernel of forward; the gradient of the operation
    /// that reads them is partial over `axes`.
    #[track_caller]
    #[doc(hidden)]
    pub fn read(&self, axes: AxisSet) -> UnitSlice<'_> {
        self.note_gradient_axes(axes);
        self.unit.log_read();
        self.values()
    }

    /// Returns the parameter as an operand of an operation that is deferred: unsharded now, where all ranks are, as
    /// they may need the numbers at different times.
    #[track_caller]
    pub(crate) fn defer(&self) -> DeferredParam {
        self.check_owned();
        self.unit.unshard();
        let (version, held) = (self.unit.version(), self.unit.share_unsharded());
        DeferredParam { param: self.clone(), version, held }
    }

    /// Returns the parameter's values on this rank, row-major, for a kernel of backward.
    #[track_caller]
    pub(crate) fn values(&self) -> UnitSlice<'_> {
        self.check_owned();
        self.unit.unshard();
        self.unit.read(self.range())
    }
}
