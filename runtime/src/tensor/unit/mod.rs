//! Units: parameters that are sharded, reduced and gathered together.

mod gradient;
mod level;
mod recording;
mod values;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

use crate::backend::{Buffer, DType, View, ViewMut};
use crate::comm::{Blocks, Site};
use crate::layout::{AxisId, AxisSet};

use super::backward::Holder;
use super::extent::Extent;
use super::param::WeakParam;
use super::rank::{Staged, fail};
use super::{ParamRef, Rank};

use gradient::Gradient;
use values::Values;

pub use level::ZeroLevel;
pub(super) use recording::Inputs;
pub use values::Stretch;

/// Parameters begin on multiples of this many elements (a cache line of `f32`), and shards do.
const LINE: usize = 16;

/// Parameters that are reduced, and gathered, together: one flat buffer of each kind.
///
/// Under a [`ZeroLevel`] above 0, each rank of the `fsdp` axis owns a run of whole lines of every flat buffer, the
/// [`shard`](Unit::shard). Shards may differ by a line, and be empty; nothing is padded.
pub struct Unit {
    this: Weak<Unit>,
    rank: Rank,
    name: String,
    len: Cell<usize>,
    params: RefCell<Vec<WeakParam>>,
    values: Values,
    gradient: Gradient,
    /// Recorded uses whose backward functions have not run: at zero, the gradient is complete.
    uses: Cell<usize>,
    /// The units of the model that this one is part of, itself included.
    model: RefCell<Vec<Weak<Unit>>>,
    /// Whose gradients it holds.
    holder: Cell<Option<Holder>>,
    /// How often the values have changed.
    version: Cell<u64>,
}

impl Unit {
    pub(crate) fn new(rank: &Rank, name: &str) -> Rc<Unit> {
        Rc::new_cyclic(|this| Unit {
            this: Weak::clone(this),
            rank: rank.clone(),
            name: name.to_owned(),
            len: Cell::new(0),
            params: RefCell::default(),
            values: Values::default(),
            gradient: Gradient::default(),
            uses: Cell::new(0),
            model: RefCell::default(),
            holder: Cell::default(),
            version: Cell::new(0),
        })
    }

    /// The rank that it is on.
    pub(super) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Path of the field whose parameters these are.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements of each flat buffer, alignment gaps included.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// Whether the unit has no parameters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The run of the flat buffers that this rank updates: all of them at level 0.
    pub fn shard(&self) -> Range<usize> {
        if self.level() == ZeroLevel::Replicated {
            return 0..self.len();
        }
        let cut = self.cut();
        let member = self.rank.position(FSDP);
        let start = cut.start(member);
        start..start + cut.lens[member]
    }

    /// Its parameters, in the order of the buffers, as long as the [`Built`](crate::nn::Built) model is there.
    pub fn params(&self) -> Vec<ParamRef> {
        self.params.borrow().iter().filter_map(WeakParam::upgrade).collect()
    }

    /// Whether parameters are gone, because the model was dropped.
    pub(super) fn has_lost_params(&self) -> bool {
        self.params.borrow().iter().any(|param| param.upgrade().is_none())
    }

    /// Adds a parameter that begins where the buffers have ended so far; the next begins on a line of its own.
    pub(crate) fn push(&self, param: &ParamRef) {
        // Saturates, as models are also declared to find that nothing could hold them.
        let len = self.len().saturating_add(param.local_len());
        self.len.set(len.checked_next_multiple_of(LINE).unwrap_or(usize::MAX));
        self.params.borrow_mut().push(param.downgrade());
    }

    /// Makes the buffers, and every parameter's first value.
    pub(crate) fn allocate(&self) {
        self.allocate_values();
        self.allocate_gradient();
        for param in self.params() {
            param.initialise(&self.rank);
        }
    }

    /// Says which units were built together with this one.
    pub(crate) fn set_model(&self, units: &[Rc<Unit>]) {
        *self.model.borrow_mut() = units.iter().map(Rc::downgrade).collect();
    }

    /// The units that were built together with this one, itself included.
    pub(super) fn model(&self) -> Vec<Rc<Unit>> {
        let model: Vec<_> = self.model.borrow().iter().filter_map(Weak::upgrade).collect();
        if model.is_empty() { self.this.upgrade().into_iter().collect() } else { model }
    }

    /// Says whose gradients it holds from now on.
    pub(super) fn hold(&self, holder: Holder) {
        self.holder.set(Some(holder));
    }

    /// Whose gradients it holds.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.holder.get()
    }

    /// Whether it holds the gradients of the backward `number`.
    pub(super) fn holds(&self, number: u64) -> bool {
        self.holder().is_some_and(|holder| holder.is(number))
    }

    /// Gives up the gradients that it holds.
    pub(crate) fn discard_gradient(&self) {
        self.finish_reduction();
        self.holder.set(None);
    }

    /// Numbers the values: the number changes whenever they do.
    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Says that the values are those that had this number.
    pub(crate) fn set_version(&self, version: u64) {
        self.version.set(version);
    }

    /// Makes sure that the values are those that the forward pass has read.
    ///
    /// # Panics
    /// When they have changed since.
    pub(super) fn check_version(&self, read: u64) {
        if self.version() == read {
            return;
        }
        let backward = self.rank.backward();
        let line = backward.map_or_else(String::new, |backward| format!(" at {}", backward.line()));
        panic!(
            "`{}` was changed, by an optimizer's step or by `write`, between its forward pass and its backward{line}: the \
             gradient would mix values from before and after; run the backward before that, or compute the loss again",
            self.name
        );
    }

    /// Notes a use that is recorded for backward.
    pub(crate) fn begin_use(&self) {
        self.uses.set(self.uses.get() + 1);
    }

    /// Notes that a use was dropped, and no backward will run it.
    pub(crate) fn drop_use(&self) {
        self.uses.set(self.uses.get() - 1);
    }

    /// Notes that the values, which were just read, will be read in backward.
    pub(crate) fn will_come_back(&self) {
        if let (ZeroLevel::Parameters, Some(unit)) = (self.level(), self.this.upgrade()) {
            self.rank.gathering().will_come_back(&unit);
        }
    }

    /// Notes that an operation of a forward function reads the values.
    pub(crate) fn note_reader(&self) {
        self.rank.regions().note_reader(&self.this);
    }

    /// Notes that the backward function of a use has run; after the last one, the gradient is complete.
    pub(crate) fn end_use(&self) {
        self.drop_use();
        if self.uses.get() == 0 {
            self.start_reduction();
        }
    }

    /// What of a run of the flat buffers this rank updates, counted from the beginning of the buffers and from that of
    /// the shard; none, if it updates nothing of it.
    pub(crate) fn in_shard(&self, run: Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
        let shard = self.shard();
        let common = values::intersection(run, shard.clone());
        (!common.is_empty())
            .then(|| (common.clone(), common.start - shard.start..common.end - shard.start))
    }

    /// Lets `visit` change the master copy of a run of the shard in f32, given the reduced gradient of the run, and
    /// where the compute dtype is another, where to put the new values in that.
    ///
    /// `range` counts from the beginning of the unit's buffers, and lies inside the [`shard`](Self::shard). After all
    /// runs were changed, [`publish`](Self::publish) brings them to the other ranks.
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

    /// What every `fsdp` rank holds of `own`, which is shaped like the shard, in the order of the flat buffers. At
    /// level 0 that is `own`; above, all ranks of the axis must call it.
    pub(crate) fn gather_shards(&self, own: View<'_>) -> Buffer {
        let mut whole = self.rank.scratch(DType::F32, self.len());
        if self.level() == ZeroLevel::Replicated {
            self.rank.backend().cast(own, whole.view_mut());
            return whole;
        }
        self.rank
            .process_group(FSDP)
            .all_gather(&self.site("gather"), own, whole.view_mut(), &self.cut())
            .unwrap_or_else(|error| fail(error));
        whole
    }

    /// Values of the host where kernels can read them.
    pub(super) fn stage<'a>(&self, values: &'a [f32]) -> Staged<'a> {
        self.rank.stage(values)
    }

    fn level(&self) -> ZeroLevel {
        self.rank.zero_level()
    }

    /// The shards of all ranks of the `fsdp` axis.
    fn cut(&self) -> Blocks {
        let (lines, parts) = (self.len() / LINE, self.rank.degree(AxisId::Fsdp));
        let lens: Vec<usize> =
            (0..parts).map(|part| Extent::part(lines, part, parts).local * LINE).collect();
        Blocks::new(1, lens)
    }

    fn site(&self, what: &str) -> Site {
        Site::new(format!("{} ({what})", self.name))
    }
}

/// The axis over which state is sharded.
const FSDP: AxisSet = AxisSet::of(AxisId::Fsdp);
/// The axes over which sharded state is replicated.
const REPLICAS: AxisSet = AxisSet::DATA.minus(FSDP);
