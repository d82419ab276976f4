//! The NCCL engine of one rank.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::group_member::axes_of_several;
use crate::{CommError, Engine, GroupMember, ProcessGroup, RankExit};
use meshwright_backend::{CachingAllocator, Device, FreeObserver, StreamKind};
use meshwright_mesh::AxisSet;
use meshwright_mesh::MeshShape;

use super::api::{Comm, Id, Library};
use super::capture_order::CaptureOrder;
use super::group::NcclGroup;
use super::init::{CommInit, create_unexpected};
use super::rank_resources::RankResources;
use super::registration::Registrations;
use super::scratch::Scratch;
use super::settings::{ExpectedGroups, NcclSettings};
use super::watchdog::Watchdog;

/// The NCCL engine of one rank. Dropping it finalizes the communicators: later calls fail.
pub struct NcclEngine {
    shape: MeshShape,
    resources: Arc<RankResources>,
    thread: Option<JoinHandle<()>>,
    /// Communicators by axes with more than one rank.
    comms: BTreeMap<AxisSet, Comm>,
    /// The groups of `comms`; `None` if these are all.
    expected: Option<ExpectedGroups>,
}

impl NcclEngine {
    /// Creates the communicators of a rank on `device`. Every rank of the mesh calls it with the same `id`, and waits
    /// for the others.
    ///
    /// # Errors
    /// If the rendezvous of the ranks times out, and errors of the library.
    pub fn new(
        settings: NcclSettings,
        library: Arc<dyn Library>,
        device: Arc<dyn Device>,
        id: &Id,
    ) -> Result<Arc<NcclEngine>, CommError> {
        let allocator = CachingAllocator::on(Some(Arc::clone(&device)), usize::MAX);
        let watchdog = Watchdog::new(Arc::clone(&library), Arc::clone(&device), &settings);
        let init = CommInit::new(&settings, &*library, &watchdog, &*device, &allocator);
        let (comms, message_comms) = init.create_comms(id)?;
        let thread = watchdog.start_thread();
        let thread = thread
            .map_err(|error| watchdog.report_failure("start of the watchdog", error.to_string()))?;
        let registrations =
            settings.registers.then(|| Arc::new(Registrations::new(Arc::clone(&watchdog))));
        // Memory is registered only if it can be deregistered in time.
        let registrations = registrations.filter(|registrations| {
            let observer: Arc<dyn FreeObserver> = Arc::clone(registrations) as _;
            device.observe_frees(Arc::downgrade(&observer))
        });
        let resources = RankResources {
            library,
            device,
            own_allocator: allocator,
            rank_allocator: OnceLock::new(),
            scratch: Scratch::default(),
            watchdog,
            message_comms,
            capture_order: CaptureOrder::default(),
            registrations,
        };
        let (shape, resources, expected) = (settings.shape, Arc::new(resources), settings.expected);
        Ok(Arc::new(NcclEngine { shape, resources, thread: Some(thread), comms, expected }))
    }

    /// Returns the communicator of a group with several ranks. After a failure, which the watchdog keeps, there is
    /// none.
    fn comm_of(&self, member: &GroupMember) -> Option<Comm> {
        let axes = axes_of_several(&self.shape, member.axes());
        if axes.is_empty() {
            return None;
        }
        self.comms.get(&axes).copied().or_else(|| {
            let RankResources { library, watchdog, .. } = &*self.resources;
            let members = (member.world_ranks(), member.group_rank());
            create_unexpected(self.expected.as_ref()?, (&**library, watchdog), axes, members).ok()
        })
    }
}

impl Engine for NcclEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        Arc::new(NcclGroup {
            resources: Arc::clone(&self.resources),
            member: Arc::clone(member),
            comm: self.comm_of(member),
        })
    }

    fn leave(&self, exit: &RankExit) {
        self.resources.watchdog.leave(exit);
    }

    fn extend_time_limit(&self, waits_for_files: bool) {
        self.resources.watchdog.extend_timeout(waits_for_files);
    }

    fn use_allocator(&self, allocator: &Arc<CachingAllocator>) {
        // The rank of a CPU backend has no memory of the device.
        if allocator.device().is_some() {
            // A second context of the rank does not change the accounting of the first.
            let _ = self.resources.rank_allocator.set(Arc::clone(allocator));
        }
    }

    fn graph_pools(&self) -> Option<Vec<Arc<CachingAllocator>>> {
        let RankResources { rank_allocator, own_allocator, .. } = &*self.resources;
        let own = rank_allocator.get().is_none().then(|| Arc::clone(own_allocator));
        Some(own.into_iter().collect())
    }

    fn replay(&self, calls: Option<String>, submit: &mut dyn FnMut()) -> Result<(), CommError> {
        let RankResources { watchdog, device, .. } = &*self.resources;
        watchdog.check_failure()?;
        submit();
        if let Some(calls) = calls {
            watchdog.watch_call(calls, device.mark_stream(StreamKind::Compute), None);
        }
        Ok(())
    }
}

impl Drop for NcclEngine {
    fn drop(&mut self) {
        let RankResources { watchdog, library, registrations, .. } = &*self.resources;
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
        watchdog.wait_for_aborts();
    }
}
