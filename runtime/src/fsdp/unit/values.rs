//! The values of a unit's parameters: whole where layers read them, and the part that this rank updates.

use std::cell::{Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::autograd::copy_to;
use crate::backend::{Buffer, Category, DType, View, ViewMut};
use crate::comm::Pending;
use crate::context::{ZeroLevel, fail};

use super::{FSDP, Unit};

/// Where the values of a unit are.
///
/// | level | compute dtype f32 | compute dtype bf16 |
/// |---|---|---|
/// | 0 | `whole` | `whole`, and `master` |
/// | 1, 2 | `whole`, of which the shard is updated | `whole`, and the shard of `master` |
/// | 3 | `own` | `own`, and the shard of `master` |
#[derive(Default)]
pub(super) struct Values {
    /// All of the unit in the compute dtype.
    pub(super) whole: RefCell<Whole>,
    /// The shard in the compute dtype, from which others gather.
    pub(super) own: RefCell<Option<Arc<Buffer>>>,
    /// The shard in f32, where the compute dtype is another.
    master: RefCell<Option<Buffer>>,
}

#[derive(Default)]
pub(super) enum Whole {
    #[default]
    Absent,
    Arriving(Pending),
    Here(Buffer),
}

/// Borrowed elements of a buffer of a unit: values or gradients of parameters, on this rank.
pub struct Stretch<'a> {
    whole: Ref<'a, Buffer>,
    range: Range<usize>,
}

impl<'a> Stretch<'a> {
    /// The elements of `range` of what was borrowed.
    pub(super) fn new(whole: Ref<'a, Buffer>, range: Range<usize>) -> Stretch<'a> {
        Stretch { whole, range }
    }

    /// The elements of `range` of these.
    pub(crate) fn part(self, range: Range<usize>) -> Stretch<'a> {
        let start = self.range.start;
        Stretch { whole: self.whole, range: start + range.start..start + range.end }
    }

    /// The elements.
    pub fn view(&self) -> View<'_> {
        self.whole.view().slice(self.range.clone())
    }
}

impl Unit {
    pub(super) fn allocate_values(&self) {
        let (rank, shard) = (&self.rank, self.shard());
        let zeros = |dtype, len, category| rank.meter().zeros(dtype, len, category);
        let dtype = rank.compute_dtype();
        if self.level() == ZeroLevel::Parameters {
            let own = zeros(dtype, shard.len(), Category::Parameters);
            *self.values.own.borrow_mut() = Some(Arc::new(own));
        } else {
            *self.values.whole.borrow_mut() =
                Whole::Here(zeros(dtype, self.len(), Category::Parameters));
        }
        if dtype != DType::F32 {
            *self.values.master.borrow_mut() =
                Some(zeros(DType::F32, shard.len(), Category::Optimizer));
        }
    }

    /// The values of the elements `range` of the flat buffers, gathered first where they are not there.
    pub(crate) fn read(self: &Rc<Unit>, range: Range<usize>) -> Stretch<'_> {
        if self.level() == ZeroLevel::Parameters {
            self.rank.gathering().enter(self);
        }
        self.settle();
        let whole = Ref::map(self.values.whole.borrow(), |whole| match whole {
            Whole::Here(buffer) => buffer,
            Whole::Absent | Whole::Arriving(_) => unreachable!("the values were just waited for"),
        });
        Stretch { whole, range }
    }

    /// Waits for values under way.
    pub(crate) fn settle(&self) {
        // What is there may be borrowed.
        if !matches!(&*self.values.whole.borrow(), Whole::Arriving(_)) {
            return;
        }
        if let Whole::Arriving(pending) = self.values.whole.take() {
            let arrived = pending.wait().unwrap_or_else(|error| fail(error));
            self.values.whole.replace(Whole::Here(arrived));
        }
    }

    /// At level 3: begins to gather the values, unless they are there or under way.
    pub(crate) fn start_gather(&self) {
        let mut whole = self.values.whole.borrow_mut();
        if let (Whole::Absent, Some(own)) = (&*whole, &*self.values.own.borrow()) {
            let rank = &self.rank;
            let room = rank.meter().alloc(own.dtype(), self.len(), Category::Communication);
            let group = rank.process_group(FSDP);
            let site = self.site("parameters");
            *whole =
                Whole::Arriving(group.start_all_gather(&site, Arc::clone(own), room, &self.cut()));
        }
    }

    /// At level 3: frees the gathered values. Gives whether that was possible: nobody may be reading them.
    pub(crate) fn release(&self) -> bool {
        match self.values.whole.try_borrow_mut() {
            Ok(mut whole) => {
                *whole = Whole::Absent;
                true
            }
            Err(_) => false,
        }
    }

    /// Writes `block` over the elements from `start` of the flat buffers, as far as this rank holds them.
    pub(crate) fn write(&self, start: usize, block: View<'_>) {
        let backend = self.rank.backend();
        self.settle();
        self.note_change();
        if let Whole::Here(whole) = &mut *self.values.whole.borrow_mut()
            && self.level() != ZeroLevel::Parameters
        {
            let mut view = whole.view_mut();
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

    /// This rank's elements of the shard in f32.
    pub(crate) fn master(&self) -> Stretch<'_> {
        self.settle();
        let master = self.values.master.borrow();
        if let Ok(master) = Ref::filter_map(master, Option::as_ref) {
            return Stretch::new(master, 0..self.shard().len());
        }
        let own = self.values.own.borrow();
        if let Ok(own) = Ref::filter_map(own, |own| own.as_deref()) {
            return Stretch::new(own, 0..self.shard().len());
        }
        let whole = Ref::map(self.values.whole.borrow(), |whole| match whole {
            Whole::Here(whole) => whole,
            Whole::Absent | Whole::Arriving(_) => {
                unreachable!("below level 3 the values are whole")
            }
        });
        Stretch::new(whole, self.shard())
    }

    /// Lets `visit` change a run of the shard in f32, and, where the compute dtype is another, the values in that.
    pub(crate) fn change_values(
        &self,
        range: Range<usize>,
        visit: impl FnOnce(ViewMut<'_>, Option<ViewMut<'_>>),
    ) {
        self.settle();
        let start = self.shard().start;
        let in_shard = range.start - start..range.end - start;
        let mut own = self.values.own.borrow_mut();
        let mut whole = self.values.whole.borrow_mut();
        let mut values = match (&mut *own, &mut *whole) {
            (Some(own), _) => self.exclusive(own).view_mut().into_slice(in_shard.clone()),
            (None, Whole::Here(whole)) => whole.view_mut().into_slice(range),
            (None, _) => unreachable!("below level 3 the values are whole"),
        };
        match &mut *self.values.master.borrow_mut() {
            Some(master) => visit(master.view_mut().into_slice(in_shard), Some(values)),
            None => visit(values.reborrow(), None),
        }
    }

    /// Notes that the values change. At level 3, what was gathered before is of the old ones.
    fn note_change(&self) {
        self.set_version(self.version() + 1);
        if self.level() == ZeroLevel::Parameters {
            self.settle();
            self.rank.gathering().leave(self);
            self.release();
        }
    }

    /// Brings the updated shards to the ranks that hold all of the values.
    pub(crate) fn publish(&self) {
        self.note_change();
        match self.level() {
            ZeroLevel::Replicated => {}
            ZeroLevel::Optimizer | ZeroLevel::Gradients => {
                // Values that no layer has read since the last time are still under way.
                self.settle();
                let mut whole = self.values.whole.borrow_mut();
                *whole = match std::mem::take(&mut *whole) {
                    Whole::Here(buffer) => {
                        let group = self.rank.process_group(FSDP);
                        let site = self.site("parameters");
                        let cut = self.cut();
                        Whole::Arriving(group.start_all_gather_in_place(&site, buffer, &cut))
                    }
                    other => other,
                };
            }
            ZeroLevel::Parameters => self.rank.gathering().updated(self),
        }
    }

    /// The shard to be changed: a copy of its own, should a gather that nobody waited for still be reading it.
    fn exclusive<'a>(&self, own: &'a mut Arc<Buffer>) -> &'a mut Buffer {
        if Arc::get_mut(own).is_none() {
            *own = Arc::new(copy_to(&self.rank, own, Category::Parameters));
        }
        Arc::get_mut(own).expect("nobody else has the copy")
    }
}

/// What two runs share.
pub(super) fn intersection(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}
