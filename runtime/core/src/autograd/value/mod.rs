//! Untyped tensors: local data, local extents, and the recorded operation that made them.

mod deferred;
mod dependent;

use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::context::Rank;
use crate::fsdp::PendingRead;
use crate::layout::AxisId;
use meshwright_backend::Buffer;
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

use super::activation_checkpointing::CheckpointedSegment;
use super::origin::Origin;
use super::saved::Saved;
use super::tape::NodeId;
use super::tensor_parallel::Regather;

use deferred::Deferred;
pub(super) use deferred::{DeferredIn, DeferredOp};

/// A tensor without its type. Elementwise operations on it are deferred as an expression until another operation needs
/// the numbers, so that a chain of them costs one pass over memory. That is not visible from outside: a deferred
/// operation is computed before a parameter that it reads [changes](PendingRead), and a look at its numbers does not
/// record it.
#[derive(Clone)]
pub struct Value(Rc<ValueInner>);

struct ValueInner {
    rank: Rank,
    extents: Vec<Extent>,
    state: RefCell<ValueState>,
    /// This value inside of the tensor-parallel regions that it has entered, by axis.
    entered: EnteredRegions,
    regather: Option<Rc<Regather>>,
    /// The checkpointed segment in whose forward, which is not recorded, the value was computed.
    unrecorded_in: Option<Rc<CheckpointedSegment>>,
    /// The origin of a value without a gradient that depends on values with one.
    origin: OnceCell<Rc<Origin>>,
}

type EnteredRegions = Rc<RefCell<Vec<(AxisId, Value)>>>;

enum ValueState {
    Computed(Computed),
    Deferred(Deferred),
}

/// Numbers, and the recorded operation that made them if a gradient is required.
#[derive(Clone)]
pub(crate) struct Computed {
    pub(crate) data: Arc<Buffer>,
    pub(crate) node: Option<NodeId>,
}

impl PendingRead for ValueInner {
    fn compute_numbers(self: Rc<Self>) {
        let value = Value(self);
        value.peek();
        if let ValueState::Deferred(deferred) = &mut *value.0.state.borrow_mut() {
            deferred.is_outdated = true;
        }
    }
}

impl Value {
    /// Creates a value that the operation `node` has computed, in the forward of `segment`, if one is given.
    pub(crate) fn ready(
        rank: &Rank,
        extents: Vec<Extent>,
        data: impl Into<Arc<Buffer>>,
        node: Option<NodeId>,
        segment: Option<Rc<CheckpointedSegment>>,
    ) -> Value {
        let data = data.into();
        debug_assert_eq!(data.len(), local_len(&extents));
        Self::new(rank, extents, ValueState::Computed(Computed { data, node }), None, segment)
    }

    /// Creates a value without a producing operation: no gradient flows through it.
    pub(crate) fn constant(
        rank: &Rank,
        extents: Vec<Extent>,
        data: impl Into<Arc<Buffer>>,
    ) -> Value {
        Self::ready(rank, extents, data, None, None)
    }

    /// Creates a value that shares the numbers of another operation's result.
    pub(crate) fn alias(
        rank: &Rank,
        extents: Vec<Extent>,
        data: Arc<Buffer>,
        node: Option<NodeId>,
    ) -> Value {
        Self::ready(rank, extents, data, node, rank.segments().in_forward())
    }

    /// Creates a gathered value: operations that save it for backward save only how to gather it again.
    pub(super) fn gathered(
        rank: &Rank,
        extents: Vec<Extent>,
        data: Buffer,
        node: Option<NodeId>,
        regather: Rc<Regather>,
        segment: Option<Rc<CheckpointedSegment>>,
    ) -> Value {
        let state = ValueState::Computed(Computed { data: Arc::new(data), node });
        Self::new(rank, extents, state, Some(regather), segment)
    }

    /// Creates a value whose numbers `op` computes when they are needed.
    pub(super) fn defer_op(
        rank: &Rank,
        extents: Vec<Extent>,
        op: impl DeferredOp,
        unrecorded_in: Option<Rc<CheckpointedSegment>>,
    ) -> Value {
        let (reads_params, requires_grad) = (op.reads_params(), op.requires_grad());
        let (op, created) = (Box::new(op), DeferredIn::here(rank));
        let state = ValueState::Deferred(Deferred {
            op,
            created,
            requires_grad,
            boundary: None,
            peeked: None,
            is_outdated: false,
        });
        let value = Self::new(rank, extents, state, None, unrecorded_in);
        if reads_params {
            let read: Weak<ValueInner> = Rc::downgrade(&value.0);
            rank.pending_reads().add(read);
        }
        value
    }

    fn new(
        rank: &Rank,
        extents: Vec<Extent>,
        state: ValueState,
        regather: Option<Rc<Regather>>,
        unrecorded_in: Option<Rc<CheckpointedSegment>>,
    ) -> Value {
        Value(Rc::new(ValueInner {
            rank: rank.clone(),
            extents,
            state: RefCell::new(state),
            entered: EnteredRegions::default(),
            regather,
            unrecorded_in,
            origin: OnceCell::new(),
        }))
    }

    /// Returns true if operations that read the value compute a gradient for it: now, or when the checkpointed segment
    /// in whose forward it was computed is recomputed.
    pub(crate) fn requires_grad(&self) -> bool {
        self.is_unrecorded() || self.is_recorded()
    }

    /// Returns true if the operation that made the value is recorded, or will be.
    pub(super) fn is_recorded(&self) -> bool {
        match &*self.0.state.borrow() {
            ValueState::Computed(computed) => computed.node.is_some(),
            ValueState::Deferred(deferred) => deferred.created.recorded && deferred.requires_grad,
        }
    }

    /// Returns the checkpointed segment in whose forward a result of this value is computed, unless nothing that the
    /// value depends on has a gradient.
    pub(crate) fn segment_of_result(&self) -> Option<Rc<CheckpointedSegment>> {
        self.rank().segments().in_forward().filter(|_| self.requires_grad())
    }

    /// Returns true if the value was computed in the forward of a checkpointed segment, which is not recorded.
    pub(super) fn is_unrecorded(&self) -> bool {
        self.0.unrecorded_in.is_some()
    }

    /// Checks that a recorded operation does not read a value that was computed without being recorded.
    ///
    /// # Panics
    /// If the value has left a checkpointed segment otherwise than as its result, or has no gradient and [another
    /// origin](Origin::check_read).
    #[track_caller]
    pub(super) fn check_recorded(&self) {
        if self.rank().records_operations() {
            self.check_left_no_segment();
        }
        if let Some(origin) = self.0.origin.get() {
            origin.check_read(self.rank());
        }
    }

    #[track_caller]
    fn check_left_no_segment(&self) {
        if let Some(segment) = &self.0.unrecorded_in {
            panic!(
                "a tensor computed inside of the recomputed `{}` is used outside of it, where it would have no \
                 gradient: return it from the segment's `forward`, in a tuple with its result, or read it inside of \
                 `rank.evaluate(..)` if no gradient is required",
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

    /// Returns the number of elements on this rank.
    pub(crate) fn len(&self) -> usize {
        local_len(&self.0.extents)
    }

    /// Returns true if both are references to one value.
    pub(super) fn is_same(&self, other: &Value) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Returns true if there are other references to the value.
    pub(super) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    /// Returns the recorded operation that has computed the value, from which backward can begin.
    ///
    /// # Panics
    /// If the value has left a checkpointed segment otherwise than as its result, or a pipeline stage otherwise than to
    /// the next one.
    #[track_caller]
    pub(crate) fn recorded_node(&self) -> Option<NodeId> {
        self.check_left_no_segment();
        let node = self.compute_with_node().node;
        if let Some(node) = &node {
            node.check_read();
        }
        node
    }

    /// Returns the numbers, computed now if they were deferred. While nothing is recorded they come without the
    /// operation that made them, so that no other is recorded after it.
    #[track_caller]
    pub(crate) fn compute(&self) -> Computed {
        self.check_recorded();
        if self.rank().records_operations() {
            return self.compute_with_node();
        }
        Computed { data: self.peek(), node: None }
    }

    /// Returns the numbers for an operation that is not recorded: a deferred operation that is recorded stays deferred,
    /// so that the order of recorded operations does not depend on it: ranks reduce gradients in that order.
    pub(crate) fn peek(&self) -> Arc<Buffer> {
        let is_kept = self.is_recorded() || self.is_looked_at();
        if is_kept { self.look() } else { self.compute_with_node().data }
    }

    /// Returns the numbers for a look at them. The value stays deferred, recorded or not: a computed one is rounded to
    /// the dtype of activations, and expressions that read it would have other numbers on the ranks that have looked.
    pub(crate) fn look(&self) -> Arc<Buffer> {
        match &mut *self.0.state.borrow_mut() {
            ValueState::Computed(computed) => Arc::clone(&computed.data),
            ValueState::Deferred(Deferred { op, peeked, .. }) => {
                let peek = || Arc::new(op.peek(&self.0.rank, self.len()));
                Arc::clone(peeked.get_or_insert_with(peek))
            }
        }
    }

    /// Returns the result of an operation that changes nothing: the value, but without the operation that made it while
    /// nothing is recorded.
    pub(crate) fn unchanged(&self) -> Value {
        let rank = self.rank();
        let is_detached = match rank.segments().in_forward() {
            Some(_) => !self.is_recorded(),
            None => !self.requires_grad(),
        };
        if rank.records_operations() || is_detached {
            return self.clone();
        }
        let (extents, segment) = (self.extents().to_vec(), self.segment_of_result());
        Self::ready(rank, extents, self.peek(), None, segment)
    }

    /// Returns the [unchanged](Self::unchanged) value, computed like the result of an operation that is not deferred:
    /// that of a collective over one rank, after which the same programs are valid as after one over several.
    #[track_caller]
    pub(crate) fn unchanged_computed(&self) -> Value {
        self.compute();
        self.unchanged()
    }

    /// Returns the same numbers, computed, with other extents.
    pub(crate) fn with_extents(&self, extents: Vec<Extent>) -> Value {
        debug_assert_eq!(local_len(&extents), self.len());
        let state = ValueState::Computed(self.compute());
        let (regather, segment) = (self.0.regather.clone(), self.segment_of_result());
        Self::new(self.rank(), extents, state, regather, segment).with_origin([self].into_iter())
    }

    /// Returns the numbers as an unshared buffer, copied only if they have other owners.
    pub(crate) fn into_unique(self) -> (Buffer, Option<NodeId>) {
        let rank = self.0.rank.clone();
        let Computed { data, node } = self.compute();
        drop(self);
        (rank.unshare(data), node)
    }

    /// Returns the form of this value that an operation saves for its backward.
    pub(crate) fn save(&self) -> Saved {
        match &self.0.regather {
            // The backward of a recomputed operation follows immediately, and needs no second all-gather.
            Some(regather) if !self.rank().segments().is_recomputing() => {
                regather.add_reader();
                Saved::Regather(Rc::clone(regather))
            }
            _ => Saved::Data(self.compute().data),
        }
    }

    /// Returns the same numbers as the result of the operation `node`, or of none.
    pub(crate) fn made_by(&self, node: Option<NodeId>) -> Value {
        Value::alias(self.rank(), self.extents().to_vec(), self.compute_with_node().data, node)
    }

    /// Returns the value, computed, as the result of an operation that changes nothing: `node`, or one in the forward
    /// of `segment`.
    pub(super) fn result_of(
        &self,
        node: Option<NodeId>,
        segment: Option<Rc<CheckpointedSegment>>,
    ) -> Value {
        let data = self.compute().data;
        let state = ValueState::Computed(Computed { data, node });
        Self::new(self.rank(), self.extents().to_vec(), state, self.0.regather.clone(), segment)
    }

    /// Returns the value, computed, as the result of an operation `node` that changes nothing. Both share the values
    /// inside of regions, so that there is one collective for the readers of both.
    pub(super) fn passed_by(&self, node: NodeId) -> Value {
        let data = self.compute_with_node().data;
        Value(Rc::new(ValueInner {
            rank: self.0.rank.clone(),
            extents: self.0.extents.clone(),
            state: RefCell::new(ValueState::Computed(Computed { data, node: Some(node) })),
            entered: Rc::clone(&self.0.entered),
            regather: self.0.regather.clone(),
            unrecorded_in: None,
            origin: OnceCell::new(),
        }))
    }

    /// Returns the value inside of a tensor-parallel region over `axis`, made by `enter` the first time.
    pub(super) fn entered(&self, axis: AxisId, enter: impl FnOnce() -> Value) -> Value {
        if let Some((_, value)) = self.0.entered.borrow().iter().find(|(known, _)| *known == axis) {
            return value.clone();
        }
        let value = enter();
        // A value that entered without being recorded would lose the gradients of later readers.
        if self.rank().records_operations() || !self.is_recorded() {
            self.0.entered.borrow_mut().push((axis, value.clone()));
        }
        value
    }
}
