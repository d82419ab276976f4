//! The recorder of a step: an observer of the kernels, calls and buffers of one rank.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{AllocationObserver, Category, Kernel, KernelObserver};
use crate::comm::{Call, CallObserver, CommOp, Site};
use crate::mesh::MeshShape;
use meshwright_core::__internal::{Action, Pass, current_action, current_location, current_pass};
use meshwright_sim::{CallKind, CallSite, CommCall, Context, ContextId, Event, EventKind, StepLog};

/// Records the steps of one rank. All observed work is done by the thread of the rank, which knows the pass, the layer
/// and the function that it computes.
pub struct StepRecorder {
    mesh: MeshShape,
    recording: Mutex<Recording>,
}

#[derive(Default)]
struct Recording {
    is_open: bool,
    log: StepLog,
    /// Number of the first call of this step, and of the step before.
    first_call: usize,
    first_call_before: usize,
    /// Number of calls of this step.
    calls: usize,
    live: [u64; Category::ALL.len()],
    contexts: HashMap<ContextKey, ContextId>,
    /// The context of the last event.
    last: Option<(ContextKey, ContextId)>,
    sites: HashMap<SiteKey, u32>,
}

type ContextKey = (Pass, Option<Action>, Option<(&'static str, Option<usize>)>, &'static str);
type SiteKey = (Arc<str>, Option<&'static Location<'static>>);

impl StepRecorder {
    /// Creates a recorder of a rank of `mesh`.
    pub fn new(mesh: MeshShape) -> StepRecorder {
        StepRecorder { mesh, recording: Mutex::default() }
    }

    /// Begins a step, and forgets the one before.
    pub fn begin_step(&self) {
        let mut recording = self.lock();
        let before = std::mem::take(&mut *recording);
        recording.live = before.live;
        recording.log.live_at_start = before.live;
        recording.first_call_before = before.first_call;
        recording.first_call = before.first_call + before.calls;
        recording.is_open = true;
    }

    /// Ends the step, and returns its log.
    pub fn end_step(&self) -> StepLog {
        let mut recording = self.lock();
        recording.is_open = false;
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
            self.log.events.push(Event { context, kind });
        }
    }

    /// Returns the context of what this thread computes.
    fn current_context(&mut self) -> ContextId {
        let at = current_location();
        let key = (current_pass(), current_action(), at.layer, at.function);
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

    fn site(&mut self, site: &Site) -> u32 {
        let sites = &mut self.log.sites;
        *self.sites.entry((Arc::clone(site.shared_field()), site.location())).or_insert_with(|| {
            let (field, line) = (Arc::clone(site.shared_field()), site.location());
            sites.push(CallSite { field, line });
            sites.len() as u32 - 1
        })
    }
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
        self.lock().push(EventKind::Kernel(*kernel));
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
            op: CallKind::of(&call.op),
            axes: call.axes,
            group: self.mesh.degree_of(call.axes) as u32,
            bytes: bytes as u64,
            is_asynchronous: call.asynchronous,
            message: call.site.message(),
            round,
            site: recording.site(&call.site),
        };
        recording.push(EventKind::Call(recorded));
        recording.first_call + index
    }

    fn call_awaited(&self, number: usize) {
        let mut recording = self.lock();
        let Recording { first_call, first_call_before, .. } = *recording;
        let (index, of_previous_step) = match number.checked_sub(first_call) {
            Some(index) => (index, false),
            None => match number.checked_sub(first_call_before) {
                Some(index) => (index, true),
                // Of an earlier step, which a step that follows steps like itself has not.
                None => return,
            },
        };
        recording.push(EventKind::Await { number: index as u32, of_previous_step });
    }
}

impl AllocationObserver for StepRecorder {
    fn allocated(&self, bytes: usize, category: Category) {
        let mut recording = self.lock();
        let bytes = bytes as u64;
        recording.live[category as usize] += bytes;
        recording.push(EventKind::Alloc { bytes, category });
    }

    fn freed(&self, bytes: usize, category: Category) {
        let mut recording = self.lock();
        let bytes = bytes as u64;
        recording.live[category as usize] -= bytes;
        recording.push(EventKind::Free { bytes, category });
    }
}
