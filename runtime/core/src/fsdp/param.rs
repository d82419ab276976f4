//! Parameters: named blocks of an FSDP unit's flat buffers.

use std::ops::Range;
use std::rc::Rc;

use crate::context::Rank;
use crate::layout::{AxisSet, DimInfo};
use meshwright_comm::Site;
use meshwright_mesh::__internal::{global_sizes, local_len, named_sizes};
use meshwright_mesh::Extent;

use super::init::InitialValues;
use super::param_entry::{ParamDims, ParamEntry, Role};
use super::unit::Unit;

/// Handle of a parameter: its place in the model, and its block of the unit's buffers.
#[derive(Clone)]
pub struct ParamRef {
    pub(super) entry: Rc<ParamEntry>,
    pub(super) unit: Rc<Unit>,
}

impl ParamRef {
    /// Declares a parameter, and appends it to `unit`.
    pub(crate) fn new(
        path: &str,
        dims: ParamDims,
        extents: Vec<Extent>,
        init: InitialValues,
        role: Role,
        unit: &Rc<Unit>,
    ) -> ParamRef {
        let entry = ParamEntry::new(path, dims, extents, init, role, unit.len());
        let entry = Rc::new(entry);
        unit.push_param(&entry);
        ParamRef { entry, unit: Rc::clone(unit) }
    }

    /// Returns the path of the fields that lead to the parameter: `blocks.3.mlp.down.weight`.
    pub fn path(&self) -> &str {
        self.entry.path()
    }

    /// Returns the parameter as the call site of a collective.
    pub fn site(&self) -> &Site {
        &self.entry.site
    }

    /// Returns each dim, as declared.
    pub fn dims(&self) -> &'static [DimInfo] {
        self.entry.infos
    }

    /// Returns the local extent of each dim: of a parameter of another pipeline stage, that of its owner at the same
    /// position along the other axes. [`sizes`](Self::sizes) returns the sizes of the global parameter.
    pub fn local_extents(&self) -> &[Extent] {
        &self.entry.extents
    }

    /// Returns the number of elements of the [local block](Self::local_extents). [`global_len`](Self::global_len) is
    /// that of the global parameter.
    pub fn local_len(&self) -> usize {
        local_len(&self.entry.extents)
    }

    /// Returns true if the local block has no element.
    pub fn is_empty(&self) -> bool {
        self.local_len() == 0
    }

    /// Returns the number of elements of each dim of the global parameter.
    pub fn sizes(&self) -> Vec<usize> {
        global_sizes(&self.entry.extents)
    }

    /// Returns the number of elements of the global parameter.
    pub fn global_len(&self) -> usize {
        self.entry.extents.iter().map(|extent| extent.global).product()
    }

    /// Returns the axes over which the parameter is split.
    pub fn varies(&self) -> AxisSet {
        self.entry.varies
    }

    /// Returns the number of leading dims that count stacked weights: 1 of a weight for each expert, 0 of others.
    pub fn stacked(&self) -> usize {
        self.entry.stacked
    }

    /// Returns the number of dims behind the [stacked](Self::stacked) ones that a weight reads, the others being those
    /// it writes.
    pub fn contracted(&self) -> usize {
        self.entry.contracted
    }

    /// Returns the range of the dims that a weight reads, and that of the dims it writes.
    #[doc(hidden)]
    pub fn weight_sides(&self) -> [Range<usize>; 2] {
        let (reads, writes) = (self.stacked(), self.stacked() + self.contracted());
        [reads..writes, writes..self.dims().len()]
    }

    /// Returns true if weight decay applies: to parameters of two dims or more, where a bias over a pair such as
    /// `(Heads, HeadDim)` counts as a vector.
    pub fn decays(&self) -> bool {
        self.entry.extents.len() > 1 && self.entry.contracted > 0
    }

    /// Returns true if its first dim counts rows that are looked up, as the token ids of an embedding or a head are,
    /// rather than features that a linear map reads.
    pub fn is_table(&self) -> bool {
        self.entry.role == Role::Table
    }

    /// Returns true if the parameter belongs to a layer that maps features to features, which requires dims on both
    /// sides. The use of a field that the model's author declared is unknown, and a table maps no features.
    pub fn is_of_layer(&self) -> bool {
        self.entry.role == Role::Layer
    }

    /// Checks that the trailing dims of a tensor, whose names its type guarantees, have the sizes that the parameter
    /// was built with.
    #[track_caller]
    pub(crate) fn check_trailing(&self, tensor: &[Extent]) {
        let trailing = &tensor[tensor.len() - self.local_extents().len()..];
        assert!(
            trailing == self.local_extents(),
            "`{}` was built with {}, and is used on a tensor with {}",
            self.path(),
            named_sizes(self.dims(), self.local_extents()),
            named_sizes(self.dims(), trailing)
        );
    }

    /// Returns the flat slice of the parameter: its range of the unit's flat buffers.
    pub(crate) fn range(&self) -> Range<usize> {
        self.entry.range()
    }

    /// Returns the range of the parameter's elements that this rank updates, relative to its own first element: all of
    /// them if the optimizer state is not sharded, none if other pipeline stages own it.
    pub fn owned(&self) -> Range<usize> {
        let start = self.entry.start;
        let owned = self.unit.in_shard(self.range()).filter(|_| self.is_owned());
        owned.map_or(0..0, |(range, _)| range.start - start..range.end - start)
    }

    /// Returns the range that a world rank owns if its parts of the unit's parameters are as large as here.
    pub(crate) fn owned_on(&self, world_rank: usize) -> Range<usize> {
        let (range, shard) = (self.range(), self.unit.shard_of(world_rank));
        let (start, end) = (range.start.max(shard.start), range.end.min(shard.end));
        if start < end && self.is_owned() { start - range.start..end - range.start } else { 0..0 }
    }

    /// Returns the axes along which ranks own different elements: those over which the parameter is split, and those
    /// over which the ZeRO stage shards it. A sum over all of its elements is the sum over these ranks of those that
    /// each [owns](Self::owned); ranks along other axes own the same.
    pub fn owner_axes(&self) -> AxisSet {
        self.varies().union(self.unit.shard_axes())
    }

    /// Returns the [`owned`](Self::owned) range relative to the unit's shard.
    pub(crate) fn owned_in_shard(&self) -> Range<usize> {
        self.unit.in_shard(self.range()).map_or(0..0, |(_, in_shard)| in_shard)
    }

    /// Returns true if the parameter is not trained, as that of a field with `#[frozen]`: it has no gradient and no
    /// optimizer state.
    pub fn is_frozen(&self) -> bool {
        self.unit.is_frozen()
    }

    /// Returns the rank that holds the parameter.
    #[doc(hidden)]
    pub fn rank(&self) -> &Rank {
        self.unit.rank()
    }

    /// Returns its FSDP unit.
    #[doc(hidden)]
    pub fn unit(&self) -> &Rc<Unit> {
        &self.unit
    }

    /// Formats path, global sizes and initialization, and whether it is frozen.
    pub(crate) fn declaration(&self) -> String {
        let frozen = if self.is_frozen() { " frozen" } else { "" };
        self.entry.declaration() + frozen
    }
}

impl std::fmt::Debug for ParamRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParamRef({})", self.path())
    }
}

impl Unit {
    /// Returns the parameters in the order of the buffers, as long as the [`Built`](crate::nn::Built) model exists.
    pub fn params(&self) -> Vec<ParamRef> {
        let Some(unit) = self.weak_self().upgrade() else { return Vec::new() };
        let to_param = |entry| ParamRef { entry, unit: Rc::clone(&unit) };
        self.entries().into_iter().map(to_param).collect()
    }
}
