//! Units: parameters that share flat buffers, and whose gradient is summed over the ranks as one.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use crate::backend::{Buffer, Category, DType};
use crate::comm::{Pending, ReduceOp, Site};
use crate::layout::AxisSet;

use super::param::WeakParam;
use super::rank::fail;
use super::{ParamRef, Rank};

/// Parameters that are reduced, and later gathered, together: one flat buffer of each kind.
pub struct Unit {
    name: String,
    len: Cell<usize>,
    params: RefCell<Vec<WeakParam>>,
    data: RefCell<Buffer>,
    gradient: RefCell<Gradient>,
    /// Uses recorded forward and not yet undone: at zero, the gradient is complete.
    uses: Cell<usize>,
    /// Whether the sum over ranks was started.
    reduction_started: Cell<bool>,
}

enum Gradient {
    Here(Buffer),
    Reducing(Pending),
    Lost,
}

impl Gradient {
    fn values(&self) -> &[f32] {
        match self {
            Gradient::Here(buffer) => buffer.typed(),
            Gradient::Reducing(_) | Gradient::Lost => {
                unreachable!("gradients are read after their reduction")
            }
        }
    }

    fn values_mut(&mut self) -> &mut [f32] {
        match self {
            Gradient::Here(buffer) => buffer.typed_mut(),
            Gradient::Reducing(_) | Gradient::Lost => {
                unreachable!("a complete gradient gets no further share")
            }
        }
    }
}

impl Unit {
    pub(crate) fn new(rank: &Rank, name: &str) -> Rc<Unit> {
        Rc::new(Unit {
            name: name.to_owned(),
            len: Cell::new(0),
            params: RefCell::default(),
            data: RefCell::new(rank.meter().zeros(DType::F32, 0, Category::Parameters)),
            gradient: RefCell::new(Gradient::Lost),
            uses: Cell::new(0),
            reduction_started: Cell::new(false),
        })
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

    /// Its parameters, in the order of the buffers, as long as the [`Built`](crate::nn::Built) model is there.
    pub fn params(&self) -> Vec<ParamRef> {
        self.params.borrow().iter().filter_map(WeakParam::upgrade).collect()
    }

    /// Adds a parameter that begins where the buffers have ended so far; the next begins on a cache line of its own.
    pub(crate) fn push(&self, param: &ParamRef) {
        self.len.set((self.len() + param.len()).next_multiple_of(16));
        self.params.borrow_mut().push(param.downgrade());
    }

    /// The flat buffer of parameters.
    pub(crate) fn data(&self) -> Ref<'_, [f32]> {
        Ref::map(self.data.borrow(), Buffer::typed)
    }

    /// The flat buffer of parameters, to be changed.
    pub(crate) fn data_mut(&self) -> RefMut<'_, [f32]> {
        RefMut::map(self.data.borrow_mut(), Buffer::typed_mut)
    }

    /// The flat buffer of gradients, when they are not being summed.
    pub(crate) fn gradient(&self) -> Ref<'_, [f32]> {
        Ref::map(self.gradient.borrow(), Gradient::values)
    }

    /// The flat buffer of gradients, to be added to.
    pub(crate) fn gradient_mut(&self) -> RefMut<'_, [f32]> {
        RefMut::map(self.gradient.borrow_mut(), Gradient::values_mut)
    }

    /// Notes a use that backward will undo.
    pub(crate) fn begin_use(&self) {
        self.uses.set(self.uses.get() + 1);
    }

    /// Notes that a use was undone; after the last one, the gradient is complete.
    pub(crate) fn end_use(&self, rank: &Rank) {
        self.uses.set(self.uses.get() - 1);
        if self.uses.get() == 0 {
            self.start_reduction(rank);
        }
    }

    /// Makes the buffers, and every parameter's first value.
    pub(crate) fn allocate(&self, rank: &Rank) {
        *self.data.borrow_mut() = rank.meter().zeros(DType::F32, self.len(), Category::Parameters);
        *self.gradient.borrow_mut() =
            Gradient::Here(rank.meter().zeros(DType::F32, self.len(), Category::Gradients));
        for param in self.params().iter() {
            param.initialise(rank);
        }
    }

    /// Lets `visit` change a run of the parameters' buffer, given the same run of the gradient's.
    pub(crate) fn with_data_and_gradient(
        &self,
        range: Range<usize>,
        visit: impl FnOnce(&mut [f32], &[f32]),
    ) {
        visit(&mut self.data_mut()[range.clone()], &self.gradient()[range]);
    }

    /// Begins a new gradient: nothing contributed yet. One that is still being summed, because nobody wanted the sum,
    /// is given up.
    pub(crate) fn begin_gradient(&self) {
        self.finish_reduction();
        for param in self.params().iter() {
            param.begin_gradient();
        }
        self.reduction_started.set(false);
    }

    /// Starts summing the gradient over the ranks, in the background; it is complete on this rank.
    pub(crate) fn start_reduction(&self, rank: &Rank) {
        self.uses.set(0);
        if self.is_empty() || self.reduction_started.replace(true) {
            return;
        }
        let mut gradient = self.gradient.borrow_mut();
        for param in self.params().iter().filter(|param| param.take_missing_gradient()) {
            gradient.values_mut()[param.range()].fill(0.0);
        }
        self.reduce_over_model_axes(rank, gradient.values_mut());
        let group = rank.group(AxisSet::DATA);
        if group.size() > 1
            && let Gradient::Here(buffer) = std::mem::replace(&mut *gradient, Gradient::Lost)
        {
            *gradient =
                Gradient::Reducing(group.start_all_reduce(&self.site(), ReduceOp::Sum, buffer));
        }
    }

    /// Sums the gradients that are partial over further axes, as those of norms in a sequence-parallel stream are:
    /// small, and so taken together.
    fn reduce_over_model_axes(&self, rank: &Rank, gradient: &mut [f32]) {
        let params = self.params();
        let sets: BTreeSet<AxisSet> = params
            .iter()
            .map(|param| param.gradient_axes().minus(AxisSet::DATA))
            .filter(|axes| rank.degree_of(*axes) > 1)
            .collect();
        for axes in sets {
            let ranges: Vec<Range<usize>> = params
                .iter()
                .filter(|param| param.gradient_axes().minus(AxisSet::DATA) == axes)
                .map(ParamRef::range)
                .collect();
            let mut staging: Vec<f32> =
                ranges.iter().flat_map(|range| gradient[range.clone()].iter().copied()).collect();
            rank.all_reduce(axes, &self.site(), ReduceOp::Sum, &mut staging);
            let mut rest = staging.as_slice();
            for range in ranges {
                let (head, tail) = rest.split_at(range.len());
                gradient[range].copy_from_slice(head);
                rest = tail;
            }
        }
    }

    /// Waits until the gradient is the sum over all ranks.
    pub(crate) fn finish_reduction(&self) {
        let mut gradient = self.gradient.borrow_mut();
        *gradient = match std::mem::replace(&mut *gradient, Gradient::Lost) {
            Gradient::Reducing(pending) => {
                Gradient::Here(pending.wait().unwrap_or_else(|error| fail(error)))
            }
            settled => settled,
        };
    }

    fn site(&self) -> Site {
        Site::new(format!("{} (gradient)", self.name))
    }
}
