//! One rank's hold on its GPU: streams, kernels, and how work is submitted.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{DeviceFailure, Queue};

use super::driver::{Driver, DriverError, Function, Grid, Source, Stream};
use super::recording::Tape;

/// A driver with one rank's streams and the kernels that it has used.
pub struct Gpu {
    driver: Arc<dyn Driver>,
    streams: Mutex<HashMap<Queue, Stream>>,
    /// By name of the entry point: a comparison of sources is cheaper than a hash of them at every launch.
    functions: Mutex<HashMap<String, Vec<(Source, Function)>>>,
    workspace: Mutex<Workspace>,
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
            streams: Mutex::default(),
            functions: Mutex::default(),
            workspace: Mutex::default(),
            tape: Tape::default(),
        })
    }

    /// The driver.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The stream of a queue. Communication goes before compute where both are ready.
    pub fn stream(&self, queue: Queue) -> Stream {
        *lock(&self.streams)
            .entry(queue)
            .or_insert_with(|| done(self.driver.new_stream(queue != Queue::Compute)))
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
            *workspace = Workspace { address: done(self.driver.alloc(bytes)), bytes };
        }
        workspace.address
    }

    fn drop_workspace(&self, workspace: &mut Workspace) {
        let Workspace { address, bytes } = std::mem::take(workspace);
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
        if grid.blocks.contains(&0) {
            return;
        }
        let function = self.function(kernel);
        // SAFETY: as the caller promises.
        done(unsafe { self.driver.launch(self.stream(queue), function, grid, args) });
    }

    fn function(&self, (source, name): Kernel<'_>) -> Function {
        let mut functions = lock(&self.functions);
        let loaded = functions.get(name).and_then(|named| {
            named.iter().find(|(loaded, _)| loaded == source).map(|(_, function)| *function)
        });
        loaded.unwrap_or_else(|| {
            let module = done(self.driver.load(source));
            let function = done(self.driver.function(module, name));
            functions.entry(name.to_string()).or_default().push((source.clone(), function));
            function
        })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let mut workspace = std::mem::take(&mut *lock(&self.workspace));
        self.drop_workspace(&mut workspace);
    }
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
