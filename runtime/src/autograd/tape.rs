//! The tape: the operations of a forward pass, whose backward functions run in reverse order.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::backend::{Buffer, ViewMut};
use crate::context::Rank;
use crate::context::scope::{self, SpanStart};
use crate::fsdp::ForwardRecord;

/// Reference to a recorded operation. While a clone exists, the operation stays recorded until a backward has run it.
#[derive(Debug, Clone)]
pub(crate) struct NodeId {
    serial: u64,
    /// Counts the references to the operation: from values, and from later operations.
    _references: Rc<()>,
}

/// Operations of a forward pass in the order in which they ran, and its uses of units.
///
/// A rank can have several tapes, one for each forward pass whose backward has not run.
#[derive(Default)]
pub(super) struct Tape {
    nodes: Vec<TapeNode>,
    units: ForwardRecord,
}

/// The tape on which a rank records its operations at the moment.
#[derive(Default)]
pub(crate) struct CurrentTape {
    nodes: RefCell<Vec<TapeNode>>,
    /// Number of operations that the rank has recorded so far, on all tapes.
    recorded: Cell<u64>,
    /// True for the tape of a microbatch pass.
    is_of_pass: Cell<bool>,
}

/// A recorded operation, and the forward function that it is part of.
pub(super) struct TapeNode {
    serial: u64,
    scope: &'static str,
    backward: BackwardFn,
    references: Weak<()>,
}

/// Receives the gradient of an operation's result, and passes gradients on to the operands.
type BackwardFn = Box<dyn FnOnce(&mut TapeGradients<'_>, Arc<Buffer>)>;

impl CurrentTape {
    /// Records an operation by its backward function.
    pub(crate) fn record(
        &self,
        backward: impl FnOnce(&mut TapeGradients<'_>, Arc<Buffer>) + 'static,
    ) -> NodeId {
        let (serial, references) = (self.recorded.get(), Rc::new(()));
        self.recorded.set(serial + 1);
        self.nodes.borrow_mut().push(TapeNode {
            serial,
            scope: scope::current_or("operations"),
            backward: Box::new(backward),
            references: Rc::downgrade(&references),
        });
        NodeId { serial, _references: references }
    }

    /// Returns true for the tape of a microbatch pass.
    pub(super) fn is_of_pass(&self) -> bool {
        self.is_of_pass.get()
    }

    /// Puts operations back before those recorded since they were taken.
    fn put_back(&self, mut nodes: Vec<TapeNode>) {
        let mut later = self.nodes.borrow_mut();
        nodes.append(&mut later);
        *later = nodes;
    }
}

impl Rank {
    /// Returns the tape on which operations are recorded at the moment.
    pub(crate) fn tape(&self) -> &CurrentTape {
        self.session_state()
    }

    /// Runs `body` with `tape`, that of a micro-batch pass, as the current tape. Passes are not nested.
    pub(super) fn with_tape<T>(&self, tape: &mut Tape, body: impl FnOnce() -> T) -> T {
        self.swap_tape(tape);
        let _restore = RestoreTape { rank: self, tape };
        body()
    }

    fn swap_tape(&self, tape: &mut Tape) {
        let is_of_pass = &self.tape().is_of_pass;
        is_of_pass.set(!is_of_pass.get());
        std::mem::swap(&mut *self.tape().nodes.borrow_mut(), &mut tape.nodes);
        self.swap_forward_record(&mut tape.units);
    }
}

/// Makes the tape that was current before the current one again when it is dropped.
struct RestoreTape<'a> {
    rank: &'a Rank,
    tape: &'a mut Tape,
}

impl Drop for RestoreTape<'_> {
    fn drop(&mut self) {
        self.rank.swap_tape(self.tape);
    }
}

/// Gradients of the results of recorded operations, while backward runs.
pub(crate) struct TapeGradients<'a> {
    pub(crate) rank: &'a Rank,
    /// Operations by their serial numbers, in order, and the gradients of their results so far.
    slots: Vec<(u64, Option<Arc<Buffer>>)>,
    /// Initial gradient of a loss, which is 1; `None` if backward did not begin with losses.
    seed: Option<Arc<Buffer>>,
    /// Deferred weight gradients in order, or `None` if they are computed immediately.
    deferred: Option<Vec<WeightGradientJob>>,
}

/// Computation of the gradients of a weight, and of the bias added to its result.
pub(super) type WeightGradientJob = Box<dyn FnOnce(&TapeGradients<'_>)>;

impl TapeGradients<'_> {
    /// Computes the gradient of a weight by `job`: now, or if weight gradients are deferred, after backward.
    pub(crate) fn weight_gradient(&mut self, job: impl FnOnce(&TapeGradients<'_>) + 'static) {
        match &mut self.deferred {
            Some(jobs) => jobs.push(Box::new(job)),
            None => job(self),
        }
    }

    /// Returns true if weight gradients are computed after backward.
    pub(super) fn defers_weight_gradients(&self) -> bool {
        self.deferred.is_some()
    }

    /// Adds a gradient of the result of `node`. A gradient may be shared by several nodes; it is copied only when another
    /// one is added to it while it has other owners.
    pub(crate) fn add_gradient(&mut self, node: &NodeId, gradient: Arc<Buffer>) {
        let slot = self.gradient_slot(node);
        match self.slots[slot].1.take() {
            None => self.slots[slot].1 = Some(gradient),
            Some(sum) => {
                let mut sum = self.rank.unshare(sum);
                self.rank.backend().add_assign(sum.view_mut(), gradient.view());
                self.slots[slot].1 = Some(Arc::new(sum));
            }
        }
    }

    /// Returns a gradient as an unshared buffer, to be changed in place.
    pub(crate) fn unshared_gradient(&self, gradient: Arc<Buffer>) -> Buffer {
        self.rank.unshare(gradient)
    }

    /// Calls `write` with the gradient of the result of `node`, of `len` elements, and whether to accumulate into it.
    pub(crate) fn accumulate(
        &mut self,
        node: &NodeId,
        len: usize,
        write: impl FnOnce(ViewMut<'_>, bool),
    ) {
        let (mut sum, accumulate) = self.take_gradient(node, len);
        write(sum.view_mut(), accumulate);
        self.put_gradient(node, sum);
    }

    /// Removes the gradient of the result of `node` so far, to be added to and [put](Self::put_gradient) back, and returns
    /// whether there is any. If not, all of its `len` elements have to be written.
    pub(super) fn take_gradient(&mut self, node: &NodeId, len: usize) -> (Buffer, bool) {
        let slot = self.gradient_slot(node);
        match self.slots[slot].1.take() {
            Some(sum) => (self.rank.unshare(sum), true),
            None => (self.rank.alloc_activation(len), false),
        }
    }

    pub(super) fn put_gradient(&mut self, node: &NodeId, sum: Buffer) {
        let slot = self.gradient_slot(node);
        self.slots[slot].1 = Some(Arc::new(sum));
    }

    /// Returns the number in `gradient`, the gradient of a loss. The initial gradient of a loss is known without
    /// waiting for the device.
    pub(crate) fn scalar_gradient(&self, gradient: &Arc<Buffer>) -> f32 {
        match &self.seed {
            Some(seed) if Arc::ptr_eq(seed, gradient) => 1.0,
            _ => gradient.view().to_vec::<f32>()[0],
        }
    }

    fn gradient_slot(&self, node: &NodeId) -> usize {
        self.slots.binary_search_by_key(&node.serial, |(serial, _)| *serial).unwrap_or_else(|_| {
            panic!(
                "the backward{} reaches a tensor of which the operations are no longer recorded: another backward has \
                 passed through them, or the tensor has entered or left a recomputed segment or a `ForwardPass` otherwise \
                 than as its input or result; differentiate losses that share operations together, `a.and(b).backward()`, or compute \
                 the tensor again for each of them; pass tensors to a segment through its `forward`",
                self.rank.backward_line()
            )
        })
    }
}

/// Runs the tape backward from `roots`, `seed` being the gradient of each. The saved values of an operation are freed as soon
/// as its backward function has run; operations that lead to other losses stay recorded.
pub(super) fn backpropagate(rank: &Rank, roots: Vec<NodeId>, seed: Buffer) {
    let seed = Arc::new(seed);
    let roots: Vec<_> = roots.into_iter().map(|root| (root, Arc::clone(&seed))).collect();
    let (kept, _) =
        run_nodes(rank, roots, Some(seed), None, |node| node.references.strong_count() > 0);
    rank.tape().put_back(kept);
}

/// Runs the tape of a micro-batch pass backward from losses, whose gradient is `seed`, and from its outputs, each with its
/// gradient, and clears it. Weight gradients are appended to `deferred`, if given, instead of computed.
pub(super) fn backpropagate_pass(
    rank: &Rank,
    losses: Vec<NodeId>,
    outputs: Vec<(NodeId, Arc<Buffer>)>,
    seed: Buffer,
    deferred: Option<Vec<WeightGradientJob>>,
) -> Vec<WeightGradientJob> {
    let seed = Arc::new(seed);
    let losses = losses.into_iter().map(|root| (root, Arc::clone(&seed)));
    let roots: Vec<_> = losses.chain(outputs).collect();
    run_nodes(rank, roots, Some(seed), deferred, |_| false).1
}

/// Computes deferred weight gradients, in order.
pub(super) fn run_weight_gradient_jobs(rank: &Rank, jobs: Vec<WeightGradientJob>) {
    let start = scope::begin_span();
    let gradients = TapeGradients { rank, slots: Vec::new(), seed: None, deferred: None };
    jobs.into_iter().for_each(|job| job(&gradients));
    scope::end_span("weight gradients", start);
}

/// Runs the tape of a recomputed segment backward from `roots`, each with its gradient, and clears it.
pub(super) fn backpropagate_segment(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
) {
    run_nodes(rank, roots, None, None, |_| false);
}

/// Runs the tape backward. Returns the operations that no gradient has reached and that `keep` selects, and the deferred
/// weight gradients.
fn run_nodes(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
    seed: Option<Arc<Buffer>>,
    deferred: Option<Vec<WeightGradientJob>>,
    keep: impl Fn(&TapeNode) -> bool,
) -> (Vec<TapeNode>, Vec<WeightGradientJob>) {
    let mut nodes = rank.tape().nodes.take();
    let slots = nodes.iter().map(|node| (node.serial, None)).collect();
    let mut gradients = TapeGradients { rank, slots, seed, deferred };
    for (root, gradient) in roots {
        gradients.add_gradient(&root, gradient);
    }
    let mut kept = Vec::new();
    // Consecutive operations of one forward function are one span of the trace.
    let mut span: Option<(&str, Option<SpanStart>)> = None;
    while let Some(node) = nodes.pop() {
        let Some(gradient) = gradients.slots[nodes.len()].1.take() else {
            // Dropping an operation drops its references to earlier ones.
            if keep(&node) {
                kept.push(node);
            }
            continue;
        };
        if let Some((open, start)) = span.take_if(|(open, _)| *open != node.scope) {
            scope::end_span(("backward", open.trim_end_matches("::forward")), start);
        }
        span.get_or_insert_with(|| (node.scope, scope::begin_span()));
        (node.backward)(&mut gradients, gradient);
    }
    if let Some((open, start)) = span {
        scope::end_span(("backward", open.trim_end_matches("::forward")), start);
    }
    kept.reverse();
    (kept, gradients.deferred.unwrap_or_default())
}
