//! A device whose queues run in a random order: work waits only for the events of its explicit waits.

use std::alloc::{Layout, alloc};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::bf16;
use meshwright::backend::{DType, Device, DeviceEvent, DeviceFailure, ReduceOp, StreamKind};

/// One device, shared by the ranks of a test.
pub struct Machine {
    state: Mutex<State>,
    /// Calls of `wait_for` so far.
    pub waits: AtomicUsize,
    /// Index of the wait that does nothing.
    pub ignored_wait: Option<usize>,
}

struct State {
    queues: Vec<Line>,
    happened: HashSet<usize>,
    events: usize,
    random: u64,
    /// Set if work is delayed until something waits for it.
    is_lazy: bool,
}

/// The work of one queue of one rank.
struct Line {
    rank: usize,
    queue: StreamKind,
    /// Likelihood of continuing before another stream.
    weight: u64,
    steps: VecDeque<Step>,
}

enum Step {
    Work(Box<dyn FnOnce() + Send>),
    Happens(usize),
    Wait(usize),
}

/// A machine as one rank sees it.
pub struct RankDevice {
    pub machine: Arc<Machine>,
    pub rank: usize,
    /// Set if copies fail.
    pub broken: bool,
}

impl Machine {
    pub fn new(seed: u64, ignored_wait: Option<usize>) -> Arc<Machine> {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (queues, happened, is_lazy) = (Vec::new(), HashSet::new(), seed % 2 == 1);
        let state = State { queues, happened, events: 0, random, is_lazy };
        Arc::new(Machine { state: Mutex::new(state), waits: AtomicUsize::new(0), ignored_wait })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn submit(&mut self, rank: usize, queue: StreamKind, step: Step) {
        let known = self.queues.iter().position(|line| (line.rank, line.queue) == (rank, queue));
        let idx = known.unwrap_or_else(|| {
            let weight = 1 << (4 * self.random(3));
            self.queues.push(Line { rank, queue, weight, steps: VecDeque::new() });
            self.queues.len() - 1
        });
        self.queues[idx].steps.push_back(step);
        let steps = if self.is_lazy { 0 } else { self.random(4) };
        for _ in 0..steps {
            self.advance();
        }
    }

    /// Executes one step of a stream that need not wait. Returns `false` if there is none.
    fn advance(&mut self) -> bool {
        let is_ready = |line: &Line| match line.steps.front() {
            Some(Step::Wait(event)) => self.happened.contains(event),
            step => step.is_some(),
        };
        let ready: Vec<usize> =
            (0..self.queues.len()).filter(|idx| is_ready(&self.queues[*idx])).collect();
        let total: u64 = ready.iter().map(|idx| self.queues[*idx].weight).sum();
        if total == 0 {
            return false;
        }
        let mut chosen = self.random(total);
        for idx in ready {
            let line = &mut self.queues[idx];
            if chosen < line.weight {
                match line.steps.pop_front() {
                    Some(Step::Work(work)) => work(),
                    Some(Step::Happens(event)) => drop(self.happened.insert(event)),
                    Some(Step::Wait(_)) | None => {}
                }
                return true;
            }
            chosen -= line.weight;
        }
        false
    }

    fn run_until(&mut self, mut is_done: impl FnMut(&State) -> bool) {
        while !is_done(self) {
            assert!(self.advance(), "every stream waits for an event that was not recorded");
        }
    }
}

impl RankDevice {
    fn submit(&self, queue: StreamKind, work: impl FnOnce() + Send + 'static) {
        self.machine.lock().submit(self.rank, queue, Step::Work(Box::new(work)));
    }
}

/// Pattern of uninitialized bytes: NaN as f32 and as bf16.
const POISON: u8 = 0xff;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).expect("a size that a test asks for")
}

// SAFETY of the blocks below: as the callers of `Device` promise.
impl Device for RankDevice {
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: more than no bytes, as `Device` says.
        let memory = NonNull::new(unsafe { alloc(layout(bytes)) })?;
        unsafe { memory.write_bytes(POISON, bytes) };
        Some(memory)
    }

    unsafe fn free(&self, memory: NonNull<u8>, bytes: usize) {
        let rank = self.rank;
        let is_idle = |state: &State| {
            state.queues.iter().all(|line| line.rank != rank || line.steps.is_empty())
        };
        self.machine.lock().run_until(is_idle);
        // Kept, so that a late use of it reads poison instead of being undefined.
        unsafe { memory.write_bytes(POISON, bytes) };
    }

    fn alloc_page_locked(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.alloc(bytes)
    }

    unsafe fn free_page_locked(&self, memory: NonNull<u8>, bytes: usize) {
        unsafe { self.free(memory, bytes) }
    }

    unsafe fn copy_out(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        unsafe { self.copy(StreamKind::Transfer, dst, src, bytes) };
    }

    unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        unsafe { self.copy(StreamKind::Transfer, dst, src, bytes) };
    }

    unsafe fn upload(&self, dst: *mut u8, src: &[u8]) {
        let (dst, src) = (dst as usize, src.to_vec());
        self.submit(StreamKind::Compute, move || unsafe {
            (dst as *mut u8).copy_from_nonoverlapping(src.as_ptr(), src.len())
        });
    }

    unsafe fn download(&self, src: *const u8, dst: &mut [u8]) {
        let end = self.mark_stream(StreamKind::Compute);
        self.synchronize(&end);
        unsafe { dst.as_mut_ptr().copy_from_nonoverlapping(src, dst.len()) };
    }

    unsafe fn zero(&self, queue: StreamKind, dst: *mut u8, bytes: usize) {
        let dst = dst as usize;
        self.submit(queue, move || unsafe { (dst as *mut u8).write_bytes(0, bytes) });
    }

    unsafe fn copy(&self, queue: StreamKind, dst: *mut u8, src: *const u8, bytes: usize) {
        if self.broken {
            DeviceFailure("the copy engine is broken".into()).unwind();
        }
        let (dst, src) = (dst as usize, src as usize);
        self.submit(queue, move || unsafe {
            (dst as *mut u8).copy_from_nonoverlapping(src as *const u8, bytes)
        });
    }

    unsafe fn combine(
        &self,
        queue: StreamKind,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        len: usize,
    ) {
        let (dst, srcs) = (dst as usize, srcs.iter().map(|src| *src as usize).collect::<Vec<_>>());
        self.submit(queue, move || {
            for i in 0..len {
                let value = |src: &usize| unsafe {
                    match dtype {
                        DType::Bf16 => (*(*src as *const bf16).add(i)).to_f32(),
                        _ => *(*src as *const f32).add(i),
                    }
                };
                let max = |a: f32, b: f32| if a > b || a.is_nan() { a } else { b };
                let combined = srcs.iter().map(value).reduce(|a, b| match op {
                    ReduceOp::Sum => a + b,
                    ReduceOp::Max => max(a, b),
                });
                let combined = combined.expect("a reduction has contributions");
                unsafe {
                    match dtype {
                        DType::Bf16 => *(dst as *mut bf16).add(i) = bf16::from_f32(combined),
                        _ => *(dst as *mut f32).add(i) = combined,
                    }
                }
            }
        });
    }

    fn mark_stream(&self, queue: StreamKind) -> DeviceEvent {
        let mut state = self.machine.lock();
        state.events += 1;
        let event = state.events;
        state.submit(self.rank, queue, Step::Happens(event));
        DeviceEvent(Arc::new(event))
    }

    fn record_timed_event(&self, queue: StreamKind) -> DeviceEvent {
        self.mark_stream(queue)
    }

    /// No time passes on this device.
    fn elapsed_ms(&self, _: &DeviceEvent, _: &DeviceEvent) -> f32 {
        0.0
    }

    fn wait_for(&self, queue: StreamKind, moment: &DeviceEvent) {
        let number = self.machine.waits.fetch_add(1, Ordering::Relaxed);
        if self.machine.ignored_wait != Some(number) {
            let event = *moment.0.downcast_ref::<usize>().expect("a moment of this device");
            self.machine.lock().submit(self.rank, queue, Step::Wait(event));
        }
    }

    fn is_done(&self, moment: &DeviceEvent) -> bool {
        let event = moment.0.downcast_ref::<usize>().expect("a moment of this device");
        self.machine.lock().happened.contains(event)
    }

    fn stream_handle(&self, _queue: StreamKind) -> u64 {
        0
    }

    fn synchronize(&self, moment: &DeviceEvent) {
        let event = *moment.0.downcast_ref::<usize>().expect("a moment of this device");
        self.machine.lock().run_until(|state| state.happened.contains(&event));
    }
}

impl fmt::Debug for RankDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device of rank {}", self.rank)
    }
}
