//! The simulated device, and what tests can see and do.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use meshwright::backend::cuda::{DriverError, Properties};

use crate::driver::SimDriver;
use crate::lock;
use crate::log::{Entry, Fault, Kind};
use crate::state::State;

/// A device that the drivers of several ranks can share. Clones are the same device.
#[derive(Clone)]
pub struct SimDevice(Arc<Shared>);

struct Shared {
    properties: Properties,
    drivers: AtomicUsize,
    state: Mutex<State>,
}

/// What a simulated device says of itself if a test has no other wish: an H100.
pub fn h100() -> Properties {
    Properties {
        name: "simulated H100".to_string(),
        capability: (9, 0),
        multiprocessors: 132,
        memory: 80_000_000_000,
        shared_memory: 227 * 1024,
    }
}

impl SimDevice {
    /// A device like an H100. The seed decides the order in which threads, blocks and streams go on: the same calls in
    /// the same order (of a single rank, that is) give the same order of work.
    pub fn new(seed: u64) -> SimDevice {
        SimDevice::with(seed, h100())
    }

    /// A device with other properties; `memory` is a limit that it keeps.
    pub fn with(seed: u64, properties: Properties) -> SimDevice {
        let state = Mutex::new(State::new(seed, properties.memory));
        SimDevice(Arc::new(Shared { properties, drivers: AtomicUsize::new(0), state }))
    }

    /// A driver for one more rank.
    pub fn driver(&self) -> SimDriver {
        SimDriver::new_on(self.clone(), self.0.drivers.fetch_add(1, Ordering::Relaxed))
    }

    /// Every call so far, of all drivers, in order.
    pub fn log(&self) -> Vec<Entry> {
        self.state().log.clone()
    }

    /// Forgets the calls so far.
    pub fn clear_log(&self) {
        self.state().log.clear();
    }

    /// Lets one call of `kind` fail: the next one after `succeed` more of them. Later ones succeed again.
    pub fn fail(&self, kind: Kind, succeed: usize, error: DriverError) {
        self.state().faults.push(Fault { kind, left: succeed, error });
    }

    /// Bytes in live allocations, and their number.
    pub fn live(&self) -> (usize, usize) {
        self.state().memory.live()
    }

    pub(crate) fn properties(&self) -> &Properties {
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
