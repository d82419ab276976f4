//! The tape: the operations of a forward pass, whose backward functions run in reverse order.

mod gradients;
mod reached;
mod run;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::context::Rank;
use crate::context::scope::{self, Location};
use crate::context::{BoundaryId, StageReaders};
use crate::fsdp::{CountedUse, ForwardRecord, UnitUse};
use meshwright_backend::Buffer;

use reached::ReachableNodes;

pub use gradients::LossFactor;
pub(crate) use gradients::TapeGradients;
pub(super) use gradients::{LossSeed, WeightGradientJob};
pub(super) use run::{
    backpropagate, backpropagate_pass, backpropagate_segment, run_weight_gradient_jobs,
};

/// Reference to a recorded operation. While a clone exists, the operation stays recorded until a backward has run it.
#[derive(Debug, Clone)]
pub struct NodeId {
    serial: u64,
    /// Counts the references to the operation: from values, and from later operations.
    readers: Rc<StageReaders>,
}

/// Operations of a forward pass in execution order, and its uses of units.
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
    /// Number of auxiliary losses that the rank has attached so far, recorded or not.
    auxiliary_losses: Cell<u64>,
    /// True for the tape of a microbatch pass.
    is_of_pass: Cell<bool>,
    /// Number of operations at which those without references are removed.
    limit: Cell<usize>,
}

/// A recorded operation, and the forward function that it is part of.
struct TapeNode {
    serial: u64,
    scope: &'static str,
    location: Location,
    dependencies: Dependencies,
    backward: BackwardFn,
    references: Weak<StageReaders>,
    /// True for an auxiliary loss, and for a segment with one.
    has_auxiliary_loss: bool,
    /// Boundary and number of elements of the result of a pipeline stage, or of what may be one.
    boundary: Option<(BoundaryId, usize)>,
}

/// Dependencies of a recorded operation: the operations that have computed its operands, by serial number, and its uses
/// of units.
#[derive(Default)]
pub(crate) struct Dependencies {
    sources: Vec<u64>,
    uses: Vec<Rc<CountedUse>>,
}

/// Receives the gradient of an operation's result, and passes gradients on to the operands.
type BackwardFn = Box<dyn FnOnce(&mut TapeGradients<'_>, Arc<Buffer>)>;

impl Dependencies {
    /// Returns the edges of an operation that reads the results of `sources` and no parameters.
    ///
    /// # Panics
    /// If another pipeline stage has computed one of them, and has not passed it on.
    #[track_caller]
    pub(crate) fn on<'a>(sources: impl IntoIterator<Item = &'a NodeId>) -> Dependencies {
        let mut serials = Vec::new();
        // A loop, because a closure loses the caller's location.
        for source in sources {
            source.check_read();
            serials.push(source.serial);
        }
        Dependencies { sources: serials, uses: Vec::new() }
    }

    /// Adds uses of units.
    pub(crate) fn with_uses<'a>(
        mut self,
        uses: impl IntoIterator<Item = &'a UnitUse>,
    ) -> Dependencies {
        self.uses.extend(uses.into_iter().map(UnitUse::counted));
        self
    }

    /// Suspends the uses for the running backward, which does not reach the operation.
    fn suspend_uses(&self) {
        self.uses.iter().for_each(|unit_use| unit_use.suspend());
    }

    /// Resumes the uses for a later backward.
    fn resume_uses(&self) {
        self.uses.iter().for_each(|unit_use| unit_use.resume());
    }
}

impl NodeId {
    /// Checks that the code that is running may read the result of the operation.
    ///
    /// # Panics
    /// If another pipeline stage has computed it, and has not passed it on.
    #[track_caller]
    pub(crate) fn check_read(&self) {
        self.readers.check_read("a tensor");
    }
}

impl CurrentTape {
    /// Records an operation by its dependencies and its backward function.
    pub(crate) fn record(
        &self,
        dependencies: Dependencies,
        backward: impl FnOnce(&mut TapeGradients<'_>, Arc<Buffer>) + 'static,
    ) -> NodeId {
        self.record_for(StageReaders::of_running(), dependencies, backward)
    }

    /// Records an operation whose result `readers` may read.
    pub(crate) fn record_for(
        &self,
        readers: StageReaders,
        dependencies: Dependencies,
        backward: impl FnOnce(&mut TapeGradients<'_>, Arc<Buffer>) + 'static,
    ) -> NodeId {
        self.limit_unreferenced();
        let (serial, readers) = (self.recorded.get(), Rc::new(readers));
        self.recorded.set(serial + 1);
        self.nodes.borrow_mut().push(TapeNode {
            serial,
            scope: scope::current_or("operations"),
            location: scope::current_location(),
            dependencies,
            backward: Box::new(backward),
            references: Rc::downgrade(&readers),
            has_auxiliary_loss: false,
            boundary: None,
        });
        NodeId { serial, readers }
    }

    /// Records an operation that passes its gradient on to `source`, as part of the forward function of the operation
    /// before, at a boundary: its result, of `len` elements, is that of the running pipeline stage for the next one,
    /// if the model may be cut at the boundary `stage`.
    pub(crate) fn record_identity(
        &self,
        source: NodeId,
        stage: Option<BoundaryId>,
        len: usize,
    ) -> NodeId {
        let scope = self.nodes.borrow().last().map(|node| node.scope);
        let dependencies = Dependencies::on([&source]);
        let pass_on = move |gradients: &mut TapeGradients<'_>, gradient| {
            gradients.add_gradient(&source, gradient)
        };
        let node = self.record_for(StageReaders::of_next(), dependencies, pass_on);
        if let Some(own) = self.nodes.borrow_mut().last_mut() {
            own.scope = scope.unwrap_or(own.scope);
            own.boundary = stage.map(|stage| (stage, len));
        }
        node
    }

    /// Counts an auxiliary loss, recorded or not.
    pub(super) fn count_auxiliary_loss(&self) {
        self.auxiliary_losses.set(self.auxiliary_losses.get() + 1);
    }

    /// Returns the number of auxiliary losses that were attached so far.
    pub(super) fn auxiliary_losses(&self) -> u64 {
        self.auxiliary_losses.get()
    }

    /// Marks the last operation as one with an auxiliary loss.
    pub(super) fn mark_auxiliary_loss(&self) {
        if let Some(own) = self.nodes.borrow_mut().last_mut() {
            own.has_auxiliary_loss = true;
        }
    }

    /// Removes operations without references, which no backward can reach, when the tape has grown to twice its length
    /// after the last removal: forward passes that are never differentiated take no more memory than one of them.
    fn limit_unreferenced(&self) {
        const LEAST: usize = 64;
        let mut nodes = self.nodes.borrow_mut();
        if nodes.len() < self.limit.get().max(LEAST) {
            return;
        }
        // From the last one, because dropping an operation drops its references to earlier ones.
        let (mut kept, mut reachable) = (Vec::new(), self.reachable_nodes());
        while let Some(node) = nodes.pop() {
            kept.extend(Some(node).filter(|node| reachable.contains(node)));
        }
        kept.reverse();
        self.limit.set(2 * kept.len());
        *nodes = kept;
    }

    /// Returns the operations that a later backward can reach, to be asked for in reverse order.
    fn reachable_nodes(&self) -> ReachableNodes {
        ReachableNodes::new(self.auxiliary_losses() > 0)
    }

    /// Returns true for the tape of a microbatch pass.
    pub(super) fn is_of_pass(&self) -> bool {
        self.is_of_pass.get()
    }

    /// Removes all operations.
    fn take_all(&self) -> Vec<TapeNode> {
        self.limit.set(0);
        self.nodes.take()
    }

    /// Puts operations back before those recorded since they were taken.
    fn put_back(&self, mut nodes: Vec<TapeNode>) {
        let mut later = self.nodes.borrow_mut();
        nodes.append(&mut later);
        *later = nodes;
    }
}

impl TapeNode {
    /// Returns true if a value or a later operation refers to the operation.
    fn is_referenced(&self) -> bool {
        self.references.strong_count() > 0
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
