//! The context of a rank, and the handle through which the rank's thread uses it.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::layout::{AxisId, AxisSet, DimInfo};
use meshwright_backend::{Backend, CachingAllocator, DType, StreamKind};
use meshwright_comm::__internal::DeviceSpan;
use meshwright_comm::{RankComms, Timeline};
use meshwright_mesh::__internal::shape_name;

use super::document_ids::DocumentIds;
use super::grad_mode::GradMode;
use super::micro_batch::MicroBatch;
use super::routed_rows::RoutedRows;
use super::row_documents::RowDocuments;
use super::scope;
use super::session::Session;
use super::settings::{Checks, Settings};
use super::step_counter::StepCounter;
use super::zero_stage::ZeroStage;

/// Handle of the context of one rank: cheap to clone, never leaves the thread of the rank.
///
/// The rank of a tensor ([`Tensor::rank`](crate::tensor::Tensor::rank)) also refers to the micro-batch that the tensor
/// is computed from: new tensors made on it have the same rows, and the same documents in them; and to the rows of a
/// routing that the tensor has.
#[derive(Clone)]
pub struct Rank {
    context: Rc<Context>,
    micro_batch: Option<Rc<MicroBatch>>,
    routed_rows: Option<Rc<RoutedRows>>,
    documents: RowDocuments,
}

/// State of one rank.
struct Context {
    comms: RankComms,
    backend: Box<dyn Backend>,
    allocator: Arc<CachingAllocator>,
    settings: Settings,
    step: StepCounter,
    grad_mode: GradMode,
    /// State of the modules above: the tape, FSDP units and others.
    session: Session,
    /// Lanes of the device in the trace.
    timeline: Option<Arc<Timeline>>,
    used_axes: Cell<AxisSet>,
    is_in_stage: Cell<bool>,
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(timeline) = &self.timeline {
            timeline.close();
        }
    }
}

impl Rank {
    /// Creates a rank that communicates through `comms`, computes on `backend` and seeds its randomness with `seed`.
    pub fn new(comms: RankComms, backend: Box<dyn Backend>, seed: u64) -> Rank {
        Rank::with_settings(comms, backend, Settings::new(seed))
    }

    /// Creates a rank with `settings` that communicates through `comms` and computes on `backend`.
    pub fn with_settings(comms: RankComms, backend: Box<dyn Backend>, settings: Settings) -> Rank {
        let timeline = backend.device().and_then(|device| comms.trace_device(device));
        scope::trace_on(comms.lane(), timeline.clone());
        let limit = settings.memory_limit.unwrap_or(usize::MAX);
        let allocator = if backend.is_dry_run() {
            CachingAllocator::for_dry_run(backend.device())
        } else {
            CachingAllocator::on(backend.device(), limit)
        };
        if let Some(device) = allocator.device() {
            let cache: Weak<CachingAllocator> = Arc::downgrade(&allocator);
            device.set_memory_cache(cache);
        }
        comms.use_allocator(&allocator);
        let context = Rc::new(Context {
            comms,
            backend,
            allocator,
            settings,
            step: StepCounter::default(),
            grad_mode: GradMode::default(),
            session: Session::default(),
            timeline,
            used_axes: Cell::default(),
            is_in_stage: Cell::default(),
        });
        Rank { context, micro_batch: None, routed_rows: None, documents: RowDocuments::default() }
    }

    /// Returns the rank on which tensors are computed from `micro_batch`.
    pub(crate) fn with_micro_batch(&self, micro_batch: Rc<MicroBatch>) -> Rank {
        Rank { micro_batch: Some(micro_batch), ..self.clone() }
    }

    /// Returns the rank on which tensors are computed from whole batches.
    pub(crate) fn with_whole_batch(&self) -> Rank {
        let documents = RowDocuments::default();
        Rank { micro_batch: None, routed_rows: None, documents, ..self.clone() }
    }

    /// Returns the rank on which tensors have the rows of a routing.
    pub(crate) fn with_routed_rows(&self, rows: Rc<RoutedRows>) -> Rank {
        Rank { routed_rows: Some(rows), ..self.clone() }
    }

    /// Returns the rank on which tokens have `documents` in their rows.
    pub(crate) fn with_documents(&self, documents: DocumentIds) -> Rank {
        Rank { documents: self.documents.replaced_by(documents), ..self.clone() }
    }

    /// Returns the rank of a result: the first rank of operands on which tensors are computed from a micro-batch, or
    /// else the first one, with the documents of all. So a result has the rows of the micro-batch and their documents,
    /// in whatever order the operands come.
    #[doc(hidden)]
    pub fn of_operands<'a>(
        ranks: impl IntoIterator<Item = &'a Rank, IntoIter: Clone>,
    ) -> Option<Rank> {
        let ranks = ranks.into_iter();
        let first = ranks.clone().find(|rank| rank.micro_batch.is_some());
        let first = first.or_else(|| ranks.clone().next())?;
        let documents = ranks.fold(first.documents.clone(), |all, rank| all.union(&rank.documents));
        Some(Rank { documents, ..first.clone() })
    }

    /// Returns true if tokens that tensors on this rank are computed from have several documents in their rows.
    pub(crate) fn has_documents(&self) -> bool {
        self.documents.any()
    }

    /// Returns the documents in rows with these dims, of the tokens that tensors on this rank are computed from; `None`
    /// if each row is one document.
    ///
    /// # Panics
    /// If they are computed from tokens with different documents in these rows.
    #[track_caller]
    pub(crate) fn documents_of<'a>(&'a self, dims: &[DimInfo]) -> Option<&'a Rc<DocumentIds>> {
        let mut documents = self.documents.of_rows(dims);
        let first = documents.next();
        assert!(
            documents.next().is_none(),
            "rows of {} have different documents in one computation: those of two micro-batches, or of two inputs; \
             declare other dims for the second input, or pass the documents that count as an operand of attention",
            shape_name(dims)
        );
        first
    }

    /// Returns true if tensors with `dims` have the same documents in their rows on both ranks.
    #[doc(hidden)]
    pub fn agrees_on_documents(&self, other: &Rank, dims: &[DimInfo]) -> bool {
        self.documents.agree_on(&other.documents, dims)
    }

    /// Returns the micro-batch that tensors on this rank are computed from, or `None` for whole batches.
    pub(super) fn micro_batch(&self) -> Option<&MicroBatch> {
        self.micro_batch.as_deref()
    }

    /// Returns the rows that tensors on this rank have, if they were routed to experts.
    pub(crate) fn routed_rows(&self) -> Option<&Rc<RoutedRows>> {
        self.routed_rows.as_ref()
    }

    /// Returns the state of type `T` that a module above keeps per rank.
    pub(crate) fn session_state<T: Any + Default>(&self) -> &T {
        self.context.session.state()
    }

    /// Checks that two operands of one operation belong to one rank.
    ///
    /// # Panics
    /// If they were made on different meshes, or on different ranks.
    #[track_caller]
    pub(crate) fn check_same(&self, other: &Rank) {
        assert!(
            Rc::ptr_eq(&self.context, &other.context),
            "two operands of one operation belong to different meshes: {self:?} and {other:?}; a tensor, parameter or \
             model can be used only with tensors, parameters and models of the same `Rank`"
        );
    }

    /// Checks that two operands of one operation are not computed from different micro-batches.
    ///
    /// # Panics
    /// If they are.
    #[track_caller]
    pub(crate) fn check_same_micro_batch(&self, other: &Rank) {
        let (Some(own), Some(other)) = (&self.micro_batch, &other.micro_batch) else { return };
        own.check_same(other);
    }

    /// Returns the world rank.
    pub fn index(&self) -> usize {
        self.context.comms.rank()
    }

    /// Returns the communicators of this rank.
    pub fn comms(&self) -> &RankComms {
        &self.context.comms
    }

    /// Returns the compute backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.context.backend
    }

    /// Returns the caching allocator and memory accounting of this rank.
    pub fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.context.allocator
    }

    /// Returns the seed of the run, the same on every rank.
    pub fn seed(&self) -> u64 {
        self.context.settings.seed
    }

    /// Returns the dtype of activations and of the values that layers read.
    pub fn compute_dtype(&self) -> DType {
        self.context.settings.compute
    }

    /// Returns the dtype of gradient reductions over the data axes.
    pub fn reduce_dtype(&self) -> DType {
        self.context.settings.reduce
    }

    /// Returns true if cross-entropies keep the losses of rows.
    pub(crate) fn keeps_row_losses(&self) -> bool {
        self.context.settings.row_losses
    }

    /// Returns the axes along which replicas train apart from each other: `dp`, or none.
    pub(crate) fn local_axes(&self) -> AxisSet {
        if self.context.settings.local_replicas { AxisSet::of(AxisId::Dp) } else { AxisSet::NONE }
    }

    /// Returns true if the squares of the gradient of the first micro-batch are summed.
    #[doc(hidden)]
    pub fn sums_first_squares(&self) -> bool {
        self.context.settings.first_squares
    }

    /// Returns the limit of logits that a fused head holds at the same time on a device.
    pub(crate) fn logits_limit(&self) -> Option<usize> {
        self.context.settings.logits_limit
    }

    /// Returns true if the units that backward reads first stay unsharded from the forward pass on.
    pub(crate) fn keeps_last_units(&self) -> bool {
        self.context.settings.keeps_last_units
    }

    /// Returns the ZeRO stage of units whose state is sharded over more than one rank: 0 if the axes
    /// [`ZERO`](AxisSet::ZERO) have one rank together.
    pub fn zero_stage(&self) -> ZeroStage {
        self.zero_stage_over(AxisSet::ZERO)
    }

    /// Returns the ZeRO stage of a unit whose state can be sharded over `axes`: 0 if they have one rank.
    pub(crate) fn zero_stage_over(&self, axes: AxisSet) -> ZeroStage {
        if self.degree_of(axes) == 1 { ZeroStage::Replicated } else { self.context.settings.zero }
    }

    /// Returns the current training step, which keys dropout.
    pub fn step(&self) -> u64 {
        self.context.step.read()
    }

    /// Sets the current training step.
    pub fn set_step(&self, step: u64) {
        self.context.step.replace_step(step);
        self.comms().begin_step(step + 1);
        if let Some(timeline) = &self.context.timeline {
            timeline.begin_step();
        }
    }

    /// Notes that token ids on the host are made into others, as a captured graph could not do: like a read of the
    /// step, it keeps steps from being captured.
    pub(crate) fn note_host_input(&self) {
        self.context.step.read();
    }

    /// Returns the training step without counting a read.
    pub(crate) fn peek_step(&self) -> u64 {
        self.context.step.peek_step()
    }

    /// Runs `body` as part of training step `step`.
    pub(crate) fn in_step<T>(&self, step: u64, body: impl FnOnce() -> T) -> T {
        let current = self.context.step.replace_step(step);
        let result = body();
        self.context.step.replace_step(current);
        result
    }

    /// Returns how often the training step was read.
    pub(crate) fn step_reads(&self) -> u64 {
        self.context.step.read_count()
    }

    /// Returns true if operations are recorded on the tape. Operations of a checkpointed segment are recorded in its
    /// recomputation, not in its forward pass.
    pub(crate) fn records_operations(&self) -> bool {
        self.context.grad_mode.is_recording.get()
    }

    /// Returns true if dropout is on.
    pub fn is_training(&self) -> bool {
        self.context.grad_mode.is_training.get()
    }

    /// Returns the flags that [`records_operations`](Self::records_operations) and [`is_training`](Self::is_training)
    /// read.
    pub(crate) fn grad_mode(&self) -> &GradMode {
        &self.context.grad_mode
    }

    /// Notes that ranks along `axes` hold different parts of a value.
    #[doc(hidden)]
    pub fn note_use_of(&self, axes: AxisSet) {
        self.context.used_axes.set(self.context.used_axes.get().union(axes));
    }

    /// Returns the axes along which ranks have held different parts of a value so far, or have communicated.
    #[doc(hidden)]
    pub fn used_axes(&self) -> AxisSet {
        self.context.used_axes.get()
    }

    /// Runs `body`, a computation of a pipeline stage, whose declared values differ along `pp`.
    #[doc(hidden)]
    pub fn in_stage<T>(&self, body: impl FnOnce() -> T) -> T {
        let outer = self.context.is_in_stage.replace(true);
        let result = body();
        self.context.is_in_stage.set(outer);
        result
    }

    /// Returns true while a pipeline stage of this rank is computed.
    pub(crate) fn is_in_stage(&self) -> bool {
        self.context.is_in_stage.get()
    }

    /// Returns the steps in which the promise is checked.
    pub(crate) fn checks(&self) -> Checks {
        self.context.settings.checks
    }

    /// Waits until the trace of the device is complete.
    #[doc(hidden)]
    pub fn finish_trace(&self) {
        if let Some(timeline) = &self.context.timeline {
            timeline.finish_spans();
        }
    }

    /// Opens a trace span of the work queued on stream `queue`, if the device is traced.
    pub(crate) fn open_span(&self, queue: StreamKind) -> Option<DeviceSpan> {
        self.context.timeline.as_ref().map(|timeline| timeline.open_span(queue))
    }
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rank({} of {})", self.index(), self.comms().shape().world_size())
    }
}
