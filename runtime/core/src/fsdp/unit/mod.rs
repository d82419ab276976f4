//! FSDP units: parameters that are sharded, reduced and gathered together. A unit is also the bucket of gradient
//! reduction, at every ZeRO stage.

mod cuda_graph;
mod data_parallel;
mod first_squares;
mod gradient;
mod reductions;
mod state_rounding;
mod values;

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

use crate::context::{Rank, Staged, ZeroStage, fail};
use crate::layout::{AxisId, AxisSet};
use meshwright_backend::{Buffer, DType, View, ViewMut};
use meshwright_comm::{Blocks, Site};
use meshwright_mesh::Extent;

use super::owners::UnitOwners;
use super::param_entry::ParamEntry;

use data_parallel::UnitReduction;
use gradient::Gradient;
use values::UnitValues;

pub(crate) use cuda_graph::CapturedBuffers;
pub(crate) use gradient::GradientOwner;
pub use values::UnitSlice;

/// Alignment in elements of parameters and shards in the flat buffers (a cache line of `f32`).
const LINE: usize = 16;

/// FSDP unit: parameters that are reduced, and gathered, together, in one flat buffer of each kind.
///
/// From ZeRO stage 1 on, each rank of the axes that shard the unit owns a range of whole cache lines
/// of every flat buffer, the [`shard`](Unit::shard). Shards may differ by a line, and be empty; nothing is padded.
///
/// All parameters of a unit are split over the same of the axes whose ranks read different tokens: none, except for
/// experts. So their gradients are summed, and their state is sharded, over the same ranks.
pub struct Unit {
    this: Weak<Unit>,
    rank: Rank,
    name: String,
    /// The path of the field whose parameters these are, shared by all units of the field.
    scope: Rc<str>,
    /// The axes of [`AxisSet::TOKENS`] that split its parameters.
    split: AxisSet,
    training: UnitTraining,
    len: Cell<usize>,
    params: RefCell<Vec<Weak<ParamEntry>>>,
    values: UnitValues,
    gradient: Gradient,
    reduction: UnitReduction,
    /// The units of the model that this one is part of, itself included.
    model: RefCell<Vec<Weak<Unit>>>,
    /// True after the name was read, which selects units.
    is_selected: Cell<bool>,
    /// The backward pass whose gradients the buffers hold.
    gradient_owner: Cell<Option<GradientOwner>>,
    /// Number of changes of the values.
    version: Cell<u64>,
    /// Number of changes of the values: the last version. Restored values have an earlier one.
    changes: Cell<u64>,
    /// The owning pipeline stages, if the model is built as stages.
    owners: OnceCell<UnitOwners>,
}

/// Training of the parameters of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnitTraining {
    /// An optimizer updates them.
    Trained,
    /// Nothing changes them.
    Frozen,
    /// They have no gradient, and the program writes them between steps.
    Buffers,
}

impl Unit {
    /// Creates the unit of those parameters in `scope`, the path of a field, that `split` splits, and that are trained
    /// in this way.
    pub(crate) fn new(
        rank: &Rank,
        scope: &Rc<str>,
        split: AxisSet,
        training: UnitTraining,
    ) -> Rc<Unit> {
        let mut name = scope.to_string();
        if !split.is_empty() {
            name += &format!(" (split over {split})");
        }
        name += match training {
            UnitTraining::Trained => "",
            UnitTraining::Frozen => " (frozen)",
            UnitTraining::Buffers => " (buffers)",
        };
        Rc::new_cyclic(|this| Unit {
            this: Weak::clone(this),
            rank: rank.clone(),
            name,
            scope: Rc::clone(scope),
            split,
            training,
            len: Cell::new(0),
            params: RefCell::default(),
            values: UnitValues::default(),
            gradient: Gradient::default(),
            reduction: UnitReduction::default(),
            model: RefCell::default(),
            is_selected: Cell::default(),
            gradient_owner: Cell::default(),
            version: Cell::new(0),
            changes: Cell::new(0),
            owners: OnceCell::new(),
        })
    }

    /// Returns the rank that holds the unit.
    pub(crate) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the shared reference to this unit.
    pub(super) fn weak_self(&self) -> &Weak<Unit> {
        &self.this
    }

    /// Returns the path of the field whose parameters these are, the axes that split them, and whether they are frozen:
    /// `blocks.3 (split over ep)`, `blocks.3 (frozen)`. An optimizer takes some units of a model only if they were
    /// selected by it.
    pub fn name(&self) -> &str {
        self.is_selected.set(true);
        &self.name
    }

    /// Returns true if its parameters are not trained: the unit has no gradient and no optimizer state.
    pub fn is_frozen(&self) -> bool {
        self.training != UnitTraining::Trained
    }

    /// Returns true if its parameters are buffers: f32 at every compute dtype, and whole on every rank.
    pub(crate) fn has_buffers(&self) -> bool {
        self.training == UnitTraining::Buffers
    }

    /// Returns true if both units were built together, or are the same.
    pub(crate) fn is_of_model_of(&self, other: &Unit) -> bool {
        other.units_of_model().iter().any(|unit| std::ptr::eq(&**unit, self))
    }

    /// Returns true if both units hold parameters of the same field, or are the same.
    pub(super) fn is_of_scope_of(&self, other: &Unit) -> bool {
        Rc::ptr_eq(&self.scope, &other.scope)
    }

    /// Returns the axes that split its parameters, of those whose ranks read different tokens: `ep` for experts.
    pub fn split_axes(&self) -> AxisSet {
        self.split
    }

    /// Returns the axes over which the gradient is summed: those whose ranks read different tokens, without those that
    /// split the parameters.
    pub(crate) fn sum_axes(&self) -> AxisSet {
        AxisSet::TOKENS.difference(self.split)
    }

    /// Returns the axes over which state is sharded: none at ZeRO stage 0.
    #[doc(hidden)]
    pub fn shard_axes(&self) -> AxisSet {
        match self.stage() {
            ZeroStage::Replicated => AxisSet::NONE,
            _ => self.shardable_axes(),
        }
    }

    /// Returns the axes over which the ZeRO stages above 0 shard state.
    fn shardable_axes(&self) -> AxisSet {
        AxisSet::ZERO.difference(self.split)
    }

    /// Returns the number of elements of each flat buffer, alignment gaps included.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// Returns true if the unit has no parameters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the range of the flat buffers that this rank updates: all of them at ZeRO stage 0.
    pub fn shard(&self) -> Range<usize> {
        self.shard_of(self.rank.index())
    }

    /// Returns the range that a world rank updates. Its parts of the parameters are taken to be as large as here.
    pub(crate) fn shard_of(&self, world_rank: usize) -> Range<usize> {
        if self.stage() == ZeroStage::Replicated {
            return 0..self.len();
        }
        self.part(self.rank.position_of(world_rank, self.shard_axes()))
    }

    /// Returns the parameters in the order of the buffers, without those that were dropped with their model.
    pub(super) fn entries(&self) -> Vec<Rc<ParamEntry>> {
        self.params.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns true if parameters are gone because the model was dropped.
    pub(super) fn has_dropped_params(&self) -> bool {
        self.params.borrow().iter().any(|param| param.strong_count() == 0)
    }

    /// Appends a parameter to the flat buffers; the next one begins on its own cache line.
    pub(super) fn push_param(&self, param: &Rc<ParamEntry>) {
        // Saturates, since models are also declared to find that no machine could hold them.
        let len = self.len().saturating_add(param.local_len());
        self.len.set(len.checked_next_multiple_of(LINE).unwrap_or(usize::MAX));
        self.params.borrow_mut().push(Rc::downgrade(param));
    }

    /// Allocates the buffers and initializes every parameter.
    pub(crate) fn allocate(&self) {
        self.allocate_values();
        if !self.is_frozen() {
            self.allocate_gradient();
        }
        for param in self.entries() {
            self.write(param.start, param.initial_values(&self.rank).view());
        }
    }

    /// Returns true if `units` has this unit on every mesh: it was selected by its name, or all trained units of its
    /// model are there.
    pub(crate) fn is_selected_in(&self, units: &[Rc<Unit>]) -> bool {
        let is_given = |unit: &Rc<Unit>| units.iter().any(|given| Rc::ptr_eq(given, unit));
        let model = self.units_of_model();
        self.is_selected.get() || model.iter().filter(|unit| !unit.is_frozen()).all(is_given)
    }

    /// Returns the owners, or `None` if the model is built without pipeline stages: then every rank owns the unit.
    pub fn owners(&self) -> Option<&UnitOwners> {
        self.owners.get()
    }

    /// Sets the owners of a declared unit, once and before memory is allocated.
    #[doc(hidden)]
    pub fn set_owners(&self, owners: UnitOwners) {
        let before = self.owners.set(owners);
        assert!(before.is_ok(), "the owners of `{}` are set once", self.name());
    }

    /// Returns true if this rank owns the unit.
    pub fn is_owned(&self) -> bool {
        self.owners().is_none_or(|owners| owners.ranks().contains(&self.rank.position(PP)))
    }

    /// Returns the position along `pp` of the first owner, which counts, saves and exports the unit.
    pub fn first_owner(&self) -> usize {
        self.owners().map_or(0, |owners| owners.ranks()[0])
    }

    /// Sets the units that were built together with this one.
    pub(super) fn set_model(&self, units: &[Rc<Unit>]) {
        *self.model.borrow_mut() = units.iter().map(Rc::downgrade).collect();
    }

    /// Returns the units that were built together with this one, itself included.
    pub(super) fn units_of_model(&self) -> Vec<Rc<Unit>> {
        let model: Vec<_> = self.model.borrow().iter().filter_map(Weak::upgrade).collect();
        if model.is_empty() { self.this.upgrade().into_iter().collect() } else { model }
    }

    /// Returns the version of the values, which no other values of the unit have.
    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Restores the version of the values together with values that were saved.
    pub(crate) fn set_version(&self, version: u64) {
        self.version.set(version);
    }

    /// Returns the part of a range of the flat buffers that this rank updates, relative to the buffers and relative to
    /// the shard, or `None` if it is empty.
    pub(crate) fn in_shard(&self, range: Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
        let shard = self.shard();
        let common = values::intersection(range, shard.clone());
        (!common.is_empty())
            .then(|| (common.clone(), common.start - shard.start..common.end - shard.start))
    }

    /// Updates the f32 master weights of a range of the shard by `visit`, which gets the reduced gradient of the range
    /// and, if the compute dtype is not f32, the values in the compute dtype to write.
    ///
    /// `range` is relative to the flat buffers, and inside of the [`shard`](Self::shard). After all ranges were
    /// updated, [`publish_values`](Self::publish_values) brings the new values to the other ranks.
    pub(crate) fn update(
        &self,
        range: Range<usize>,
        visit: impl FnOnce(ViewMut<'_>, View<'_>, Option<ViewMut<'_>>),
    ) {
        let start = self.shard().start;
        let gradient = self.reduced_gradient();
        let gradient = gradient.part(range.start - start..range.end - start);
        self.change_values(range, |master, copy| visit(master, gradient.view(), copy));
    }

    /// Gathers `own`, which is shaped like the shard, from all ranks of the axes that shard the unit, in the order of
    /// the flat buffers. At ZeRO stage 0 that is `own`; above, all of these ranks call it.
    pub(crate) fn gather_shards(&self, own: View<'_>) -> Buffer {
        let (rank, backend) = (&self.rank, self.rank.backend());
        let mut whole = rank.alloc_scratch(DType::F32, self.len());
        if self.stage() == ZeroStage::Replicated {
            backend.cast(own, whole.view_mut());
            return whole;
        }
        let mut wide = None;
        if own.dtype() != DType::F32 {
            let wide: &mut Buffer = wide.insert(rank.alloc_scratch(DType::F32, own.len()));
            backend.cast(own, wide.view_mut());
        }
        let own = wide.as_ref().map_or(own, Buffer::view);
        self.rank
            .process_group(self.shard_axes())
            .all_gather(&self.site("gather"), own, whole.view_mut(), &self.shard_blocks())
            .unwrap_or_else(|error| fail(error));
        whole
    }

    /// Makes values of the host readable by kernels.
    pub(super) fn stage_values<'a>(&self, values: &'a [f32]) -> Staged<'a> {
        self.rank.stage_values(values)
    }

    /// Returns the ZeRO stage in effect.
    pub(super) fn stage(&self) -> ZeroStage {
        if self.has_buffers() {
            return ZeroStage::Replicated;
        }
        self.rank.zero_stage_over(self.shardable_axes())
    }

    /// Returns the shards of all ranks of the axes that shard the unit.
    fn shard_blocks(&self) -> Blocks {
        let parts = self.rank.degree_of(self.shard_axes());
        Blocks::new(1, (0..parts).map(|part| self.part(part).len()).collect::<Vec<_>>())
    }

    /// Returns the range of the flat buffers that is the shard of a rank at a position along these axes.
    fn part(&self, position: usize) -> Range<usize> {
        let parts = self.rank.degree_of(self.shard_axes());
        let lines = Extent::part(self.len() / LINE, position, parts);
        lines.offset * LINE..(lines.offset + lines.local) * LINE
    }

    fn site(&self, purpose: &str) -> Site {
        Site::new(format!("{} ({purpose})", self.name))
    }
}

/// The axis over which pipeline stages are distributed.
const PP: AxisSet = AxisSet::of(AxisId::Pp);
