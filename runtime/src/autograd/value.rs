//! A tensor without its type: local data, where it lies in the global tensor, how it came about.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Buffer, Category, LeafGrad, View, ViewMut};
use crate::layout::{AxisId, AxisSet};

use crate::context::{Extent, Rank, local_len};
use crate::fsdp::ParamRef;

use super::activation_checkpointing::Region;
use super::matmul::{Biased, Product};
use super::offloading::Offloaded;
use super::pointwise::Pointwise;
use super::tape::{Gradients, NodeId};
use super::tensor_parallel::Regather;

/// A tensor without its type. Element-wise operations on it are kept as an expression until another operation needs
/// the numbers, so that a chain of them costs one pass over memory.
#[derive(Clone)]
pub struct Value(Rc<Inner>);

struct Inner {
    rank: Rank,
    extents: Vec<Extent>,
    state: RefCell<State>,
    /// Regions of other axes that this value has entered: each entry is made once.
    entered: RefCell<Vec<(AxisId, Value)>>,
    regather: Option<Rc<Regather>>,
    /// The recomputed segment in whose first run, which is not recorded, the value was computed.
    unrecorded_in: Option<Rc<Region>>,
}

enum State {
    Ready(Ready),
    /// A product that waits to see what is done with it, with whether it is recorded for backward.
    Product(Product, bool),
    /// With whether it is recorded for backward, which is settled when the expression is written.
    Deferred(Pointwise, bool),
}

/// Numbers, and the recorded operation that made them where a gradient is wanted.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) data: Arc<Buffer>,
    pub(crate) node: Option<NodeId>,
}

impl Value {
    pub(crate) fn ready(
        rank: &Rank,
        extents: Vec<Extent>,
        data: Buffer,
        node: Option<NodeId>,
    ) -> Value {
        debug_assert_eq!(data.len(), local_len(&extents));
        Self::new(rank, extents, State::Ready(Ready { data: Arc::new(data), node }), None)
    }

    /// A value that no operation has made: no gradient flows through it.
    pub(crate) fn constant(rank: &Rank, extents: Vec<Extent>, data: Buffer) -> Value {
        let state = State::Ready(Ready { data: Arc::new(data), node: None });
        Self::made_in(rank, extents, state, None, None)
    }

    /// A value that reads the numbers of another operation's result.
    pub(crate) fn alias(
        rank: &Rank,
        extents: Vec<Extent>,
        data: Arc<Buffer>,
        node: Option<NodeId>,
    ) -> Value {
        Self::new(rank, extents, State::Ready(Ready { data, node }), None)
    }

    /// A gathered value: whoever saves it for backward saves only how to gather it again.
    pub(crate) fn gathered(
        rank: &Rank,
        extents: Vec<Extent>,
        data: Buffer,
        node: Option<NodeId>,
        regather: Rc<Regather>,
    ) -> Value {
        Self::new(rank, extents, State::Ready(Ready { data: Arc::new(data), node }), Some(regather))
    }

    /// A product, which waits for who needs its numbers where that may pay.
    pub(crate) fn product(rank: &Rank, extents: Vec<Extent>, product: Product) -> Value {
        let recorded = rank.is_recording();
        let state = match product.may_wait() {
            true => State::Product(product, recorded),
            false => State::Ready(product.compute(recorded)),
        };
        Self::new(rank, extents, state, None)
    }

    pub(crate) fn deferred(rank: &Rank, extents: Vec<Extent>, pointwise: Pointwise) -> Value {
        let unrecorded_in = pointwise.unrecorded_in(rank);
        let state = State::Deferred(pointwise, rank.is_recording());
        Self::made_in(rank, extents, state, None, unrecorded_in)
    }

    fn new(
        rank: &Rank,
        extents: Vec<Extent>,
        state: State,
        regather: Option<Rc<Regather>>,
    ) -> Value {
        Self::made_in(rank, extents, state, regather, rank.regions().first_run())
    }

    fn made_in(
        rank: &Rank,
        extents: Vec<Extent>,
        state: State,
        regather: Option<Rc<Regather>>,
        unrecorded_in: Option<Rc<Region>>,
    ) -> Value {
        Value(Rc::new(Inner {
            rank: rank.clone(),
            extents,
            state: RefCell::new(state),
            entered: RefCell::default(),
            regather,
            unrecorded_in,
        }))
    }

    /// The same value, which was begun in the first run of `segment`, if that is one.
    pub(crate) fn computed_in(self, segment: Option<Rc<Region>>) -> Value {
        match segment {
            None => self,
            Some(_) => {
                let (state, extents) = (State::Ready(self.settle()), self.extents().to_vec());
                Self::made_in(self.rank(), extents, state, None, segment)
            }
        }
    }

    /// Whether it was computed in the first run of a recomputed segment, which is not recorded.
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.0.unrecorded_in.is_some()
    }

    /// Makes sure that a recorded operation does not read what was computed without being recorded.
    ///
    /// # Panics
    /// When the value has left a recomputed segment otherwise than as its result.
    #[track_caller]
    fn check_recorded(&self) {
        if self.rank().is_recording() {
            self.check_left_no_segment();
        }
    }

    #[track_caller]
    fn check_left_no_segment(&self) {
        if let Some(segment) = &self.0.unrecorded_in {
            panic!(
                "a tensor computed inside of the recomputed `{}` is used outside of it, where it would have no gradient: \
                 return it from the segment's `forward`, in a tuple with its result, or read it inside of \
                 `rank.evaluate(..)` if no gradient is wanted",
                segment.path
            );
        }
    }

    pub(crate) fn rank(&self) -> &Rank {
        &self.0.rank
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.0.extents
    }

    pub(crate) fn len(&self) -> usize {
        local_len(&self.0.extents)
    }

    /// The recorded operation that has computed the value, from which backward can begin.
    ///
    /// # Panics
    /// When the value has left a recomputed segment otherwise than as its result.
    #[track_caller]
    pub(crate) fn recorded_node(&self) -> Option<NodeId> {
        self.check_left_no_segment();
        self.settle().node
    }

    /// The numbers, computed now if they were deferred. While nothing is recorded they come without the operation that
    /// made them, so that no other is recorded after it.
    #[track_caller]
    pub(crate) fn compute(&self) -> Ready {
        self.check_recorded();
        let Ready { data, node } = self.settle();
        Ready { data, node: node.filter(|_| self.rank().is_recording()) }
    }

    /// Whether it is a product that waits.
    pub(crate) fn is_waiting_product(&self) -> bool {
        matches!(&*self.0.state.borrow(), State::Product(..))
    }

    /// A product that waits, with a bias added, and GELU of that; none where the bias is not one for each column, or somebody
    /// else reads the product too.
    pub(crate) fn with_bias(&self, with: &Biased<'_>) -> Option<Value> {
        match &*self.0.state.borrow() {
            State::Product(product, recorded)
                if Rc::strong_count(&self.0) == 1 && product.fits(with.bias) =>
            {
                let Ready { data, node } = product.compute_biased(with, *recorded);
                Some(Value::alias(self.rank(), self.extents().to_vec(), data, node))
            }
            _ => None,
        }
    }

    /// Computes the products that an expression still waits with.
    pub(crate) fn compute_products(&self) {
        if let State::Deferred(pointwise, _) = &mut *self.0.state.borrow_mut() {
            pointwise.compute_products();
        }
    }

    /// Whether it is the sum of two values, still to be computed.
    pub(crate) fn is_deferred_sum(&self) -> bool {
        matches!(&*self.0.state.borrow(), State::Deferred(pointwise, _) if pointwise.is_sum())
    }

    /// Computes a [deferred sum](Self::is_deferred_sum) by a kernel that takes both addends and where the sum goes.
    /// Returns whether it was one.
    pub(crate) fn compute_sum(&self, kernel: impl FnOnce(View<'_>, View<'_>, ViewMut<'_>)) -> bool {
        let mut state = self.0.state.borrow_mut();
        let (pointwise, recorded) = match &*state {
            State::Deferred(pointwise, recorded) if pointwise.is_sum() => (pointwise, *recorded),
            _ => return false,
        };
        let ready = pointwise.compute_by(&self.0.rank, self.len(), recorded, |addends, sum| {
            kernel(addends[0], addends[1], sum);
        });
        *state = State::Ready(ready);
        true
    }

    /// The numbers, computed now if they were deferred, and the operation that made them.
    pub(crate) fn settle(&self) -> Ready {
        let mut state = self.0.state.borrow_mut();
        let ready = match &mut *state {
            State::Ready(ready) => return ready.clone(),
            State::Product(product, recorded) => product.compute(*recorded),
            State::Deferred(pointwise, recorded) => {
                pointwise.compute_products();
                match pointwise.as_value() {
                    Some(value) => value.settle(),
                    None => pointwise.compute(&self.0.rank, self.len(), *recorded),
                }
            }
        };
        *state = State::Ready(ready.clone());
        ready
    }

    /// The numbers as a buffer of their own, copied only where somebody else reads them too.
    pub(crate) fn into_unique(self) -> (Buffer, Option<NodeId>) {
        let rank = self.0.rank.clone();
        let Ready { data, node } = self.compute();
        drop(self);
        (unique(&rank, data), node)
    }

    /// The expression of a deferred value, to be continued; a computed value, and a product that waits, is a leaf of a new
    /// one.
    #[track_caller]
    pub(crate) fn to_pointwise(&self) -> Pointwise {
        self.check_recorded();
        match &*self.0.state.borrow() {
            State::Deferred(pointwise, recorded)
                if !pointwise.is_long() && *recorded == self.rank().is_recording() =>
            {
                return pointwise.clone();
            }
            State::Product(_, recorded) if *recorded == self.rank().is_recording() => {
                return Pointwise::leaf(self.clone());
            }
            _ => {}
        }
        self.settle();
        Pointwise::leaf(self.clone())
    }

    /// What an operation keeps of this value for its backward.
    pub(crate) fn save(&self) -> Saved {
        match &self.0.regather {
            // What is computed once more is undone at once, and need not be fetched a third time.
            Some(regather) if !self.rank().regions().is_replaying() => {
                regather.add_reader();
                Saved::Regather(Rc::clone(regather))
            }
            _ => Saved::Data(self.compute().data),
        }
    }

    /// The same numbers, made by the operation `node`, or by none.
    pub(crate) fn made_by(&self, node: Option<NodeId>) -> Value {
        Value::alias(self.rank(), self.extents().to_vec(), self.settle().data, node)
    }

    /// The value that this one becomes inside a region over `axis`, made by `enter` the first time.
    pub(crate) fn entered(&self, axis: AxisId, enter: impl FnOnce() -> Value) -> Value {
        if let Some((_, value)) = self.0.entered.borrow().iter().find(|(known, _)| *known == axis) {
            return value.clone();
        }
        let value = enter();
        // Entered without a record, it would lose the gradient of who reads it later.
        if self.rank().is_recording() || self.settle().node.is_none() {
            self.0.entered.borrow_mut().push((axis, value.clone()));
        }
        value
    }
}

/// The buffer itself where nobody else holds it, else a copy.
pub(crate) fn unique(rank: &Rank, shared: Arc<Buffer>) -> Buffer {
    Arc::try_unwrap(shared).unwrap_or_else(|shared| copy_to(rank, &shared, Category::Activations))
}

/// A copy of a buffer, which counts as `category`.
pub(crate) fn copy_to(rank: &Rank, data: &Buffer, category: Category) -> Buffer {
    let mut copy = rank.meter().alloc(data.dtype(), data.len(), category);
    rank.backend().cast(data.view(), copy.view_mut());
    copy
}

/// What an operation keeps for its backward.
pub(crate) enum Saved {
    Data(Arc<Buffer>),
    Offloaded(Offloaded),
    Regather(Rc<Regather>),
}

impl Saved {
    /// Begins to fetch the data where it has to be fetched, so that work can be done meanwhile.
    pub(crate) fn fetch(&self, rank: &Rank) {
        if let Saved::Regather(regather) = self {
            regather.start(rank);
        }
    }

    /// The data.
    pub(crate) fn take(self, rank: &Rank) -> Arc<Buffer> {
        match self {
            Saved::Data(data) => data,
            Saved::Offloaded(data) => Arc::new(data.fetch(rank)),
            Saved::Regather(regather) => regather.take(rank),
        }
    }
}

/// What a parameter's use leaves for backward: counted while it exists, so that a unit knows when its gradient is complete.
pub(crate) struct ParamUse {
    param: ParamRef,
    axes: AxisSet,
    /// Of the values that the operation has read, if backward reads them too.
    version: Option<u64>,
    is_done: Cell<bool>,
}

impl Drop for ParamUse {
    fn drop(&mut self) {
        if !self.is_done.get() {
            self.param.unit().drop_use();
        }
    }
}

/// Who contributes a use's share of a parameter's gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    OfThisRank,
    OfAnotherRank,
    /// Nobody: the gradient of the parameter is not wanted.
    Unwanted,
}

/// Whether backward reads a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InBackward {
    Reads,
    Ignores,
}

impl ParamUse {
    /// Notes that `param` is read by an operation whose gradient contribution must be summed over `axes`.
    pub(crate) fn new(param: &ParamRef, axes: AxisSet, in_backward: InBackward) -> ParamUse {
        param.begin_use(axes, in_backward);
        let version = (in_backward == InBackward::Reads).then(|| param.unit().version());
        ParamUse { param: param.clone(), axes, version, is_done: Cell::new(false) }
    }

    /// The parameter.
    pub(crate) fn param(&self) -> &ParamRef {
        &self.param
    }

    /// Lets `write` put this use's share of the gradient in place (it is told whether to add to what is there), and
    /// counts the use as done.
    ///
    /// Where the gradient is summed over more axes than this use needs (another use needs them, or they are data axes,
    /// over which every gradient is summed), this use's share is the same on every rank of those axes, and only the
    /// first rank of them contributes it.
    pub(crate) fn finish(&self, gradients: &Gradients<'_>, write: impl FnOnce(ViewMut<'_>, bool)) {
        let share = self.begin_share(gradients);
        if share == Share::OfThisRank {
            self.param.with_gradient(write);
        }
        self.end_share(share);
    }

    /// [`finish`](Self::finish) for several parameters of one unit, whose shares one kernel computes: `write` is called
    /// whether or not any share is wanted, and told where each that is wanted goes.
    pub(crate) fn finish_together<const N: usize>(
        uses: [&ParamUse; N],
        gradients: &Gradients<'_>,
        write: impl FnOnce([Option<LeafGrad<'_>>; N]),
    ) {
        let shares = uses.map(|param_use| param_use.begin_share(gradients));
        let wanted = shares.map(|share| share == Share::OfThisRank);
        ParamRef::with_gradients(uses.map(ParamUse::param), wanted, write);
        for (param_use, share) in uses.into_iter().zip(shares) {
            param_use.end_share(share);
        }
    }

    fn begin_share(&self, gradients: &Gradients<'_>) -> Share {
        let (rank, unit) = (gradients.rank, self.param.unit());
        if let Some(version) = self.version {
            unit.check_version(version);
        }
        self.is_done.set(true);
        if rank.backward().is_none_or(|backward| !backward.reach(unit)) {
            return Share::Unwanted;
        }
        unit.contribute();
        let summed_over = self.param.widen_gradient_axes(rank);
        match rank.position(summed_over.minus(self.axes)) {
            0 => Share::OfThisRank,
            _ => Share::OfAnotherRank,
        }
    }

    fn end_share(&self, share: Share) {
        match share {
            Share::Unwanted => self.param.unit().drop_use(),
            Share::OfThisRank | Share::OfAnotherRank => self.param.unit().end_use(),
        }
    }

    /// Counts the use as done with `share`, in f32, as its part of the gradient.
    pub(crate) fn finish_with(&self, gradients: &Gradients<'_>, share: &Buffer) {
        self.finish(gradients, |view, accumulate| {
            let backend = gradients.rank.backend();
            if accumulate {
                backend.add_assign(view, share.view());
            } else {
                backend.cast(share.view(), view);
            }
        });
    }
}
