//! One rank's hold on its GPU: streams, kernels, and how work is submitted.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{DeviceFailure, Queue};

use super::driver::{Driver, DriverError, Function, Grid, Source, Stream};

/// A driver with one rank's streams and the kernels that it has used.
pub struct Gpu {
    driver: Arc<dyn Driver>,
    streams: Mutex<HashMap<Queue, Stream>>,
    functions: Mutex<HashMap<(Source, String), Function>>,
}

/// A kernel: its source, and the name of its entry point.
pub type Kernel<'a> = (&'a Source, &'a str);

impl Gpu {
    /// A rank's hold on the device of `driver`.
    pub fn new(driver: Arc<dyn Driver>) -> Arc<Gpu> {
        Arc::new(Gpu { driver, streams: Mutex::default(), functions: Mutex::default() })
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
        let key = (source.clone(), name.to_string());
        *lock(&self.functions).entry(key).or_insert_with(|| {
            let module = done(self.driver.load(source));
            done(self.driver.function(module, name))
        })
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
