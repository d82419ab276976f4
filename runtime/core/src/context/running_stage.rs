//! The pipeline stage that a thread computes, and the stages that may read what it has computed.
//!
//! Stages of a model may run on different ranks, between which only their results pass. A tensor that reaches another
//! stage through a cell or a thread-local would be missing there, so it is refused on one rank too.

use std::cell::Cell;
use std::fmt;

thread_local! {
    static RUNNING: Cell<Option<RunningStage>> = const { Cell::new(None) };
    /// Number of forward passes of models with stages, and of boundaries, so far.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The stage that this thread computes.
#[derive(Debug, Clone, Copy)]
pub struct RunningStage {
    element: StageElement,
    /// True for a stack, which can be cut between any two of its layers.
    has_layers: bool,
    forward: StagedForwardId,
}

/// Identity of one forward pass of a model with stages, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StagedForwardId(u64);

/// A boundary between two elements, at which the model may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundaryId {
    pub(crate) forward: StagedForwardId,
    /// Increases in the order of boundaries.
    pub(crate) number: u64,
}

/// Returns the field of the model that this thread computes, and the layer if it is a stack.
pub(super) fn running_layer() -> Option<(&'static str, Option<usize>)> {
    RUNNING.get().map(|RunningStage { element: StageElement { field, layer }, .. }| (field, layer))
}

impl StagedForwardId {
    /// Returns the identity of a forward pass that begins.
    pub(crate) fn begin() -> StagedForwardId {
        StagedForwardId(next_number())
    }
}

fn next_number() -> u64 {
    COUNT.replace(COUNT.get() + 1)
}

/// An element of a chain, before which a stage may begin: a field, or a layer of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StageElement {
    field: &'static str,
    /// `None` for a field without layers, and for what a stack computes between its layers.
    layer: Option<usize>,
}

/// Guard of a running stage, which ends when it is dropped.
#[must_use = "the stage ends when the guard is dropped"]
pub(crate) struct StageGuard(Option<RunningStage>);

impl Drop for StageGuard {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

impl RunningStage {
    /// Returns the running stage, which a recomputation [resumes](Self::resume).
    pub(crate) fn current() -> Option<RunningStage> {
        RUNNING.get()
    }

    /// Returns the forward pass of the running stage, if one is running.
    pub(crate) fn current_forward() -> Option<StagedForwardId> {
        RUNNING.get().map(|running| running.forward)
    }

    /// Returns the boundary that the running stage comes to, if one is running.
    pub(crate) fn boundary() -> Option<BoundaryId> {
        let RunningStage { forward, .. } = RUNNING.get()?;
        Some(BoundaryId { forward, number: next_number() })
    }

    /// Begins the stage in field `field`. A chain inside of a running stage is not cut.
    pub(crate) fn begin_field(
        forward: StagedForwardId,
        field: &'static str,
        has_layers: bool,
    ) -> StageGuard {
        let own =
            RunningStage { element: StageElement { field, layer: None }, has_layers, forward };
        RunningStage::resume(RUNNING.get().or(Some(own)))
    }

    /// Begins a layer, if the running stage is a stack.
    pub(crate) fn begin_layer(layer: usize) -> StageGuard {
        let running = RUNNING.get().map(|running| match running {
            RunningStage {
                element: StageElement { field, layer: None },
                has_layers: true,
                forward,
            } => {
                let element = StageElement { field, layer: Some(layer) };
                RunningStage { element, has_layers: true, forward }
            }
            other => other,
        });
        RunningStage::resume(running)
    }

    /// Runs this stage, or none.
    pub(crate) fn resume(running: Option<RunningStage>) -> StageGuard {
        StageGuard(RUNNING.replace(running))
    }
}

impl StageElement {
    /// Returns true if `reader` may read what this element has computed.
    fn is_read_by(self, reader: Option<StageElement>) -> bool {
        let is_within = |reader: StageElement| {
            self.field == reader.field
                && (self.layer == reader.layer || self.layer.is_none() || reader.layer.is_none())
        };
        reader.is_some_and(is_within)
    }
}

impl fmt::Display for StageElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "`{}.{layer}`", self.field),
            None => write!(f, "`{}`", self.field),
        }
    }
}

/// The stages that may read the result of a recorded operation.
#[derive(Debug, Default)]
pub(crate) struct StageReaders {
    /// The stage that has computed the result.
    computed_by: Option<StageElement>,
    /// The first reader of a result that passes from one stage to the next, which is then the only one.
    next: Option<Cell<Option<StageElement>>>,
}

impl StageReaders {
    /// All code.
    pub(crate) fn all() -> StageReaders {
        StageReaders::default()
    }

    /// Returns the readers of a result of the running stage: the stage itself, or all if none is running.
    pub(crate) fn of_running() -> StageReaders {
        let computed_by = RUNNING.get().map(|running| running.element);
        StageReaders { computed_by, next: None }
    }

    /// Returns the readers of a result that the running stage passes to the next one.
    pub(crate) fn of_next() -> StageReaders {
        let computed_by = RUNNING.get().map(|running| running.element);
        StageReaders { computed_by, next: computed_by.map(|_| Cell::new(None)) }
    }

    /// Checks that the code that is running may read the result, named so in the message.
    ///
    /// # Panics
    /// If the result is of another stage, which has not passed it on.
    #[track_caller]
    pub(crate) fn check_read(&self, result: &str) {
        let reader = RUNNING.get().map(|running| running.element);
        let Some(computed_by) = self.computed_by else { return };
        let is_read = match &self.next {
            None => computed_by.is_read_by(reader),
            Some(next) => match next.get() {
                Some(first) => first.is_read_by(reader),
                None => {
                    next.set(reader);
                    true
                }
            },
        };
        let reader = reader.map_or_else(|| "after the stages".to_owned(), |at| format!("in {at}"));
        assert!(
            is_read,
            "{result} that the pipeline stage {computed_by} has computed is used {reader}, which it has not reached as \
             the output of the stage before: stages may run on different ranks, which share no cell or thread-local; \
             return it from the stage, in a tuple with its output, and pass it on in each stage in between"
        );
    }
}
