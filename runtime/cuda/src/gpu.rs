//! The GPU context of one rank: streams, loaded kernels, workspace, and kernel launches.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use meshwright_backend::{MemoryCache, StreamKind};

use super::attention_use::AttentionUse;
use super::capture_state::CaptureState;
use super::driver::{
    Driver, DriverCalls, DriverError, Event, Grid, KernelFunction, KernelSource, Stream,
    unwrap_call,
};
use super::ops::map::Structure;

/// A driver with the streams and loaded kernels of one rank.
pub struct GpuContext {
    driver: Arc<dyn Driver>,
    /// The stream of [`StreamKind::Compute`], cached because most calls use it; also in `streams`.
    compute: OnceLock<Stream>,
    streams: Mutex<HashMap<StreamKind, Stream>>,
    /// Loaded kernels by name of the entry point: comparing sources is cheaper than hashing them at every launch.
    functions: Mutex<HashMap<String, Vec<(KernelSource, KernelFunction)>>>,
    /// Kernels with generated sources.
    generated: Mutex<HashMap<Structure, KernelFunction>>,
    /// Free events: untimed and timed ones.
    events: Mutex<[Vec<Event>; 2]>,
    workspace: Mutex<Workspace>,
    /// Size of the workspace, readable without waiting for its lock.
    workspace_bytes: AtomicUsize,
    /// The cache that is emptied when device memory is exhausted.
    memory_cache: Mutex<Option<Weak<dyn MemoryCache>>>,
    /// CUDA graphs: the current capture, and memory that captured work uses.
    pub(super) capture: CaptureState,
    /// The implementations that attention has run on.
    pub(super) attention: AttentionUse,
}

/// Scratch memory of kernels; `address` is 0 if none is allocated.
#[derive(Default)]
struct Workspace {
    address: u64,
    bytes: usize,
}

/// Granularity of workspace sizes, so that workspaces rarely grow.
const WORKSPACE_UNIT: usize = 1 << 20;

/// A kernel: its source and the name of its entry point.
pub type NamedKernel<'a> = (&'a KernelSource, &'a str);

impl GpuContext {
    /// Creates the context of a rank on the device of `driver`.
    pub fn new(driver: Arc<dyn Driver>) -> Arc<GpuContext> {
        Arc::new(GpuContext {
            driver,
            compute: OnceLock::new(),
            streams: Mutex::default(),
            functions: Mutex::default(),
            generated: Mutex::default(),
            events: Mutex::default(),
            workspace: Mutex::default(),
            workspace_bytes: AtomicUsize::new(0),
            memory_cache: Mutex::default(),
            capture: CaptureState::default(),
            attention: AttentionUse::default(),
        })
    }

    /// Returns the driver.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Returns the CUDA stream of `stream_kind`. Communication has priority over compute.
    pub fn stream(&self, stream_kind: StreamKind) -> Stream {
        let find = || {
            *lock_unpoisoned(&self.streams).entry(stream_kind).or_insert_with(|| {
                unwrap_call(self.driver.new_stream(stream_kind != StreamKind::Compute))
            })
        };
        match stream_kind {
            StreamKind::Compute => *self.compute.get_or_init(find),
            _ => find(),
        }
    }

    /// Returns all streams in use.
    pub fn streams(&self) -> Vec<Stream> {
        lock_unpoisoned(&self.streams).values().copied().collect()
    }

    /// Returns the streams in use except the streams of `stream_kinds`.
    pub(super) fn streams_except(&self, stream_kinds: &[StreamKind]) -> Vec<Stream> {
        let streams = lock_unpoisoned(&self.streams);
        let others = streams.iter().filter(|(stream_kind, _)| !stream_kinds.contains(stream_kind));
        others.map(|(_, stream)| *stream).collect()
    }

    /// Returns a workspace of at least `bytes` bytes, aligned to 256 bytes, for the next work on the compute stream.
    ///
    /// There is one workspace per context, used by the compute stream only. An operation requests its total in one
    /// call, and the next request overwrites the contents. The workspace grows to the size of the largest operation;
    /// growing synchronizes the stream.
    pub fn workspace(&self, bytes: usize) -> u64 {
        let mut workspace = lock_unpoisoned(&self.workspace);
        if workspace.bytes < bytes {
            self.free_workspace(&mut workspace);
            let bytes = bytes.next_multiple_of(WORKSPACE_UNIT);
            let address = self.retry_after_trim(|| self.driver.alloc(bytes));
            *workspace = Workspace { address, bytes };
            self.workspace_bytes.store(bytes, Ordering::Relaxed);
        }
        workspace.address
    }

    /// Returns the device memory that kernels and libraries use as workspaces, in bytes.
    pub fn overhead_bytes(&self) -> usize {
        let streams = lock_unpoisoned(&self.streams);
        let of_libraries: usize =
            streams.values().map(|stream| self.driver.workspace_bytes(*stream)).sum();
        self.workspace_bytes.load(Ordering::Relaxed) + self.capture.retired_bytes() + of_libraries
    }

    /// Returns the bytes that the rank may still allocate within its memory limit.
    pub fn free_bytes(&self) -> usize {
        self.memory_cache().map_or(usize::MAX, |cache| cache.available_bytes())
    }

    /// Sets the cache that is emptied when device memory is exhausted.
    pub fn set_memory_cache(&self, cache: Weak<dyn MemoryCache>) {
        *lock_unpoisoned(&self.memory_cache) = Some(cache);
    }

    fn memory_cache(&self) -> Option<Arc<dyn MemoryCache>> {
        lock_unpoisoned(&self.memory_cache).as_ref()?.upgrade()
    }

    /// Calls `call`, and retries it after emptying the memory cache if device memory is exhausted.
    pub fn retry_after_trim<T>(&self, call: impl Fn() -> Result<T, DriverError>) -> T {
        match call() {
            Err(DriverError::OutOfMemory { .. }) => {
                self.memory_cache().iter().for_each(|cache| cache.empty_cache());
                unwrap_call(call())
            }
            result => unwrap_call(result),
        }
    }

    fn free_workspace(&self, workspace: &mut Workspace) {
        let Workspace { address, bytes } = std::mem::take(workspace);
        self.workspace_bytes.store(0, Ordering::Relaxed);
        if bytes > 0 && !self.capture.retire_workspace(address, bytes) {
            // A failed device has no pending work that uses the memory, and reports the failure at its next call.
            let _ = self.driver.synchronize(self.stream(StreamKind::Compute));
            // SAFETY: `alloc` returned these bytes, and the only stream that uses them is synchronized.
            let _ = unsafe { self.driver.free(address, bytes) };
        }
    }

    /// Launches a kernel on the compute stream; `args` are its parameters, see `args!`.
    ///
    /// # Safety
    /// As [`Launch`](crate::GpuCall::Launch).
    pub unsafe fn launch(&self, kernel: NamedKernel<'_>, grid: Grid, args: &[&[u8]]) {
        // SAFETY: as the caller promises.
        unsafe { self.launch_on(StreamKind::Compute, kernel, grid, args) };
    }

    /// Launches a kernel on the stream of `stream_kind`.
    ///
    /// # Safety
    /// As [`Launch`](crate::GpuCall::Launch).
    pub unsafe fn launch_on(
        &self,
        stream_kind: StreamKind,
        kernel: NamedKernel<'_>,
        grid: Grid,
        args: &[&[u8]],
    ) {
        // SAFETY: as the caller promises.
        unsafe { self.launch_function(stream_kind, self.function(kernel), grid, args) };
    }

    /// Launches a loaded function on the stream of `stream_kind`.
    ///
    /// # Safety
    /// As [`Launch`](crate::GpuCall::Launch).
    pub unsafe fn launch_function(
        &self,
        stream_kind: StreamKind,
        function: KernelFunction,
        grid: Grid,
        args: &[&[u8]],
    ) {
        if grid.blocks.contains(&0) {
            return;
        }
        // SAFETY: as the caller promises.
        unwrap_call(unsafe { self.driver.launch(self.stream(stream_kind), function, grid, args) });
    }

    /// Returns the generated kernel of an expression's structure, if it is loaded.
    pub fn generated(&self, structure: &Structure) -> Option<KernelFunction> {
        lock_unpoisoned(&self.generated).get(structure).copied()
    }

    /// Loads the generated kernel of an expression's structure; its entry point has the name of the source.
    pub fn generate(&self, structure: Structure, source: &KernelSource) -> KernelFunction {
        let function = self.load_kernel((source, &source.name));
        lock_unpoisoned(&self.generated).insert(structure, function);
        function
    }

    fn function(&self, (source, name): NamedKernel<'_>) -> KernelFunction {
        let mut functions = lock_unpoisoned(&self.functions);
        let loaded = functions.get(name).and_then(|named| {
            let mut sources = named.iter();
            sources
                .find(|(loaded, _)| is_same_source(loaded, source))
                .map(|(_, function)| *function)
        });
        loaded.unwrap_or_else(|| {
            let function = self.load_kernel((source, name));
            functions.entry(name.to_string()).or_default().push((source.clone(), function));
            function
        })
    }

    fn load_kernel(&self, (source, name): NamedKernel<'_>) -> KernelFunction {
        let module = unwrap_call(self.driver.load(source));
        unwrap_call(self.driver.function(module, name))
    }

    /// Returns an event to record; the time between `timed` events can be measured.
    pub fn acquire_event(&self, timed: bool) -> Event {
        let free = lock_unpoisoned(&self.events)[usize::from(timed)].pop();
        free.unwrap_or_else(|| unwrap_call(self.driver.new_event(timed)))
    }

    /// Returns an event for reuse. Work that waits for its last record is not affected by later records.
    pub fn release_event(&self, event: Event, timed: bool) {
        lock_unpoisoned(&self.events)[usize::from(timed)].push(event);
    }
}

impl Drop for GpuContext {
    fn drop(&mut self) {
        let mut workspace = std::mem::take(&mut *lock_unpoisoned(&self.workspace));
        self.free_workspace(&mut workspace);
        for event in lock_unpoisoned(&self.events).iter_mut().flat_map(|events| events.drain(..)) {
            // Errors cannot be handled here.
            let _ = self.driver.free_event(event);
        }
        // Destroying a stream also frees the library workspaces of that stream.
        for (_, stream) in lock_unpoisoned(&self.streams).drain() {
            let _ = self.driver.free_stream(stream);
        }
    }
}

/// Returns true if two sources are equal. Fixed sources are usually the same static.
fn is_same_source(a: &KernelSource, b: &KernelSource) -> bool {
    std::ptr::eq(&*a.text, &*b.text) || a == b
}

impl fmt::Debug for GpuContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuContext({})", self.driver.properties().name)
    }
}

pub(super) fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kernel parameters as bytes: each is plain old data of exactly the kernel's type. Addresses of views are `u64`.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$(::bytemuck::bytes_of(&$arg)),*] };
}
pub(super) use args;
