//! The recorder of a step: an observer of the kernels, calls and buffers of one rank.

use std::collections::{BTreeMap, HashMap};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{AllocationObserver, Backend, Category, Kernel, KernelObserver};
use crate::comm::{Call, CallObserver, CommOp, RankComms, Site};
use crate::mesh::MeshShape;
use crate::tensor::{Rank, Settings};
use meshwright_backend::__internal::ObservedBackend;
use meshwright_core::__internal::{
    Pass, RunningAction, current_action, current_location, current_pass,
};
use meshwright_sim::{
    CallSite, CommCall, CommOpKind, Context, ContextId, EventKind, LiveBuffer, StepEvent, StepLog,
};

/// Records the steps of one rank. All observed work is done by the thread of the rank, which knows the pass, the layer
/// and the function that it computes.
pub struct StepRecorder {
    mesh: MeshShape,
    recording: Mutex<Recording>,
}

#[derive(Default)]
struct Recording {
    is_open: bool,
    /// True while a blocking call runs: its engine may start kernels on the compute stream.
    in_call: bool,
    log: StepLog,
    /// Number of the first call of this step.
    first_call: usize,
    /// Number of calls of this step.
    calls: usize,
    /// Asynchronous calls that the rank has not waited for.
    pending: HashMap<usize, PendingCall>,
    /// Waits for calls of the step before, by index of the event.
    carried: Vec<(usize, PendingCall)>,
    /// Buffers in use, in the order of their allocation.
    buffers: BTreeMap<BufferKey, KnownBuffer>,
    /// Number of buffers of this step.
    step_buffers: u32,
    contexts: HashMap<ContextKey, ContextId>,
    /// The context of the last event.
    last: Option<(ContextKey, ContextId)>,
    sites: HashMap<SiteKey, u32>,
}

/// A call that is issued in one step and may be awaited in the next one.
#[derive(Debug, PartialEq, Eq)]
struct PendingCall {
    field: Arc<str>,
    op: CommOpKind,
}

/// A buffer in use.
#[derive(Debug)]
struct KnownBuffer {
    bytes: u64,
    category: Category,
    /// The computation of the thread when it was allocated.
    context: ContextKey,
    /// Number in this step.
    number: u32,
}

/// Number of a buffer, and true for offloaded ones, which are numbered by themselves on a device.
type BufferKey = (bool, u64);
type ContextKey =
    (Pass, Option<RunningAction>, Option<(&'static str, Option<usize>)>, &'static str);
type SiteKey = (Arc<str>, Option<&'static Location<'static>>);

impl StepRecorder {
    /// Creates a recorder of a rank of `mesh`.
    pub fn new(mesh: MeshShape) -> StepRecorder {
        StepRecorder { mesh, recording: Mutex::default() }
    }

    /// Creates a rank with settings whose work is observed.
    pub fn observe(
        self: &Arc<Self>,
        comms: RankComms,
        backend: Box<dyn Backend>,
        settings: Settings,
    ) -> Rank {
        let comms = comms.observed_by(Arc::<Self>::clone(self));
        let backend = Box::new(ObservedBackend::new(backend, Arc::<Self>::clone(self)));
        let rank = Rank::with_settings(comms, backend, settings);
        let observer: Arc<dyn AllocationObserver> = Arc::<Self>::clone(self);
        rank.allocator().observe(&observer);
        rank
    }

    /// Begins a step, and forgets the one before.
    pub fn begin_step(&self) {
        let mut recording = self.lock();
        let before = std::mem::take(&mut *recording);
        recording.keep_buffers(before.buffers);
        recording.first_call = before.first_call + before.calls;
        recording.pending = before.pending;
        recording.is_open = true;
    }

    /// Ends the step, and returns its log.
    pub fn end_step(&self) -> StepLog {
        let mut recording = self.lock();
        recording.is_open = false;
        recording.resolve_carried();
        std::mem::take(&mut recording.log)
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recording {
    fn push(&mut self, kind: EventKind) {
        if self.is_open {
            let context = self.current_context();
            self.log.events.push(StepEvent { context, kind });
        }
    }

    /// Sets the calls of waits for the step before: in steps that are alike, they are the last ones of this step with
    /// the same field and operation.
    fn resolve_carried(&mut self) {
        for (index, call) in std::mem::take(&mut self.carried) {
            let own = self.pending.iter().filter(|(_, own)| **own == call);
            let last = own.map(|(number, _)| *number).max();
            if let Some(number) = last.and_then(|number| number.checked_sub(self.first_call)) {
                let kind = EventKind::Await { number: number as u32, of_previous_step: true };
                self.log.events.set_kind(index, kind);
            }
        }
    }

    /// Numbers the buffers in use at the beginning of a step.
    fn keep_buffers(&mut self, mut buffers: BTreeMap<BufferKey, KnownBuffer>) {
        for buffer in buffers.values_mut() {
            buffer.number = self.step_buffers;
            self.step_buffers += 1;
            let &mut KnownBuffer { bytes, category, context, .. } = buffer;
            let context = self.context_of(context);
            self.log.live_at_start[category as usize] += bytes;
            self.log.buffers_at_start.push(LiveBuffer { context, bytes, category });
        }
        self.buffers = buffers;
    }

    /// Returns the context of what this thread computes.
    fn current_context(&mut self) -> ContextId {
        self.context_of(current_key())
    }

    fn context_of(&mut self, key: ContextKey) -> ContextId {
        if let Some((last, id)) = self.last
            && last == key
        {
            return id;
        }
        let contexts = &mut self.log.contexts;
        let id = *self.contexts.entry(key).or_insert_with(|| {
            let (pass, action, layer, function) = key;
            contexts.push(Context { pass, action, layer: layer_path(layer), function });
            ContextId(contexts.len() as u32 - 1)
        });
        self.last = Some((key, id));
        id
    }

    fn message(&mut self, site: &Site) -> Option<u32> {
        let message = site.message()?;
        self.log.messages.push(message);
        Some(self.log.messages.len() as u32 - 1)
    }

    fn site(&mut self, site: &Site) -> u32 {
        let sites = &mut self.log.sites;
        *self.sites.entry((Arc::clone(site.shared_field()), site.location())).or_insert_with(|| {
            let (field, line) = (Arc::clone(site.shared_field()), site.location());
            sites.push(CallSite { field, line });
            sites.len() as u32 - 1
        })
    }
}

/// Returns what this thread computes.
fn current_key() -> ContextKey {
    let at = current_location();
    (current_pass(), current_action(), at.layer, at.function)
}

/// Returns the path of a layer: `blocks.3`, or the field of the model.
fn layer_path(layer: Option<(&'static str, Option<usize>)>) -> Arc<str> {
    match layer {
        None => "".into(),
        Some((field, None)) => field.into(),
        Some((field, Some(layer))) => format!("{field}.{layer}").into(),
    }
}

impl KernelObserver for StepRecorder {
    fn kernel_launched(&self, kernel: &Kernel) {
        let mut recording = self.lock();
        if !recording.in_call {
            recording.push(EventKind::Kernel(*kernel));
        }
    }
}

impl CallObserver for StepRecorder {
    fn call_issued(&self, call: &Call, round: Option<u32>) -> usize {
        let mut recording = self.lock();
        let index = recording.calls;
        recording.calls += 1;
        let bytes = match call.op {
            CommOp::Recv { count, .. } => count * call.dtype.map_or(0, |dtype| dtype.bytes()),
            _ => call.bytes,
        };
        let recorded = CommCall {
            number: index as u32,
            op: CommOpKind::of(&call.op),
            axes: call.axes,
            group: self.mesh.degree_of(call.axes) as u32,
            bytes: bytes as u64,
            is_asynchronous: call.asynchronous,
            message: recording.message(&call.site),
            round,
            site: recording.site(&call.site),
        };
        recording.push(EventKind::Call(recorded));
        let is_message = matches!(recorded.op, CommOpKind::Send | CommOpKind::Recv);
        recording.in_call = !call.asynchronous && !is_message;
        let number = recording.first_call + index;
        if call.asynchronous {
            let call = PendingCall { field: Arc::clone(call.site.shared_field()), op: recorded.op };
            recording.pending.insert(number, call);
        }
        number
    }

    fn call_returned(&self) {
        self.lock().in_call = false;
    }

    fn call_awaited(&self, number: usize) {
        let mut recording = self.lock();
        let Some(call) = recording.pending.remove(&number) else { return };
        let of_previous_step = number < recording.first_call;
        if of_previous_step && recording.is_open {
            let index = recording.log.events.len();
            recording.carried.push((index, call));
        }
        let number = number.saturating_sub(recording.first_call) as u32;
        recording.push(EventKind::Await { number, of_previous_step });
    }
}

impl AllocationObserver for StepRecorder {
    fn allocated(&self, number: u64, bytes: usize, category: Category) {
        let mut recording = self.lock();
        let bytes = bytes as u64;
        let buffer = recording.step_buffers;
        recording.step_buffers += 1;
        let known = KnownBuffer { bytes, category, context: current_key(), number: buffer };
        recording.buffers.insert((category == Category::Offloaded, number), known);
        recording.push(EventKind::Alloc { buffer, bytes, category });
    }

    fn freed(&self, number: u64, _: usize, category: Category) {
        let mut recording = self.lock();
        let key = (category == Category::Offloaded, number);
        // One that is older than the recorder has never been counted.
        let Some(KnownBuffer { number: buffer, bytes, .. }) = recording.buffers.remove(&key) else {
            return;
        };
        recording.push(EventKind::Free { buffer, bytes, category });
    }
}
