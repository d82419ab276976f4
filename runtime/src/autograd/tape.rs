//! The tape: what was done forward, undone in reverse.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::backend::{Buffer, LeafGrad, ViewMut};

use crate::context::Rank;
use crate::context::scope::{self, Start};
use crate::fsdp::Phase;

use super::value::{ParamUse, unique};

/// A recorded operation. While a clone exists, the operation stays recorded until a backward pass has run it.
#[derive(Debug, Clone)]
pub(crate) struct NodeId {
    serial: u64,
    /// Counts who refers to the operation: values, and later operations.
    _wanted: Rc<()>,
}

/// Operations of one rank in the order they ran.
#[derive(Default)]
pub(crate) struct Tape {
    nodes: Vec<Node>,
    /// Operations recorded so far.
    recorded: u64,
}

/// A recorded operation, and the forward function that it is part of.
struct Node {
    serial: u64,
    scope: &'static str,
    backward: Backward,
    wanted: Weak<()>,
}

/// Takes the gradient of an operation's result, and passes gradients on to what the operation read.
type Backward = Box<dyn FnOnce(&mut Gradients<'_>, Arc<Buffer>)>;

impl Tape {
    /// Records an operation by its backward function.
    pub(crate) fn record(
        &mut self,
        backward: impl FnOnce(&mut Gradients<'_>, Arc<Buffer>) + 'static,
    ) -> NodeId {
        let (serial, wanted) = (self.recorded, Rc::new(()));
        self.recorded += 1;
        self.nodes.push(Node {
            serial,
            scope: scope::current_or("operations"),
            backward: Box::new(backward),
            wanted: Rc::downgrade(&wanted),
        });
        NodeId { serial, _wanted: wanted }
    }

    fn take(&mut self) -> Vec<Node> {
        std::mem::take(&mut self.nodes)
    }

    /// Puts operations back that were taken, before those recorded since.
    fn put_back(&mut self, mut nodes: Vec<Node>) {
        nodes.append(&mut self.nodes);
        self.nodes = nodes;
    }
}

/// Gradients on their way back through the tape.
pub(crate) struct Gradients<'a> {
    pub(crate) rank: &'a Rank,
    /// The operations by their serial numbers, in order, and the gradients of their results so far.
    slots: Vec<(u64, Option<Arc<Buffer>>)>,
    /// The gradient that backward began with, if it is that of a loss: 1.
    seed: Option<Arc<Buffer>>,
}

impl Gradients<'_> {
    /// Adds a gradient of the result of `node`. A gradient may be shared by several nodes; it is copied only when
    /// another is added to it while somebody else still holds it.
    pub(crate) fn add(&mut self, node: &NodeId, gradient: Arc<Buffer>) {
        let slot = self.slot(node);
        match self.slots[slot].1.take() {
            None => self.slots[slot].1 = Some(gradient),
            Some(sum) => {
                let mut sum = unique(self.rank, sum);
                self.rank.backend().add_assign(sum.view_mut(), gradient.view());
                self.slots[slot].1 = Some(Arc::new(sum));
            }
        }
    }

    /// A gradient as a buffer of its own, to be changed in place.
    pub(crate) fn unique(&self, gradient: Arc<Buffer>) -> Buffer {
        unique(self.rank, gradient)
    }

    /// Lets `write` put `len` elements of gradient of the result of `node` where they belong: it is told whether to
    /// add to what is there.
    pub(crate) fn accumulate(
        &mut self,
        node: &NodeId,
        len: usize,
        write: impl FnOnce(ViewMut<'_>, bool),
    ) {
        let (mut sum, accumulate) = self.take(node, len);
        write(sum.view_mut(), accumulate);
        self.put(node, sum);
    }

    /// Lets `kernel` put `len` elements of gradient of the result of `node` and the shares of the parameters that were used
    /// with it where they belong, and counts these uses as done. It is told of each whether to add to what is there.
    ///
    /// The result may have a gradient from another reader, as the stream of a residual network has from the sum behind a
    /// block when it comes to the norm before it. A kernel that adds to it saves a pass over both.
    pub(crate) fn accumulate_with<const N: usize>(
        &mut self,
        node: Option<NodeId>,
        len: usize,
        uses: [&ParamUse; N],
        kernel: impl FnOnce(LeafGrad<'_>, [Option<LeafGrad<'_>>; N]),
    ) {
        let (mut sum, accumulate) = match &node {
            Some(node) => self.take(node, len),
            None => (self.rank.alloc(len), false),
        };
        ParamUse::finish_together(uses, self, |shares| {
            kernel(LeafGrad { view: sum.view_mut(), accumulate }, shares);
        });
        if let Some(node) = node {
            self.put(&node, sum);
        }
    }

    /// Takes the gradient of the result of `node` so far, to be added to and [put](Self::put) back, and tells whether there
    /// is any. If not, all of its `len` elements are to be written.
    fn take(&mut self, node: &NodeId, len: usize) -> (Buffer, bool) {
        let slot = self.slot(node);
        match self.slots[slot].1.take() {
            Some(sum) => (unique(self.rank, sum), true),
            None => (self.rank.alloc(len), false),
        }
    }

    fn put(&mut self, node: &NodeId, sum: Buffer) {
        let slot = self.slot(node);
        self.slots[slot].1 = Some(Arc::new(sum));
    }

    /// The number in `gradient`, which is the gradient of a loss. That of the loss which backward began with is known
    /// without waiting for a device.
    pub(crate) fn number(&self, gradient: &Arc<Buffer>) -> f32 {
        match &self.seed {
            Some(seed) if Arc::ptr_eq(seed, gradient) => 1.0,
            _ => gradient.view().to_vec::<f32>()[0],
        }
    }

    fn slot(&self, node: &NodeId) -> usize {
        self.slots.binary_search_by_key(&node.serial, |(serial, _)| *serial).unwrap_or_else(|_| {
            let line = self.rank.backward().map_or_else(String::new, |by| format!(" at {}", by.line()));
            panic!(
                "the backward{line} reaches a tensor of which the operations are no longer recorded: another backward has \
                 passed through them, or the tensor has entered or left a recomputed segment otherwise than as its input \
                 or result; differentiate losses that share operations together, `a.and(b).backward()`, or compute \
                 the tensor again for each of them; hand tensors to a segment through its `forward`"
            )
        })
    }
}

/// Runs the tape backwards from `roots`, of each of which `seed` is the gradient. What an operation saved is freed as soon
/// as its backward function has run; operations that lead to other losses stay recorded.
pub(crate) fn run_backward(rank: &Rank, roots: Vec<NodeId>, seed: Buffer) {
    let before = rank.gathering().begin(Phase::Backward);
    let seed = Arc::new(seed);
    let roots: Vec<_> = roots.into_iter().map(|root| (root, Arc::clone(&seed))).collect();
    let kept = run(rank, roots, Some(seed), |node| node.wanted.strong_count() > 0);
    rank.tape().put_back(kept);
    rank.gathering().begin(Phase::Forward);
    if before == Phase::Evaluate {
        rank.gathering().begin(before);
    }
}

/// Runs the tape of a recomputed segment backwards from `roots`, each with its gradient, and clears it.
pub(crate) fn run_backward_of_segment(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
) {
    run(rank, roots, None, |_| false);
}

/// Runs the tape backwards, and returns the operations that no gradient has reached and that `keep` wants.
fn run(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
    seed: Option<Arc<Buffer>>,
    keep: impl Fn(&Node) -> bool,
) -> Vec<Node> {
    let mut nodes = rank.tape().take();
    let slots = nodes.iter().map(|node| (node.serial, None)).collect();
    let mut gradients = Gradients { rank, slots, seed };
    for (root, gradient) in roots {
        gradients.add(&root, gradient);
    }
    let mut kept = Vec::new();
    // Operations of one forward function in a row are one span of a trace.
    let mut span: Option<(&str, Option<Start>)> = None;
    while let Some(node) = nodes.pop() {
        let Some(gradient) = gradients.slots[nodes.len()].1.take() else {
            // Dropping an operation lets go of those before it.
            if keep(&node) {
                kept.push(node);
            }
            continue;
        };
        if let Some((open, start)) = span.take_if(|(open, _)| *open != node.scope) {
            scope::record(("backward", open.trim_end_matches("::forward")), start);
        }
        span.get_or_insert_with(|| (node.scope, scope::begin()));
        (node.backward)(&mut gradients, gradient);
    }
    if let Some((open, start)) = span {
        scope::record(("backward", open.trim_end_matches("::forward")), start);
    }
    kept.reverse();
    kept
}
