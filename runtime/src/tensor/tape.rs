//! The tape: what was done forward, undone in reverse.

use std::rc::Weak;
use std::sync::Arc;

use crate::backend::{Buffer, ViewMut};

use super::Rank;
use super::gathering::Phase;
use super::scope::{self, Start};
use super::value::unique;

/// Position of a recorded operation, and which recording it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId {
    index: usize,
    recording: u64,
}

/// Operations of one rank in the order they ran.
#[derive(Default)]
pub(crate) struct Tape {
    nodes: Vec<Node>,
    /// Counts the recordings: each backward ends one.
    recording: u64,
}

/// An operation: the forward function that it is part of, and what undoes it.
type Node = (&'static str, Backward);

/// Takes the gradient of an operation's result, and passes gradients on to what the operation read.
type Backward = Box<dyn FnOnce(&mut Gradients<'_>, Arc<Buffer>)>;

impl Tape {
    /// Records an operation by what undoes it.
    pub(crate) fn record(
        &mut self,
        backward: impl FnOnce(&mut Gradients<'_>, Arc<Buffer>) + 'static,
    ) -> NodeId {
        self.nodes.push((scope::current_or("operations"), Box::new(backward)));
        NodeId { index: self.nodes.len() - 1, recording: self.recording }
    }

    /// Ends the recording and gives what was recorded.
    pub(crate) fn take(&mut self) -> (u64, Vec<Node>) {
        self.recording += 1;
        (self.recording - 1, std::mem::take(&mut self.nodes))
    }
}

/// Gradients on their way back through the tape.
pub(crate) struct Gradients<'a> {
    pub(crate) rank: &'a Rank,
    recording: u64,
    slots: Vec<Option<Arc<Buffer>>>,
    /// The gradient that backward began with, if it is that of a loss: 1.
    seed: Option<Arc<Buffer>>,
}

impl Gradients<'_> {
    /// Adds a gradient of the result of `node`. A gradient may be shared by several nodes; it is copied only when
    /// another is added to it while somebody else still holds it.
    pub(crate) fn add(&mut self, node: NodeId, gradient: Arc<Buffer>) {
        let slot = self.slot(node);
        match self.slots[slot].take() {
            None => self.slots[slot] = Some(gradient),
            Some(sum) => {
                let mut sum = unique(self.rank, sum);
                self.rank.backend().add_assign(sum.view_mut(), gradient.view());
                self.slots[slot] = Some(Arc::new(sum));
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
        node: NodeId,
        len: usize,
        write: impl FnOnce(ViewMut<'_>, bool),
    ) {
        let slot = self.slot(node);
        let held = self.slots[slot].take();
        let accumulate = held.is_some();
        let mut sum = match held {
            Some(sum) => unique(self.rank, sum),
            None => self.rank.alloc(len),
        };
        write(sum.view_mut(), accumulate);
        self.slots[slot] = Some(Arc::new(sum));
    }

    /// The number in `gradient`, which is the gradient of a loss. That of the loss which backward began with is known
    /// without waiting for a device.
    pub(crate) fn number(&self, gradient: &Arc<Buffer>) -> f32 {
        match &self.seed {
            Some(seed) if Arc::ptr_eq(seed, gradient) => 1.0,
            _ => gradient.view().to_vec::<f32>()[0],
        }
    }

    fn slot(&self, node: NodeId) -> usize {
        assert_eq!(
            node.recording, self.recording,
            "a tensor computed before the last backward was used after it; what led to it is no longer recorded: \
             compute it anew, or add up the losses and run backward once"
        );
        node.index
    }
}

/// Runs the tape backwards from `root`, whose gradient is `seed`, clears it, and hands the gradient of every unit over
/// to be summed.
pub(crate) fn run_backward(rank: &Rank, root: Option<NodeId>, seed: Buffer) {
    let units = rank.units();
    units.iter().for_each(|unit| unit.begin_backward());
    rank.gathering().begin(Phase::Backward);
    let seed = Arc::new(seed);
    undo_from(rank, root.map(|root| (root, Arc::clone(&seed))), Some(seed));
    rank.gathering().begin(Phase::Forward);
    // What no gradient reached still takes part in the sums over ranks.
    units.iter().for_each(|unit| unit.start_reduction());
    rank.in_turn(&Weak::new());
}

/// Runs the tape backwards from `roots`, each with its gradient, and clears it. What an operation saved is freed as
/// soon as it has been undone.
pub(crate) fn undo(rank: &Rank, roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>) {
    undo_from(rank, roots, None);
}

fn undo_from(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
    seed: Option<Arc<Buffer>>,
) {
    let (recording, mut nodes) = rank.tape().take();
    let mut gradients = Gradients { rank, recording, slots: Vec::new(), seed };
    gradients.slots.resize_with(nodes.len(), || None);
    for (root, gradient) in roots {
        gradients.add(root, gradient);
    }
    // Operations of one forward function in a row are one span of a trace.
    let mut span: Option<(&str, Option<Start>)> = None;
    while let Some((name, backward)) = nodes.pop() {
        if let Some((open, start)) = span.take_if(|(open, _)| *open != name) {
            scope::record(("backward", open.trim_end_matches("::forward")), start);
        }
        span.get_or_insert_with(|| (name, scope::begin()));
        if let Some(gradient) = gradients.slots[nodes.len()].take() {
            backward(&mut gradients, gradient);
        }
    }
    if let Some((open, start)) = span {
        scope::record(("backward", open.trim_end_matches("::forward")), start);
    }
}
