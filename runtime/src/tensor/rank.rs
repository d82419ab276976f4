//! One rank as its own thread sees it: compute, communication, memory, tape.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::backend::{
    Backend, Buffer, Category, DType, Element, MemoryMeter, Queue, View, ViewMut,
};
use crate::comm::{
    CommError, CommFailure, Communicator, DeviceSpan, RankComms, ReduceOp, Site, Timeline,
};
use crate::layout::{AxisId, AxisSet};

use super::backward::Backward;
use super::declared::DeclaredValues;
use super::extent::MicroBatch;
use super::gathering::{Gathering, Phase};
use super::offload::Offloading;
use super::recompute::Regions;
use super::scope;
use super::tape::Tape;
use super::{Unit, ZeroLevel};

/// The rank that this thread is: cheap to clone, never leaves the thread.
///
/// The rank of a tensor ([`Tensor::rank`](super::Tensor::rank)) knows the micro-batch that the tensor is computed from:
/// what is made on it has the same rows.
#[derive(Clone)]
pub struct Rank {
    inner: Rc<Inner>,
    micro_batch: Option<Rc<MicroBatch>>,
}

struct Inner {
    comms: RankComms,
    backend: Box<dyn Backend>,
    meter: Arc<MemoryMeter>,
    settings: Settings,
    tape: RefCell<Tape>,
    units: RefCell<Vec<Weak<Unit>>>,
    gathering: RefCell<Gathering>,
    /// The unit whose gradient was handed over last.
    reducing: RefCell<Weak<Unit>>,
    regions: Regions,
    offloading: Offloading,
    recording: Cell<bool>,
    training: Cell<bool>,
    last_micro_batch: Cell<bool>,
    step: Cell<u64>,
    /// What the device does, in the trace.
    timeline: Option<Arc<Timeline>>,
    /// How often the step was asked for.
    step_reads: Cell<u64>,
    /// The backward pass that runs.
    backward: RefCell<Option<Rc<Backward>>>,
    n_backwards: Cell<u64>,
    used_axes: Cell<AxisSet>,
    declared_values: DeclaredValues,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(timeline) = &self.timeline {
            timeline.close();
        }
    }
}

/// How a rank computes, and what it shares out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Seed of initialisation and dropout, the same on every rank.
    pub seed: u64,
    /// Dtype of activations and of the values that layers read: `F32`, or `Bf16` with a master copy of the parameters
    /// in f32. Activations are also summed over ranks in it, with the addends of all ranks added up in f32.
    pub compute: DType,
    /// Dtype in which gradients are summed over the data axes. They are added up in f32 before and after.
    pub reduce: DType,
    /// What is sharded over the `fsdp` axis.
    pub zero: ZeroLevel,
    /// Most bytes that the rank's buffers may take together; none: what the machine gives.
    pub memory_limit: Option<usize>,
    /// Most logits that a fused head holds at the same time on a device, the same on every rank; `None` for a default
    /// that fits small devices. The trainer derives it from the plan of memory. The order in which the gradient of the
    /// head's weight is summed depends on it.
    pub logits_limit: Option<usize>,
}

impl Settings {
    /// Everything in f32, nothing sharded over `fsdp`, no limit.
    pub fn new(seed: u64) -> Settings {
        Settings {
            seed,
            compute: DType::F32,
            reduce: DType::F32,
            zero: ZeroLevel::Replicated,
            memory_limit: None,
            logits_limit: None,
        }
    }
}

impl Rank {
    /// A rank that talks through `comms`, computes on `backend` and draws its randomness from `seed`.
    pub fn new(comms: RankComms, backend: Box<dyn Backend>, seed: u64) -> Rank {
        Rank::with_settings(comms, backend, Settings::new(seed))
    }

    /// A rank that talks through `comms` and computes on `backend`, as `settings` say.
    pub fn with_settings(comms: RankComms, backend: Box<dyn Backend>, settings: Settings) -> Rank {
        let timeline = backend.device().and_then(|device| comms.trace_device(device));
        scope::trace_on(comms.lane(), timeline.clone());
        let limit = settings.memory_limit.unwrap_or(usize::MAX);
        let meter = MemoryMeter::on(backend.device(), limit);
        if let Some(device) = meter.device() {
            device.relieved_by(Arc::downgrade(&meter));
        }
        let inner = Rc::new(Inner {
            comms,
            backend,
            meter,
            settings,
            tape: RefCell::default(),
            units: RefCell::default(),
            gathering: RefCell::default(),
            reducing: RefCell::default(),
            regions: Regions::default(),
            offloading: Offloading::default(),
            recording: Cell::new(true),
            training: Cell::new(true),
            last_micro_batch: Cell::new(true),
            step: Cell::new(0),
            timeline,
            step_reads: Cell::new(0),
            backward: RefCell::default(),
            n_backwards: Cell::new(0),
            used_axes: Cell::default(),
            declared_values: DeclaredValues::default(),
        });
        Rank { inner, micro_batch: None }
    }

    /// The rank, on which tensors are computed from `micro_batch`.
    pub(super) fn with_micro_batch(&self, micro_batch: Rc<MicroBatch>) -> Rank {
        Rank { inner: Rc::clone(&self.inner), micro_batch: Some(micro_batch) }
    }

    /// The rank, on which tensors are computed from whole batches.
    pub(super) fn with_whole_batch(&self) -> Rank {
        Rank { inner: Rc::clone(&self.inner), micro_batch: None }
    }

    /// The micro-batch that tensors on this rank are computed from, if they are not computed from a whole batch.
    pub(super) fn micro_batch(&self) -> Option<&MicroBatch> {
        self.micro_batch.as_deref()
    }

    /// Makes sure that two operands of one operation live on one rank.
    ///
    /// # Panics
    /// When they were made on different meshes, or on ranks of their own.
    #[track_caller]
    pub(crate) fn check_same(&self, other: &Rank) {
        assert!(
            Rc::ptr_eq(&self.inner, &other.inner),
            "two operands of one operation belong to different meshes: {self:?} and {other:?}; a tensor, parameter or \
             model can be used only with what was made on the same `Rank`"
        );
    }

    /// Notes that ranks along `axes` hold different parts of something.
    pub(crate) fn note_use_of(&self, axes: AxisSet) {
        self.inner.used_axes.set(self.inner.used_axes.get().or(axes));
    }

    /// The axes along which ranks have held different parts of something so far, or have communicated.
    pub(crate) fn used_axes(&self) -> AxisSet {
        self.inner.used_axes.get()
    }

    /// Values that were declared the same on several ranks, to be compared.
    pub(crate) fn declared_values(&self) -> &DeclaredValues {
        &self.inner.declared_values
    }

    /// The backward pass that runs, if one does.
    pub(super) fn backward(&self) -> Option<Rc<Backward>> {
        self.inner.backward.borrow().clone()
    }

    /// Says which backward pass runs.
    pub(super) fn set_backward(&self, backward: Option<Rc<Backward>>) {
        self.inner.backward.replace(backward);
    }

    /// Numbers a backward pass, from 1 on.
    pub(super) fn next_backward(&self) -> u64 {
        self.inner.n_backwards.set(self.last_backward() + 1);
        self.last_backward()
    }

    /// The number of the latest backward pass, 0 if there was none.
    pub(super) fn last_backward(&self) -> u64 {
        self.inner.n_backwards.get()
    }

    /// Number of this rank in the world.
    pub fn index(&self) -> usize {
        self.inner.comms.rank()
    }

    /// The communicators of this rank.
    pub fn comms(&self) -> &RankComms {
        &self.inner.comms
    }

    /// The compute backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.inner.backend
    }

    /// What counts and recycles this rank's memory.
    pub fn meter(&self) -> &Arc<MemoryMeter> {
        &self.inner.meter
    }

    /// Degree of one mesh axis.
    pub fn degree(&self, axis: AxisId) -> usize {
        self.inner.comms.shape().degree(axis)
    }

    /// Number of ranks that differ from this one only along `axes`, itself included.
    pub fn degree_of(&self, axes: AxisSet) -> usize {
        self.inner.comms.shape().degree_of(axes)
    }

    /// Position of this rank among the ranks that differ from it only along `axes`.
    pub fn position(&self, axes: AxisSet) -> usize {
        self.inner.comms.shape().index_in_group(self.index(), axes)
    }

    /// The ranks that differ from this one only along `axes`; axes of degree 1 make no difference.
    pub fn group(&self, axes: AxisSet) -> Arc<Communicator> {
        self.note_use_of(axes);
        self.process_group(axes)
    }

    /// [`group`](Self::group), for the library's own collectives.
    pub(crate) fn process_group(&self, axes: AxisSet) -> Arc<Communicator> {
        let single = axes.iter().filter(|axis| self.degree(*axis) == 1);
        self.inner.comms.group(single.fold(axes, |axes, axis| axes.minus(AxisSet::of(axis))))
    }

    /// The seed of initialisation and dropout, the same on every rank.
    pub fn seed(&self) -> u64 {
        self.inner.settings.seed
    }

    /// Dtype of activations and of the values that layers read.
    pub fn compute_dtype(&self) -> DType {
        self.inner.settings.compute
    }

    /// Dtype in which gradients are summed over the data axes.
    pub fn reduce_dtype(&self) -> DType {
        self.inner.settings.reduce
    }

    /// Most logits that a fused head holds at the same time on a device.
    pub(crate) fn logits_limit(&self) -> Option<usize> {
        self.inner.settings.logits_limit
    }

    /// What is sharded over the `fsdp` axis: nothing, where that has one rank.
    pub fn zero_level(&self) -> ZeroLevel {
        match self.degree(AxisId::Fsdp) {
            1 => ZeroLevel::Replicated,
            _ => self.inner.settings.zero,
        }
    }

    /// The training step that runs now, which keys dropout.
    pub fn step(&self) -> u64 {
        self.inner.step_reads.set(self.inner.step_reads.get() + 1);
        self.inner.step.get()
    }

    /// Says which training step runs now.
    pub fn set_step(&self, step: u64) {
        self.inner.step.set(step);
        if let Some(timeline) = &self.inner.timeline {
            timeline.begin_step();
        }
    }

    /// The training step, without counting as having asked for it.
    pub(super) fn peek_step(&self) -> u64 {
        self.inner.step.get()
    }

    /// Runs `body` as part of training step `step`.
    pub(super) fn in_step<T>(&self, step: u64, body: impl FnOnce() -> T) -> T {
        let now = self.inner.step.replace(step);
        let result = body();
        self.inner.step.set(now);
        result
    }

    /// How often the step was asked for.
    pub(super) fn step_reads(&self) -> u64 {
        self.inner.step_reads.get()
    }

    /// Whether operations are recorded for backward.
    pub fn is_recording(&self) -> bool {
        self.inner.recording.get()
    }

    /// Whether dropout is on.
    pub fn is_training(&self) -> bool {
        self.inner.training.get()
    }

    /// Waits until all that the trace shows of the device is done, and counted.
    pub(crate) fn finish_trace(&self) {
        if let Some(timeline) = &self.inner.timeline {
            timeline.finish();
        }
    }

    /// A span of what is queued on the device in `queue`, where that is traced.
    pub(crate) fn open(&self, queue: Queue) -> Option<DeviceSpan> {
        self.inner.timeline.as_ref().map(|timeline| timeline.open(queue))
    }

    /// Runs `body` without recording it for backward and without dropout.
    pub fn evaluate<T>(&self, body: impl FnOnce() -> T) -> T {
        let recording = self.inner.recording.replace(false);
        let training = self.inner.training.replace(false);
        let phase = self.gathering().begin(Phase::Evaluate);
        let restore = Restore { rank: self, recording, training, phase };
        let result = body();
        drop(restore);
        result
    }

    /// Runs `body`, with everything recorded for backward, and with dropout.
    pub(super) fn recorded<T>(&self, body: impl FnOnce() -> T) -> T {
        let recording = self.inner.recording.replace(true);
        let training = self.inner.training.replace(true);
        let result = body();
        self.inner.recording.set(recording);
        self.inner.training.set(training);
        result
    }

    /// Runs `body` without recording it for backward; dropout stays as it is.
    pub(crate) fn unrecorded<T>(&self, body: impl FnOnce() -> T) -> T {
        let recording = self.inner.recording.replace(false);
        let (training, phase) = (self.inner.training.get(), self.gathering().phase());
        let restore = Restore { rank: self, recording, training, phase };
        let result = body();
        drop(restore);
        result
    }

    /// The units of parameters of the models on this rank.
    pub fn units(&self) -> Vec<Rc<Unit>> {
        self.inner.units.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Gives up all gradients of models on this rank, so that a step can begin again.
    pub(crate) fn discard_gradients(&self) {
        self.units().iter().for_each(|unit| unit.discard_gradient());
    }

    pub(crate) fn add_units(&self, units: &[Rc<Unit>]) {
        units.iter().for_each(|unit| unit.set_model(units));
        let mut known = self.inner.units.borrow_mut();
        known.retain(|unit| unit.strong_count() > 0);
        known.extend(units.iter().map(Rc::downgrade));
    }

    pub(crate) fn tape(&self) -> RefMut<'_, Tape> {
        self.inner.tape.borrow_mut()
    }

    pub(crate) fn gathering(&self) -> RefMut<'_, Gathering> {
        self.inner.gathering.borrow_mut()
    }

    pub(crate) fn offloading(&self) -> &Offloading {
        &self.inner.offloading
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.inner.regions
    }

    /// FLOPs of what backward has computed once more so far.
    pub fn recomputed_flops(&self) -> u64 {
        self.inner.regions.flops()
    }

    /// Whether gradients are complete after the backward that runs, or runs next.
    pub(crate) fn is_last_micro_batch(&self) -> bool {
        self.inner.last_micro_batch.get()
    }

    pub(crate) fn set_last_micro_batch(&self, last: bool) {
        self.inner.last_micro_batch.set(last);
    }

    /// Lets the unit whose gradient was handed over last go on with its reduction.
    pub(super) fn advance_reductions(&self) {
        self.in_turn(&Weak::new());
    }

    /// Lets the unit whose gradient was handed over before this one go on: its sum has had time to arrive.
    pub(crate) fn in_turn(&self, unit: &Weak<Unit>) {
        let before = self.inner.reducing.replace(Weak::clone(unit));
        if let Some(before) = before.upgrade() {
            before.advance();
        }
    }

    /// Room for `len` elements of an activation, in the compute dtype.
    pub(crate) fn alloc(&self, len: usize) -> Buffer {
        self.inner.meter.alloc(self.compute_dtype(), len, Category::Activations)
    }

    /// Room for `len` statistics, which are f32 whatever the compute dtype.
    pub(crate) fn stats(&self, len: usize) -> Buffer {
        self.inner.meter.alloc(DType::F32, len, Category::Activations)
    }

    /// `len` zeros in f32, to add up a parameter's gradient in.
    pub(crate) fn zeros(&self, len: usize) -> Buffer {
        self.inner.meter.zeros(DType::F32, len, Category::Workspace)
    }

    /// Room for `len` elements of scratch.
    pub(crate) fn scratch(&self, dtype: DType, len: usize) -> Buffer {
        self.inner.meter.alloc(dtype, len, Category::Workspace)
    }

    /// Values of the host where kernels can read them.
    pub(crate) fn stage<'a, T: Element>(&self, values: &'a [T]) -> Staged<'a> {
        match self.inner.meter.device() {
            None => Staged::Host(values.into()),
            Some(_) => Staged::Device(self.inner.meter.copy_of(values, Category::Workspace)),
        }
    }

    /// The elements of `data`, f32 or bf16, on the host.
    pub(crate) fn read(&self, data: View<'_>) -> Vec<f32> {
        if data.dtype() == DType::F32 {
            return data.to_vec();
        }
        let mut wide = self.scratch(DType::F32, data.len());
        self.backend().cast(data, wide.view_mut());
        wide.view().to_vec()
    }

    /// Sums `data` over the ranks along `axes`; nothing happens where there is only this one.
    pub(crate) fn all_reduce(&self, axes: AxisSet, site: &Site, op: ReduceOp, data: ViewMut<'_>) {
        let group = self.process_group(axes);
        if group.size() > 1 {
            group.all_reduce(site, op, data).unwrap_or_else(|error| fail(error));
        }
    }

    /// Sums `values` over the ranks along `axes` in double precision, in the order of ranks.
    pub(crate) fn all_reduce_f64(&self, axes: AxisSet, site: &Site, values: &mut [f64]) {
        let group = self.process_group(axes);
        group.all_reduce_f64(site, values).unwrap_or_else(|error| fail(error));
    }
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rank({} of {})", self.index(), self.inner.comms.shape().world_size())
    }
}

/// Values of the host, where kernels can read them.
pub(crate) enum Staged<'a> {
    Host(View<'a>),
    Device(Buffer),
}

impl Staged<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Staged::Host(view) => *view,
            Staged::Device(buffer) => buffer.view(),
        }
    }
}

struct Restore<'a> {
    rank: &'a Rank,
    recording: bool,
    training: bool,
    phase: Phase,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.rank.inner.recording.set(self.recording);
        self.rank.inner.training.set(self.training);
        self.rank.gathering().begin(self.phase);
    }
}

/// Leaves model code, which returns tensors and not `Result`s, with a typed payload that
/// [`launch`](crate::comm::launch) and the trainer turn back into an error.
pub(crate) fn fail(error: CommError) -> ! {
    std::panic::resume_unwind(Box::new(CommFailure(error)))
}
