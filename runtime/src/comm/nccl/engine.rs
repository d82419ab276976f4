//! All communicators of one rank.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::{Device, MemoryMeter};
use crate::comm::account::Account;
use crate::comm::local::Activity;
use crate::comm::own_thread::OwnThread;
use crate::comm::{CommError, Communicator};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::trace::Lane;

use super::api::{Comm, Id, Library};
use super::communicator::NcclCommunicator;
use super::messages::Edges;
use super::watch::Watch;

/// What an engine is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The mesh.
    pub shape: MeshShape,
    /// This rank.
    pub rank: usize,
    /// How long the ranks wait for each other, and a call may take.
    pub timeout: Duration,
}

/// The communicators of one rank.
pub struct Engine {
    settings: Settings,
    pub(super) library: Arc<dyn Library>,
    pub(super) device: Arc<dyn Device>,
    /// Of what calls need aside.
    pub(super) meter: Arc<MemoryMeter>,
    pub(super) watch: Arc<Watch>,
    pub(super) activity: Arc<Activity>,
    pub(super) edges: Edges,
    thread: Option<JoinHandle<()>>,
    /// By those axes that have more than one rank.
    comms: BTreeMap<AxisSet, Comm>,
    seats: Mutex<HashMap<AxisSet, Arc<NcclCommunicator>>>,
    own_thread: Arc<OwnThread>,
}

impl Engine {
    /// Makes the communicators of a rank on `device`; every rank of the mesh does so with the same `id`, and waits for the
    /// others.
    ///
    /// # Errors
    /// Where the ranks do not come together in time, and what the library reports.
    pub fn new(
        settings: Settings,
        library: Arc<dyn Library>,
        device: Arc<dyn Device>,
        id: &Id,
    ) -> Result<Arc<Engine>, CommError> {
        let Settings { shape, rank, timeout } = settings;
        let watch = Watch::new(Arc::clone(&library), Arc::clone(&device), rank, timeout);
        let joiner = Joiner { shape, rank, library: &*library, watch: &watch };
        let (comms, edges) = joiner.join(id)?;
        let thread = watch.start();
        let thread =
            Some(thread.map_err(|error| watch.fail("start of the watch", error.to_string()))?);
        let meter = MemoryMeter::on(Some(Arc::clone(&device)), usize::MAX);
        let activity = Arc::new(Activity::new(1));
        let own_thread = Arc::new(OwnThread::new(Lane::off()));
        let seats = Mutex::default();
        Ok(Arc::new(Engine {
            settings,
            library,
            device,
            meter,
            watch,
            activity,
            edges,
            thread,
            comms,
            seats,
            own_thread,
        }))
    }

    /// The rank's seat among the ranks that differ from it along `axes` only.
    pub fn group(self: &Arc<Self>, axes: AxisSet) -> Arc<dyn Communicator> {
        let make = || {
            let Settings { shape, rank, .. } = self.settings;
            let comm = self.comms.get(&spread(&shape, axes)).copied();
            let members = shape.group_of(rank, axes);
            let member = shape.index_in_group(rank, axes);
            let account = Arc::new(Account::new(Arc::clone(&self.own_thread)));
            Arc::new(NcclCommunicator::new(Arc::clone(self), axes, members, member, comm, account))
        };
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(seats.entry(axes).or_insert_with(make)) as Arc<dyn Communicator>
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.watch.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        self.watch.take_comms().into_iter().for_each(|comm| self.library.finish(comm));
    }
}

/// Those of `axes` along which there is more than one rank.
fn spread(shape: &MeshShape, axes: AxisSet) -> AxisSet {
    let several = axes.iter().filter(|axis| shape.degree_of(AxisSet::of(*axis)) > 1);
    several.fold(AxisSet::NONE, |all, axis| all.or(AxisSet::of(axis)))
}

/// A rank that makes its communicators.
struct Joiner<'a> {
    shape: MeshShape,
    rank: usize,
    library: &'a dyn Library,
    watch: &'a Watch,
}

impl Joiner<'_> {
    fn join(&self, id: &Id) -> Result<(BTreeMap<AxisSet, Comm>, Edges), CommError> {
        let ranks = self.shape.world_size();
        let mut comms = BTreeMap::new();
        if ranks == 1 {
            return Ok((comms, Edges::default()));
        }
        let call = "making the communicator of all ranks";
        let begun = self.library.begin(id, ranks, self.rank);
        let all = begun.map_err(|error| self.watch.fail(call, error.to_string()))?;
        self.watch.add(all);
        self.watch.settle(all, call)?;
        let world = spread(&self.shape, AxisSet::ALL);
        comms.insert(world, all);
        // In the order of their numbers, which is the same on all ranks.
        let axes: Vec<AxisId> = world.iter().collect();
        for choice in 1..(1usize << axes.len()) - 1 {
            let chosen = axes.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1);
            let set = chosen.fold(AxisSet::NONE, |set, (_, axis)| set.or(AxisSet::of(*axis)));
            let color = self.shape.group_of(self.rank, set)[0];
            let key = self.shape.index_in_group(self.rank, set);
            if let Some(comm) = self.split(all, Some(color), key, set)? {
                comms.insert(set, comm);
            }
        }
        let pipeline = AxisSet::of(AxisId::Pp);
        let members = self.shape.group_of(self.rank, pipeline);
        let member = self.shape.index_in_group(self.rank, pipeline);
        let edges = Edges::make(members.len(), member, |color, key| {
            // A color of its own for each pair of each group.
            let color = color.map(|pair| members[0] * members.len() + pair);
            self.split(all, color, key, pipeline)
        })?;
        Ok((comms, edges))
    }

    fn split(
        &self,
        all: Comm,
        color: Option<usize>,
        key: usize,
        axes: AxisSet,
    ) -> Result<Option<Comm>, CommError> {
        let call = format!("making the communicators over {axes}");
        let start = Instant::now();
        let mut keep_waiting = || start.elapsed() < self.watch.timeout();
        let comm = self.library.split(all, color, key, &mut keep_waiting);
        let comm = comm.map_err(|error| self.watch.fail(&call, error.to_string()))?;
        if let Some(comm) = comm {
            self.watch.add(comm);
            self.watch.settle(comm, &call)?;
        }
        Ok(comm)
    }
}
