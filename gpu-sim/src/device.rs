//! The simulated device, and its interface for tests.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use meshwright_cuda::{CallKind, DeviceProperties, DriverError};

use crate::lock;
use crate::log::{Entry, Fault};
use crate::state::State;

/// A device that the drivers of several ranks can share. Clones refer to the same device.
#[derive(Clone)]
pub struct SimDevice(Arc<Shared>);

struct Shared {
    properties: DeviceProperties,
    drivers: AtomicUsize,
    state: Mutex<State>,
}

/// Returns the default properties of a simulated device: an H100's.
pub fn h100() -> DeviceProperties {
    DeviceProperties {
        name: "simulated H100".to_string(),
        capability: (9, 0),
        multiprocessors: 132,
        memory: 80_000_000_000,
        shared_memory: 227 * 1024,
    }
}

impl SimDevice {
    /// Creates a device like an H100. The seed determines the execution order of threads, blocks and streams: the same
    /// call sequence of a single rank gives the same order.
    pub fn new(seed: u64) -> SimDevice {
        SimDevice::with(seed, h100())
    }

    /// Creates a device with other properties; `memory` is enforced.
    pub fn with(seed: u64, properties: DeviceProperties) -> SimDevice {
        let state = Mutex::new(State::new(seed, properties.memory));
        SimDevice(Arc::new(Shared { properties, drivers: AtomicUsize::new(0), state }))
    }

    /// Returns every call so far, of all drivers, in order.
    pub fn log(&self) -> Vec<Entry> {
        self.state().log.clone()
    }

    /// Clears the log of calls.
    pub fn clear_log(&self) {
        self.state().log.clear();
    }

    /// Injects a fault: one call of `kind` fails after `succeed` successful ones. Later calls succeed again.
    pub fn fail(&self, kind: CallKind, succeed: usize, error: DriverError) {
        self.state().faults.push(Fault { kind, left: succeed, error });
    }

    /// Returns the total size and number of live allocations.
    pub fn live(&self) -> (usize, usize) {
        self.state().memory.live()
    }

    /// Returns the number of a new driver.
    pub(crate) fn next_driver_number(&self) -> usize {
        self.0.drivers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn properties(&self) -> &DeviceProperties {
        &self.0.properties
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDevice({})", self.0.properties.name)
    }
}
