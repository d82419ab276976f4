//! Parameters: named blocks of a unit's flat buffers.

use std::cell::Cell;
use std::ops::Range;
use std::panic::Location;
use std::rc::{Rc, Weak};

use crate::backend::{DType, LeafGrad, ViewMut};
use crate::comm::Site;
use crate::layout::{AxisSet, DimInfo};

use crate::autograd::InBackward;
use crate::context::{
    Extent, Rank, block_index, gather_block, global_sizes, local_len, named_sizes,
};

use super::unit::{Stretch, Unit};

/// How a parameter begins. Every element is a function of the seed, the parameter's path and the element's place in
/// the global tensor, so every mesh starts from the same model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All zeros: biases.
    Zeros,
    /// All ones: gains.
    Ones,
    /// Normally distributed around zero with this standard deviation.
    Normal(f32),
}

/// What a parameter is for, as far as its declaration says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The weight, gain or bias of a layer.
    Layer,
    /// Rows that stand for themselves: [`ParamRef::is_table`].
    Table,
    /// A field of the author's own.
    Field,
}

/// A parameter's place in the model, and its block of the unit's buffers.
#[derive(Clone)]
pub struct ParamRef(Rc<Entry>);

/// A parameter as its unit knows it: the model owns its parameters, which own their unit.
pub(crate) struct WeakParam(Weak<Entry>);

impl WeakParam {
    /// The parameter, while the model is there.
    pub(crate) fn upgrade(&self) -> Option<ParamRef> {
        self.0.upgrade().map(ParamRef)
    }
}

struct Entry {
    site: Site,
    infos: &'static [DimInfo],
    extents: Vec<Extent>,
    init: Init,
    unit: Rc<Unit>,
    start: usize,
    varies: AxisSet,
    contracted: usize,
    role: Role,
    gradient_axes: Cell<AxisSet>,
    /// The axes over which the gradient that lies in the unit's buffer is still to be summed.
    summed_over: Cell<AxisSet>,
    has_gradient: Cell<bool>,
}

impl ParamRef {
    pub(crate) fn new(
        path: &str,
        infos: &'static [DimInfo],
        contracted: usize,
        extents: Vec<Extent>,
        init: Init,
        role: Role,
        unit: &Rc<Unit>,
    ) -> ParamRef {
        let varies = infos.iter().fold(AxisSet::NONE, |axes, info| axes.or(info.axes()));
        let param = ParamRef(Rc::new(Entry {
            site: Site::new(path),
            infos,
            init,
            unit: Rc::clone(unit),
            start: unit.len(),
            varies,
            contracted,
            role,
            gradient_axes: Cell::default(),
            summed_over: Cell::default(),
            has_gradient: Cell::new(false),
            extents,
        }));
        unit.push(&param);
        param
    }

    pub(crate) fn downgrade(&self) -> WeakParam {
        WeakParam(Rc::downgrade(&self.0))
    }

    /// Path of the fields that lead to the parameter: `blocks.3.mlp.down.weight`.
    pub fn path(&self) -> &str {
        self.0.site.field()
    }

    /// The parameter as the origin of a collective.
    pub fn site(&self) -> &Site {
        &self.0.site
    }

    /// Each dim, as declared.
    pub fn dims(&self) -> &'static [DimInfo] {
        self.0.infos
    }

    /// Size and place of each dim on this rank. [`sizes`](Self::sizes) are those of the global parameter.
    pub fn local_extents(&self) -> &[Extent] {
        &self.0.extents
    }

    /// Number of elements on this rank. [`global_len`](Self::global_len) is that of the global parameter.
    pub fn local_len(&self) -> usize {
        local_len(&self.0.extents)
    }

    /// See [`local_extents`](Self::local_extents).
    #[deprecated(
        note = "it gives the size and place of this rank's block: `local_extents` says so, and `sizes` gives the sizes of \
                the global parameter"
    )]
    pub fn extents(&self) -> &[Extent] {
        self.local_extents()
    }

    /// See [`local_len`](Self::local_len).
    #[deprecated(
        note = "it counts the elements of this rank's block: `local_len` says so, and `global_len` counts those of the global \
                parameter"
    )]
    pub fn len(&self) -> usize {
        self.local_len()
    }

    /// Whether this rank holds no element of it.
    pub fn is_empty(&self) -> bool {
        self.local_len() == 0
    }

    /// Number of elements of each dim of the global parameter.
    pub fn sizes(&self) -> Vec<usize> {
        global_sizes(&self.0.extents)
    }

    /// Number of elements of the global parameter.
    pub fn global_len(&self) -> usize {
        self.0.extents.iter().map(|extent| extent.global).product()
    }

    /// The axes over which it is split.
    pub fn varies(&self) -> AxisSet {
        self.0.varies
    }

    /// The axes over which its gradient is summed, known once it has been used.
    pub fn gradient_axes(&self) -> AxisSet {
        self.0.gradient_axes.get()
    }

    /// Number of leading dims that a weight reads, the others being those it writes.
    pub fn contracted(&self) -> usize {
        self.0.contracted
    }

    /// All of the parameter in f32, row-major, put together from the ranks that hold its parts; all of them must call
    /// it.
    #[track_caller]
    pub fn gather(&self, rank: &Rank) -> Vec<f32> {
        self.gather_block(rank, self.to_local_vec())
    }

    /// The global tensor of which `block` is this rank's part, split as the parameter is.
    #[track_caller]
    pub(crate) fn gather_block(&self, rank: &Rank, block: Vec<f32>) -> Vec<f32> {
        gather_block(rank, self.dims(), self.local_extents(), block)
    }

    /// Whether weight decay applies: parameters of two dims or more, where a bias over a pair such as
    /// `(Heads, HeadDim)` is a vector.
    pub fn decays(&self) -> bool {
        self.0.extents.len() > 1 && self.0.contracted > 0
    }

    /// Whether its first dim counts rows that stand for themselves, as the token ids of an embedding or a head do, rather
    /// than the features that a linear map reads.
    pub fn is_table(&self) -> bool {
        self.0.role == Role::Table
    }

    /// Whether it belongs to a layer that maps features to features, as far as it has dims on both sides. Of a field of
    /// the author's own it is not known what is done with it, and a table maps none.
    pub fn is_of_layer(&self) -> bool {
        self.0.role == Role::Layer
    }

    /// Makes sure that the trailing dims of a tensor, which have the right names by its type, have the sizes that the
    /// parameter was built with.
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

    /// Where it lies in its unit's buffers.
    pub(crate) fn range(&self) -> Range<usize> {
        self.0.start..self.0.start + self.local_len()
    }

    /// The run of its elements that this rank updates, counted from its own first element: all of them where the
    /// optimiser's state is not sharded.
    pub fn owned(&self) -> Range<usize> {
        let start = self.0.start;
        let owned = self.0.unit.in_shard(self.range());
        owned.map_or(0..0, |(run, _)| run.start - start..run.end - start)
    }

    /// [`owned`](Self::owned), counted from the beginning of the unit's shard.
    pub(crate) fn owned_in_shard(&self) -> Range<usize> {
        self.0.unit.in_shard(self.range()).map_or(0..0, |(_, in_shard)| in_shard)
    }

    /// Its elements on this rank in f32, row-major: [`gather`](Self::gather) gives the global parameter. Where they are
    /// sharded over the `fsdp` axis, all of its ranks must call it.
    pub fn to_local_vec(&self) -> Vec<f32> {
        let unit = &self.0.unit;
        let whole = unit.gather_shards(unit.master().view());
        whole.view().slice(self.range()).to_vec()
    }

    /// See [`to_local_vec`](Self::to_local_vec).
    #[deprecated(
        note = "it gives this rank's block only: `to_local_vec` says so, and `gather` gives the global parameter on every rank"
    )]
    pub fn to_vec(&self) -> Vec<f32> {
        self.to_local_vec()
    }

    /// The elements that this rank [owns](Self::owned), in f32.
    pub fn owned_values(&self) -> Stretch<'_> {
        self.0.unit.master().part(self.owned_in_shard())
    }

    /// Gives it new elements: `block` is this rank's block of the parameter, row-major, the same on every rank that
    /// holds it. [`write_global`](Self::write_global) takes the global parameter.
    ///
    /// # Panics
    /// When `block` has another number of elements.
    #[track_caller]
    pub fn write(&self, block: &[f32]) {
        let name = || format!("the block of `{}`", self.path());
        let declared = self.0.unit.rank().declared_values();
        declared.note(name, self.varies(), Location::caller(), block);
        assert_eq!(block.len(), self.local_len(), "a block of `{}`", self.path());
        self.0.unit.write(self.0.start, self.0.unit.stage(block).view());
    }

    /// Gives it new elements: `values` is the global parameter, row-major, the same on every rank. Each rank takes its
    /// block, as [`gather`](Self::gather) puts them together.
    ///
    /// # Panics
    /// When `values` has another number of elements.
    #[track_caller]
    pub fn write_global(&self, values: &[f32]) {
        assert_eq!(values.len(), self.global_len(), "the global elements of `{}`", self.path());
        let name = || format!("the elements of `{}`", self.path());
        let declared = self.0.unit.rank().declared_values();
        declared.note(name, AxisSet::NONE, Location::caller(), values);
        let at = |mut rest: usize| {
            let (mut index, mut stride) = (0, 1);
            for extent in self.local_extents().iter().rev() {
                index += (extent.offset + rest % extent.local) * stride;
                rest /= extent.local;
                stride *= extent.global;
            }
            index
        };
        let block: Vec<f32> = (0..self.local_len()).map(|rest| values[at(rest)]).collect();
        self.0.unit.write(self.0.start, self.0.unit.stage(&block).view());
    }

    /// Its values on this rank, row-major, for a kernel; the gradient of who reads them is summed over `axes`.
    pub(crate) fn read(&self, axes: AxisSet) -> Stretch<'_> {
        self.0.gradient_axes.set(self.gradient_axes().or(axes));
        self.0.unit.note_reader();
        self.values()
    }

    /// Its values on this rank, row-major, for a kernel of backward.
    pub(crate) fn values(&self) -> Stretch<'_> {
        self.0.unit.read(self.range())
    }

    /// This rank's block of the reduced gradient in f32, row-major; zeros where nothing contributed. Where it is
    /// sharded over the `fsdp` axis, all of its ranks must call it.
    pub(crate) fn gradient(&self) -> Vec<f32> {
        let unit = &self.0.unit;
        let whole = unit.gather_shards(unit.reduced_gradient().view());
        whole.view().slice(self.range()).to_vec()
    }

    /// The reduced gradient of the elements that this rank [owns](Self::owned).
    pub(crate) fn owned_gradient(&self) -> Stretch<'_> {
        self.0.unit.reduced_gradient().part(self.owned_in_shard())
    }

    pub(crate) fn begin_use(&self, axes: AxisSet, in_backward: InBackward) {
        self.0.gradient_axes.set(self.gradient_axes().or(axes));
        self.0.unit.begin_use();
        if in_backward == InBackward::Reads {
            self.0.unit.will_come_back();
        }
    }

    /// The rank that it is on.
    pub(crate) fn rank(&self) -> &Rank {
        self.0.unit.rank()
    }

    /// Its unit.
    pub(crate) fn unit(&self) -> &Rc<Unit> {
        &self.0.unit
    }

    /// The axes besides those of data over which the gradient in the unit's buffer is still to be summed.
    pub(crate) fn summed_over(&self) -> AxisSet {
        self.0.summed_over.get().minus(AxisSet::DATA)
    }

    /// Makes the gradient in the unit's buffer one that is summed over all axes that uses so far need, and returns them.
    ///
    /// Earlier contributions may be the same on all ranks of an axis that only a later use varies over. Then they count on
    /// the first rank of the axis, and are forgotten on others.
    pub(crate) fn widen_gradient_axes(&self, rank: &Rank) -> AxisSet {
        let axes = self.gradient_axes().or(AxisSet::DATA);
        let before = self.0.summed_over.replace(axes);
        let added = axes.minus(before).minus(AxisSet::DATA);
        if self.0.has_gradient.get() && rank.position(added) != 0 {
            self.0.unit.gradient_mut().view_mut().slice(self.range()).clear();
        }
        axes
    }

    pub(crate) fn with_gradient(&self, write: impl FnOnce(ViewMut<'_>, bool)) {
        let mut gradient = self.0.unit.gradient_mut();
        let part = gradient.view_mut().into_slice(self.range());
        write(part, self.0.has_gradient.replace(true));
    }

    /// Lets `write` contribute at once to the gradients of those parameters of one unit that are `wanted`.
    pub(crate) fn with_gradients<const N: usize>(
        params: [&ParamRef; N],
        wanted: [bool; N],
        write: impl FnOnce([Option<LeafGrad<'_>>; N]),
    ) {
        if !wanted.contains(&true) {
            return write([const { None }; N]);
        }
        let unit = params[0].unit();
        assert!(
            params.iter().all(|param| Rc::ptr_eq(param.unit(), unit)),
            "parameters of one unit"
        );
        let mut gradient = unit.gradient_mut();
        let mut views = gradient.view_mut().into_disjoint(params.map(ParamRef::range)).into_iter();
        write(std::array::from_fn(|i| {
            let view = views.next().filter(|_| wanted[i])?;
            Some(LeafGrad { view, accumulate: params[i].0.has_gradient.replace(true) })
        }));
    }

    /// Forgets that anything contributed to the gradient.
    pub(crate) fn begin_gradient(&self) {
        self.0.has_gradient.set(false);
        self.0.summed_over.set(AxisSet::NONE);
    }

    /// Whether nothing has contributed to the gradient so far; from then on something has.
    pub(crate) fn take_missing_gradient(&self) -> bool {
        !self.0.has_gradient.replace(true)
    }

    /// Its path, global sizes and first values, as text.
    pub(crate) fn declaration(&self) -> String {
        format!("{} {:?} {:?}", self.path(), self.sizes(), self.0.init)
    }

    pub(crate) fn initialise(&self, rank: &Rank) {
        let mut block = rank.scratch(DType::F32, self.local_len());
        match self.0.init {
            Init::Zeros => rank.backend().fill(block.view_mut(), 0.0),
            Init::Ones => rank.backend().fill(block.view_mut(), 1.0),
            Init::Normal(std) => {
                let key = crate::random::key(rank.seed(), self.path());
                let index = block_index(&self.0.extents);
                rank.backend().normal(key, std, &index, block.view_mut());
            }
        }
        self.0.unit.write(self.0.start, block.view());
    }
}

impl std::fmt::Debug for ParamRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParamRef({})", self.path())
    }
}
