//! One rank's hold on its GPU: streams, kernels, and how work is submitted.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::backend::{DeviceFailure, MemoryMeter, Queue};

use super::driver::{Driver, DriverError, Event, Function, Grid, Source, Stream};
use super::ops::map::Structure;
use super::recording::Tape;

/// A driver with one rank's streams and the kernels that it has used.
pub struct Gpu {
    driver: Arc<dyn Driver>,
    /// The stream of [`Queue::Compute`], which nearly every call is for; also among the others.
    compute: OnceLock<Stream>,
    streams: Mutex<HashMap<Queue, Stream>>,
    /// By name of the entry point: a comparison of sources is cheaper than a hash of them at every launch.
    functions: Mutex<HashMap<String, Vec<(Source, Function)>>>,
    /// Kernels whose sources are generated.
    generated: Mutex<HashMap<Structure, Function>>,
    /// Events that nobody waits for any more, to be recorded anew: plain ones, and timed ones.
    events: Mutex<[Vec<Event>; 2]>,
    workspace: Mutex<Workspace>,
    /// Its bytes, for who may not wait until it has grown.
    workspace_bytes: AtomicUsize,
    /// Who has memory to spare where there is none.
    kept: Mutex<Weak<MemoryMeter>>,
    /// What is recorded, and what recordings use.
    pub(super) tape: Tape,
}

/// Memory of kernels that need some beside their operands; `address` is 0 as long as there is none.
#[derive(Default)]
struct Workspace {
    address: u64,
    bytes: usize,
}

/// Sizes of workspaces are multiples of this, so that they seldom grow.
const WORKSPACE_UNIT: usize = 1 << 20;

/// A kernel: its source, and the name of its entry point.
pub type Kernel<'a> = (&'a Source, &'a str);

impl Gpu {
    /// A rank's hold on the device of `driver`.
    pub fn new(driver: Arc<dyn Driver>) -> Arc<Gpu> {
        Arc::new(Gpu {
            driver,
            compute: OnceLock::new(),
            streams: Mutex::default(),
            functions: Mutex::default(),
            generated: Mutex::default(),
            events: Mutex::default(),
            workspace: Mutex::default(),
            workspace_bytes: AtomicUsize::new(0),
            kept: Mutex::default(),
            tape: Tape::default(),
        })
    }

    /// The driver.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The stream of a queue. Communication goes before compute where both are ready.
    pub fn stream(&self, queue: Queue) -> Stream {
        let find = || {
            *lock(&self.streams)
                .entry(queue)
                .or_insert_with(|| done(self.driver.new_stream(queue != Queue::Compute)))
        };
        match queue {
            Queue::Compute => *self.compute.get_or_init(find),
            _ => find(),
        }
    }

    /// Every stream in use.
    pub fn streams(&self) -> Vec<Stream> {
        lock(&self.streams).values().copied().collect()
    }

    /// The streams in use that are not those of `queues`.
    pub(super) fn streams_beside(&self, queues: &[Queue]) -> Vec<Stream> {
        let streams = lock(&self.streams);
        let others = streams.iter().filter(|(queue, _)| !queues.contains(queue));
        others.map(|(_, stream)| *stream).collect()
    }

    /// Scratch memory of at least `bytes` bytes for what is submitted to the compute queue next, aligned to 256.
    ///
    /// There is one workspace, and nothing but the compute queue uses it: an operation asks for all that it needs at
    /// once, and what it leaves there is gone with the next call. It grows, for which the host waits for the queue, until
    /// it fits the largest operation.
    pub fn workspace(&self, bytes: usize) -> u64 {
        let mut workspace = lock(&self.workspace);
        if workspace.bytes < bytes {
            self.drop_workspace(&mut workspace);
            let bytes = bytes.next_multiple_of(WORKSPACE_UNIT);
            let address = self.relieved(|| self.driver.alloc(bytes));
            *workspace = Workspace { address, bytes };
            self.workspace_bytes.store(bytes, Ordering::Relaxed);
        }
        workspace.address
    }

    /// Bytes of device memory that kernels and libraries use beside their operands.
    pub fn own_bytes(&self) -> usize {
        self.workspace_bytes.load(Ordering::Relaxed)
            + self.tape.retired_bytes()
            + self.driver.scratch_bytes(&self.streams())
    }

    /// Bytes that the rank may still take within its limit of memory.
    pub fn room(&self) -> usize {
        let meter = lock(&self.kept).upgrade();
        meter.map_or(usize::MAX, |meter| meter.available_bytes())
    }

    /// When there is no memory, `meter` gives back what it keeps.
    pub fn relieved_by(&self, meter: Weak<MemoryMeter>) {
        *lock(&self.kept) = meter;
    }

    /// The result of a call that may need memory. Where there is none, it is made once more after what is kept for later
    /// has been given back.
    pub fn relieved<T>(&self, call: impl Fn() -> Result<T, DriverError>) -> T {
        match call() {
            Err(DriverError::OutOfMemory { .. }) => {
                let kept = lock(&self.kept).upgrade();
                kept.iter().for_each(|meter| meter.empty_cache());
                done(call())
            }
            result => done(result),
        }
    }

    fn drop_workspace(&self, workspace: &mut Workspace) {
        let Workspace { address, bytes } = std::mem::take(workspace);
        self.workspace_bytes.store(0, Ordering::Relaxed);
        if bytes > 0 && !self.tape.retire(address, bytes) {
            // A device that has failed has no work left that uses the memory, and says so at its next call.
            let _ = self.driver.synchronize(self.stream(Queue::Compute));
            // SAFETY: `alloc` gave these bytes, and the only queue that uses them is done.
            let _ = unsafe { self.driver.free(address, bytes) };
        }
    }

    /// Submits a kernel to the compute queue; `args` are its parameters, see `args!`.
    ///
    /// # Safety
    /// As [`Driver::launch`].
    pub unsafe fn launch(&self, kernel: Kernel<'_>, grid: Grid, args: &[&[u8]]) {
        // SAFETY: as the caller promises.
        unsafe { self.launch_on(Queue::Compute, kernel, grid, args) };
    }

    /// Submits a kernel to a queue.
    ///
    /// # Safety
    /// As [`Driver::launch`].
    pub unsafe fn launch_on(&self, queue: Queue, kernel: Kernel<'_>, grid: Grid, args: &[&[u8]]) {
        // SAFETY: as the caller promises.
        unsafe { self.launch_function(queue, self.function(kernel), grid, args) };
    }

    /// Submits a function that is loaded to a queue.
    ///
    /// # Safety
    /// As [`Driver::launch`].
    pub unsafe fn launch_function(
        &self,
        queue: Queue,
        function: Function,
        grid: Grid,
        args: &[&[u8]],
    ) {
        if grid.blocks.contains(&0) {
            return;
        }
        // SAFETY: as the caller promises.
        done(unsafe { self.driver.launch(self.stream(queue), function, grid, args) });
    }

    /// The kernel that was generated for a structure, if there was one.
    pub fn generated(&self, structure: &Structure) -> Option<Function> {
        lock(&self.generated).get(structure).copied()
    }

    /// The kernel for a structure, whose entry point has the name of the source.
    pub fn generate(&self, structure: Structure, source: &Source) -> Function {
        let function = self.load((source, &source.name));
        lock(&self.generated).insert(structure, function);
        function
    }

    fn function(&self, (source, name): Kernel<'_>) -> Function {
        let mut functions = lock(&self.functions);
        let loaded = functions.get(name).and_then(|named| {
            let mut sources = named.iter();
            sources.find(|(loaded, _)| is_same(loaded, source)).map(|(_, function)| *function)
        });
        loaded.unwrap_or_else(|| {
            let function = self.load((source, name));
            functions.entry(name.to_string()).or_default().push((source.clone(), function));
            function
        })
    }

    fn load(&self, (source, name): Kernel<'_>) -> Function {
        let module = done(self.driver.load(source));
        done(self.driver.function(module, name))
    }

    /// An event to be recorded; `timed` ones can be measured.
    pub fn take_event(&self, timed: bool) -> Event {
        let free = lock(&self.events)[usize::from(timed)].pop();
        free.unwrap_or_else(|| done(self.driver.new_event(timed)))
    }

    /// Takes an event back. What was submitted to wait for it waits for its last record so far, whatever is recorded next.
    pub fn put_event(&self, event: Event, timed: bool) {
        lock(&self.events)[usize::from(timed)].push(event);
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let mut workspace = std::mem::take(&mut *lock(&self.workspace));
        self.drop_workspace(&mut workspace);
        for event in lock(&self.events).iter_mut().flat_map(|events| events.drain(..)) {
            // Nobody could act on an error here.
            let _ = self.driver.free_event(event);
        }
        // With its stream, a library gives back its workspace of it.
        for (_, stream) in lock(&self.streams).drain() {
            let _ = self.driver.free_stream(stream);
        }
    }
}

/// Whether two sources are equal. Those of kernels that are not generated are in one place of the program.
fn is_same(a: &Source, b: &Source) -> bool {
    std::ptr::eq(&*a.text, &*b.text) || a == b
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.driver.properties().name)
    }
}

/// The result of a call; one that failed unwinds the rank.
pub(super) fn done<T>(result: Result<T, DriverError>) -> T {
    result.unwrap_or_else(|error| DeviceFailure(error.to_string()).unwind())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parameters of a kernel as bytes: each is plain old data of exactly the kernel's type. Addresses of views are `u64`.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$(::bytemuck::bytes_of(&$arg)),*] };
}
pub(super) use args;
