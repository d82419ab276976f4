//! The values of an FSDP unit's parameters: those that layers read, gathered by an all-gather (unshard) and freed
//! (reshard), and the f32 master weights of the shard that this rank updates.

use std::cell::{Ref, RefCell};
use std::ops::Range;
use std::sync::Arc;

use crate::context::{ZeroStage, fail};
use meshwright_backend::{Buffer, Category, DType, View, ViewMut};
use meshwright_comm::PendingCall;

use super::Unit;

/// Buffers of a unit's values.
///
/// | ZeRO stage | compute dtype f32 | compute dtype bf16 |
/// |---|---|---|
/// | 0 | `whole` | `whole`, and `master` |
/// | 1, 2 | `whole`, whose shard is updated | `whole`, and the shard of `master` |
/// | 3 | `own` | `own`, and the shard of `master` |
///
/// Frozen units have no `master`; buffers are f32 at stage 0.
#[derive(Default)]
pub(super) struct UnitValues {
    /// All of the unit in the compute dtype.
    pub(super) whole: RefCell<WholeValues>,
    /// The shard in the compute dtype, from which others gather.
    pub(super) own: RefCell<Option<Arc<Buffer>>>,
    /// The shard of the master weights in f32, if the compute dtype is another.
    master: RefCell<Option<Buffer>>,
}

/// Values of the whole unit.
#[derive(Default)]
pub(super) enum WholeValues {
    #[default]
    Absent,
    Arriving(PendingCall),
    /// Shared at ZeRO stage 3 only, where nothing writes to them.
    Here(Arc<Buffer>),
}

/// Slice of a flat buffer of a unit, or of a copy: values or gradients of parameters, on this rank.
pub struct UnitSlice<'a> {
    whole: SliceBuffer<'a>,
    range: Range<usize>,
}

/// The buffer of a slice.
enum SliceBuffer<'a> {
    Borrowed(Ref<'a, Buffer>),
    /// Values in another dtype than the unit holds them in.
    Copied(Buffer),
}

impl<'a> UnitSlice<'a> {
    /// Borrows the elements `range` of a buffer.
    pub(super) fn new(whole: Ref<'a, Buffer>, range: Range<usize>) -> UnitSlice<'a> {
        UnitSlice { whole: SliceBuffer::Borrowed(whole), range }
    }

    /// Returns the elements `range` of the slice.
    pub(crate) fn part(self, range: Range<usize>) -> UnitSlice<'a> {
        let start = self.range.start;
        UnitSlice { whole: self.whole, range: start + range.start..start + range.end }
    }

    /// Returns the elements.
    pub fn view(&self) -> View<'_> {
        let whole = match &self.whole {
            SliceBuffer::Borrowed(whole) => whole.view(),
            SliceBuffer::Copied(copy) => copy.view(),
        };
        whole.slice(self.range.clone())
    }
}

impl Unit {
    pub(super) fn allocate_values(&self) {
        let (rank, shard) = (&self.rank, self.shard());
        let zeros = |dtype, len, category| rank.allocator().zeros(dtype, len, category);
        let dtype = if self.has_buffers() { DType::F32 } else { rank.compute_dtype() };
        if self.stage() == ZeroStage::Parameters {
            let own = zeros(dtype, shard.len(), Category::Parameters);
            *self.values.own.borrow_mut() = Some(Arc::new(own));
        } else {
            *self.values.whole.borrow_mut() =
                WholeValues::Here(Arc::new(zeros(dtype, self.len(), Category::Parameters)));
        }
        if dtype != DType::F32 && !self.is_frozen() {
            *self.values.master.borrow_mut() =
                Some(zeros(DType::F32, shard.len(), Category::Optimizer));
        }
    }

    /// Returns the values of the elements `range` of the flat buffers, which are unsharded or being gathered.
    pub(crate) fn read(&self, range: Range<usize>) -> UnitSlice<'_> {
        self.wait_for_values();
        let whole = Ref::map(self.values.whole.borrow(), |whole| match whole {
            WholeValues::Here(buffer) => &**buffer,
            WholeValues::Absent | WholeValues::Arriving(_) => {
                unreachable!("the values were unsharded and waited for")
            }
        });
        UnitSlice::new(whole, range)
    }

    /// Shares the unsharded values beyond the next reshard. The unit is unsharded, or its all-gather is in progress.
    /// `None` below ZeRO stage 3, where values are never resharded.
    pub(crate) fn share_unsharded(&self) -> Option<Arc<Buffer>> {
        if self.stage() != ZeroStage::Parameters {
            return None;
        }
        self.wait_for_values();
        match &*self.values.whole.borrow() {
            WholeValues::Here(values) => Some(Arc::clone(values)),
            WholeValues::Absent | WholeValues::Arriving(_) => None,
        }
    }

    /// Waits for the all-gather of the values, if it is in progress.
    pub(crate) fn wait_for_values(&self) {
        // Values that have arrived may be borrowed.
        if !matches!(&*self.values.whole.borrow(), WholeValues::Arriving(_)) {
            return;
        }
        if let WholeValues::Arriving(pending) = self.values.whole.take() {
            let arrived = pending.wait().unwrap_or_else(|error| fail(error));
            self.values.whole.replace(WholeValues::Here(Arc::new(arrived)));
        }
    }

    /// Starts the all-gather of the values at ZeRO stage 3, unless they are unsharded or being gathered.
    pub(crate) fn start_unshard(&self) {
        // Values that are there may be borrowed: by an operation that reads the unit twice, and another one in between.
        if self.is_unsharded() {
            return;
        }
        if let Some(own) = &*self.values.own.borrow() {
            let rank = &self.rank;
            let gathered = rank.allocator().alloc(own.dtype(), self.len(), Category::Communication);
            let group = rank.process_group(self.shard_axes());
            let site = self.site("parameters");
            self.values.whole.replace(WholeValues::Arriving(group.start_all_gather(
                &site,
                Arc::clone(own),
                gathered,
                &self.shard_blocks(),
            )));
        }
    }

    /// Returns true if the values have memory: if the model was built, and not only declared.
    pub(crate) fn is_allocated(&self) -> bool {
        self.values.own.borrow().is_some() || self.is_unsharded()
    }

    /// Returns true if the values at ZeRO stage 3 are unsharded, or being gathered.
    pub(crate) fn is_unsharded(&self) -> bool {
        !matches!(&*self.values.whole.borrow(), WholeValues::Absent)
    }

    /// Frees the gathered values at ZeRO stage 3. Returns false if they are borrowed.
    pub(crate) fn reshard(&self) -> bool {
        match self.values.whole.try_borrow_mut() {
            Ok(mut whole) => {
                *whole = WholeValues::Absent;
                true
            }
            Err(_) => false,
        }
    }

    /// Writes `block` to the elements from `start` of the flat buffers, as far as this rank holds them.
    pub(crate) fn write(&self, start: usize, block: View<'_>) {
        let backend = self.rank.backend();
        self.wait_for_values();
        self.note_change();
        if let WholeValues::Here(whole) = &mut *self.values.whole.borrow_mut()
            && self.stage() != ZeroStage::Parameters
        {
            let mut view = unshared(whole).view_mut();
            backend.cast(block, view.slice(start..start + block.len()));
        }
        let common = intersection(start..start + block.len(), self.shard());
        if common.is_empty() {
            return;
        }
        let part = block.slice(common.start - start..common.end - start);
        self.change_values(common, |mut master, copy| {
            backend.cast(part, master.reborrow());
            if let Some(copy) = copy {
                backend.cast(part, copy);
            }
        });
    }

    /// Returns this rank's shard in f32: of a frozen unit in another compute dtype, a copy.
    pub(crate) fn master(&self) -> UnitSlice<'_> {
        let stored = self.stored_shard();
        if stored.view().dtype() == DType::F32 {
            return stored;
        }
        let len = stored.view().len();
        let mut copy = self.rank.alloc_scratch(DType::F32, len);
        self.rank.backend().cast(stored.view(), copy.view_mut());
        UnitSlice { whole: SliceBuffer::Copied(copy), range: 0..len }
    }

    /// Returns this rank's shard as it is stored: in f32, but for a frozen unit, which has the compute dtype.
    pub(crate) fn stored_shard(&self) -> UnitSlice<'_> {
        self.wait_for_values();
        let master = self.values.master.borrow();
        if let Ok(master) = Ref::filter_map(master, Option::as_ref) {
            return UnitSlice::new(master, 0..self.shard().len());
        }
        let own = self.values.own.borrow();
        if let Ok(own) = Ref::filter_map(own, |own| own.as_deref()) {
            return UnitSlice::new(own, 0..self.shard().len());
        }
        let whole = Ref::map(self.values.whole.borrow(), |whole| match whole {
            WholeValues::Here(whole) => &**whole,
            WholeValues::Absent | WholeValues::Arriving(_) => {
                unreachable!("below ZeRO stage 3 the values are whole")
            }
        });
        UnitSlice::new(whole, self.shard())
    }

    /// Changes a range of the shard by `visit`, which gets the f32 values and, if the compute dtype is another, the
    /// values in the compute dtype. Of a frozen unit it gets the values in the compute dtype alone.
    pub(crate) fn change_values(
        &self,
        range: Range<usize>,
        visit: impl FnOnce(ViewMut<'_>, Option<ViewMut<'_>>),
    ) {
        self.wait_for_values();
        let start = self.shard().start;
        let in_shard = range.start - start..range.end - start;
        let mut own = self.values.own.borrow_mut();
        let mut whole = self.values.whole.borrow_mut();
        let mut values = match (&mut *own, &mut *whole) {
            (Some(own), _) => self.exclusive_shard(own).view_mut().into_slice(in_shard.clone()),
            (None, WholeValues::Here(whole)) => unshared(whole).view_mut().into_slice(range),
            (None, _) => unreachable!("below ZeRO stage 3 the values are whole"),
        };
        match &mut *self.values.master.borrow_mut() {
            Some(master) => visit(master.view_mut().into_slice(in_shard), Some(values)),
            None => visit(values.reborrow(), None),
        }
    }

    /// Counts a change of the values, which have a new version then. At ZeRO stage 3, frees the gathered old values.
    fn note_change(&self) {
        self.rank.compute_pending_reads();
        self.changes.set(self.changes.get() + 1);
        self.set_version(self.changes.get());
        if self.stage() == ZeroStage::Parameters {
            self.wait_for_values();
            self.reshard();
        }
    }

    /// Starts the all-gather of updated shards on ranks that keep all of the values, at ZeRO stages 1 and 2.
    pub(in super::super) fn start_publish(&self) {
        self.note_change();
        match self.stage() {
            ZeroStage::Replicated | ZeroStage::Parameters => {}
            ZeroStage::Optimizer | ZeroStage::Gradients => {
                // Values that no layer has read since the last update are still being gathered.
                self.wait_for_values();
                let mut whole = self.values.whole.borrow_mut();
                *whole = match std::mem::take(&mut *whole) {
                    WholeValues::Here(buffer) => {
                        let buffer = Arc::try_unwrap(buffer).expect(UNSHARED);
                        let group = self.rank.process_group(self.shard_axes());
                        let site = self.site("parameters");
                        let shards = self.shard_blocks();
                        WholeValues::Arriving(
                            group.start_all_gather_in_place(&site, buffer, &shards),
                        )
                    }
                    other => other,
                };
            }
        }
    }

    /// Returns the shard for writing: a copy if an all-gather that was not waited for still reads it.
    fn exclusive_shard<'a>(&self, own: &'a mut Arc<Buffer>) -> &'a mut Buffer {
        if Arc::get_mut(own).is_none() {
            *own = Arc::new(self.rank.copy_buffer(own, Category::Parameters));
        }
        Arc::get_mut(own).expect("the copy has no other owner")
    }
}

/// Below ZeRO stage 3.
const UNSHARED: &str = "values that are written are not shared";

fn unshared(values: &mut Arc<Buffer>) -> &mut Buffer {
    Arc::get_mut(values).expect(UNSHARED)
}

/// Returns the intersection of two ranges.
pub(super) fn intersection(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}
