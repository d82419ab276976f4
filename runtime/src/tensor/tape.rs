//! The tape: what was done forward, undone in reverse.

use std::sync::Arc;

use crate::backend::{Buffer, ViewMut};

use super::Rank;
use super::value::unique;

/// Position of a recorded operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(usize);

/// Operations of one rank in the order they ran.
#[derive(Default)]
pub(crate) struct Tape {
    nodes: Vec<Backward>,
}

/// Takes the gradient of an operation's result, and passes gradients on to what the operation read.
type Backward = Box<dyn FnOnce(&mut Gradients<'_>, Arc<Buffer>)>;

impl Tape {
    /// Records an operation by what undoes it.
    pub(crate) fn record(
        &mut self,
        backward: impl FnOnce(&mut Gradients<'_>, Arc<Buffer>) + 'static,
    ) -> NodeId {
        self.nodes.push(Box::new(backward));
        NodeId(self.nodes.len() - 1)
    }

    /// Forgets what was recorded.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
    }
}

/// Gradients on their way back through the tape.
pub(crate) struct Gradients<'a> {
    pub(crate) rank: &'a Rank,
    slots: Vec<Option<Arc<Buffer>>>,
}

impl Gradients<'_> {
    /// Adds a gradient of the result of `node`. A gradient may be shared by several nodes; it is copied only when
    /// another is added to it while somebody else still holds it.
    pub(crate) fn add(&mut self, node: NodeId, gradient: Arc<Buffer>) {
        match self.slots[node.0].take() {
            None => self.slots[node.0] = Some(gradient),
            Some(sum) => {
                let mut sum = unique(self.rank, sum);
                self.rank.backend().add_assign(sum.view_mut(), gradient.view());
                self.slots[node.0] = Some(Arc::new(sum));
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
        let held = self.slots[node.0].take();
        let accumulate = held.is_some();
        let mut sum = match held {
            Some(sum) => unique(self.rank, sum),
            None => self.rank.alloc(len),
        };
        write(sum.view_mut(), accumulate);
        self.slots[node.0] = Some(Arc::new(sum));
    }
}

/// Runs the tape backwards from `root`, whose gradient is `seed`, and clears it. What an operation saved is freed as
/// soon as it has been undone.
pub(crate) fn run_backward(rank: &Rank, root: NodeId, seed: Buffer) {
    let mut nodes = std::mem::take(&mut rank.tape().nodes);
    nodes.truncate(root.0 + 1);
    let mut gradients = Gradients { rank, slots: Vec::new() };
    gradients.slots.resize_with(nodes.len(), || None);
    gradients.slots[root.0] = Some(Arc::new(seed));
    while let Some(backward) = nodes.pop() {
        if let Some(gradient) = gradients.slots[nodes.len()].take() {
            backward(&mut gradients, gradient);
        } else {
            drop(backward);
        }
    }
    // What no gradient reached still takes part in the sums over ranks.
    for unit in rank.units().iter() {
        unit.start_reduction(rank);
    }
}
