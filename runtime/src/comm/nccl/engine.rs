//! The NCCL engine of one rank.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::backend::{CachingAllocator, Device, FreeObserver, StreamKind};
use crate::comm::{CommError, Engine, GroupMember, Peers, ProcessGroup, RankExit};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;

use super::api::{Comm, Id, Library};
use super::group::NcclGroup;
use super::init::CommInit;
use super::point_to_point::PairComms;
use super::registration::Registrations;
use super::watchdog::Watchdog;

/// Settings of the engine of one rank.
#[derive(Debug, Clone)]
pub struct NcclSettings {
    /// The mesh.
    pub shape: MeshShape,
    /// World rank.
    pub rank: usize,
    /// Timeout of the initialization and of each call.
    pub timeout: Duration,
    /// Failure detection.
    pub peers: Arc<dyn Peers>,
    /// Registers memory that collectives reuse with the library.
    pub registers: bool,
}

/// The state that the groups of a rank share.
pub(super) struct Core {
    pub library: Arc<dyn Library>,
    pub device: Arc<dyn Device>,
    /// Memory of staging buffers and scratch.
    pub allocator: Arc<CachingAllocator>,
    pub watchdog: Arc<Watchdog>,
    pub pair_comms: PairComms,
    /// `None` if registration is off.
    pub registrations: Option<Arc<Registrations>>,
}

/// The NCCL engine of one rank. Dropping it finalizes the communicators: later calls fail.
pub struct NcclEngine {
    shape: MeshShape,
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
    /// By axes with more than one rank.
    comms: BTreeMap<AxisSet, Comm>,
}

impl NcclEngine {
    /// Creates the communicators of a rank on `device`. Every rank of the mesh calls it with the same `id`, and waits for the
    /// others.
    ///
    /// # Errors
    /// If the ranks do not meet in time, and errors of the library.
    pub fn new(
        settings: NcclSettings,
        library: Arc<dyn Library>,
        device: Arc<dyn Device>,
        id: &Id,
    ) -> Result<Arc<NcclEngine>, CommError> {
        let allocator = CachingAllocator::on(Some(Arc::clone(&device)), usize::MAX);
        let watchdog = Watchdog::new(Arc::clone(&library), Arc::clone(&device), &settings);
        let init = CommInit::new(&settings, &*library, &watchdog, &*device, &allocator);
        let (comms, pair_comms) = init.create_comms(id)?;
        let thread = watchdog.start_thread();
        let thread =
            thread.map_err(|error| watchdog.fail("start of the watchdog", error.to_string()))?;
        let registrations =
            settings.registers.then(|| Arc::new(Registrations::new(Arc::clone(&watchdog))));
        // Memory is registered only if it can be deregistered in time.
        let registrations = registrations.filter(|registrations| {
            let observer: Arc<dyn FreeObserver> = Arc::clone(registrations) as _;
            device.observe_frees(Arc::downgrade(&observer))
        });
        let core = Core { library, device, allocator, watchdog, pair_comms, registrations };
        let (shape, core, thread) = (settings.shape, Arc::new(core), Some(thread));
        Ok(Arc::new(NcclEngine { shape, core, thread, comms }))
    }
}

impl Engine for NcclEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let comm = self.comms.get(&axes_of_several(&self.shape, member.axes())).copied();
        Arc::new(NcclGroup { core: Arc::clone(&self.core), member: Arc::clone(member), comm })
    }

    fn leave(&self, exit: &RankExit) {
        self.core.watchdog.leave(exit);
    }

    fn graph_pools(&self) -> Option<Vec<Arc<CachingAllocator>>> {
        Some(vec![Arc::clone(&self.core.allocator)])
    }

    fn replay(&self, calls: Option<String>, submit: &mut dyn FnMut()) -> Result<(), CommError> {
        let Core { watchdog, device, .. } = &*self.core;
        watchdog.release_captured();
        watchdog.check()?;
        submit();
        if let Some(calls) = calls {
            watchdog.watch_call(calls, device.mark(StreamKind::Compute), None);
        }
        Ok(())
    }
}

impl Drop for NcclEngine {
    fn drop(&mut self) {
        let Core { watchdog, library, registrations, .. } = &*self.core;
        // Submitted calls complete first, or fail.
        let _ = watchdog.wait_for_all();
        if let Some(registrations) = registrations {
            registrations.clear();
        }
        watchdog.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        watchdog.take_comms().into_iter().for_each(|comm| library.finalize_comm(comm));
    }
}

/// Returns those of `axes` with more than one rank.
pub(super) fn axes_of_several(shape: &MeshShape, axes: AxisSet) -> AxisSet {
    let has_several = |axis: &AxisId| shape.degree_of(AxisSet::of(*axis)) > 1;
    axes.iter().filter(has_several).fold(AxisSet::NONE, |all, axis| all.or(AxisSet::of(axis)))
}
