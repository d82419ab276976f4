//! All communicators of one rank.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::{Buffer, Category, DType, Device, FreeObserver, MemoryMeter, Queue, ViewMut};
use crate::comm::account::Account;
use crate::comm::call::axes_name;
use crate::comm::local::Activity;
use crate::comm::own_thread::OwnThread;
use crate::comm::{CommError, CommStats, Communicator, Departure, Peers, ReduceOp, Site, Timeline};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::trace::Lane;

use super::api::{Comm, Id, Library, On, Transfer};
use super::communicator::NcclCommunicator;
use super::messages::Edges;
use super::registry::Registry;
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
    /// By what the rank hears of others that have ended.
    pub peers: Arc<dyn Peers>,
    /// Whether memory that collectives use again and again is made known to the library.
    pub registers: bool,
}

/// What the groups of a rank share.
pub(super) struct Core {
    pub library: Arc<dyn Library>,
    pub device: Arc<dyn Device>,
    /// Of what calls need aside.
    pub meter: Arc<MemoryMeter>,
    pub watch: Arc<Watch>,
    pub activity: Arc<Activity>,
    pub edges: Edges,
    /// None: the library is told of no memory.
    pub registry: Option<Arc<Registry>>,
}

/// The communicators of one rank. With it they end: calls that come later fail.
pub struct Engine {
    settings: Settings,
    core: Arc<Core>,
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
        let Settings { shape, rank, timeout, ref peers, registers } = settings;
        let peers = Arc::clone(peers);
        let watch = Watch::new(Arc::clone(&library), Arc::clone(&device), rank, timeout, peers);
        let meter = MemoryMeter::on(Some(Arc::clone(&device)), usize::MAX);
        let word = meter.zeros(DType::F32, 1, Category::Communication);
        let joiner =
            Joiner { shape, rank, library: &*library, watch: &watch, device: &*device, word };
        let (comms, edges) = joiner.join(id)?;
        let thread = watch.start();
        let thread =
            Some(thread.map_err(|error| watch.fail("start of the watch", error.to_string()))?);
        let activity = Arc::new(Activity::new(1));
        let registry = registers.then(|| Arc::new(Registry::new(Arc::clone(&watch))));
        // Memory is made known only where it can be given up in time.
        let registry = registry.filter(|registry| {
            let observer: Arc<dyn FreeObserver> = Arc::clone(registry) as _;
            device.observe_frees(Arc::downgrade(&observer))
        });
        let core = Core { library, device, meter, watch, activity, edges, registry };
        let core = Arc::new(core);
        let own_thread = Arc::new(OwnThread::new(Lane::off()));
        let seats = Mutex::default();
        Ok(Arc::new(Engine { settings, core, thread, comms, seats, own_thread }))
    }
}

impl Engine {
    /// A seat among the ranks that differ from this one along `axes` only, with an account of its own.
    fn seat(&self, axes: AxisSet) -> NcclCommunicator {
        let Settings { shape, rank, .. } = self.settings;
        let comm = self.comms.get(&spread(&shape, axes)).copied();
        let members = shape.group_of(rank, axes);
        let member = shape.index_in_group(rank, axes);
        let account = Arc::new(Account::new(Arc::clone(&self.own_thread)));
        NcclCommunicator::new(Arc::clone(&self.core), axes, members, member, comm, account)
    }
}

impl crate::comm::Engine for Engine {
    fn group(&self, axes: AxisSet) -> Arc<dyn Communicator> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = seats.entry(axes).or_insert_with(|| Arc::new(self.seat(axes)));
        Arc::clone(seat) as Arc<dyn Communicator>
    }

    fn trace(&self, timeline: &Arc<Timeline>) {
        // A rank is traced once, by one timeline.
        let _ = self.own_thread.timeline.set(Arc::clone(timeline));
    }

    fn stats(&self) -> Vec<(AxisSet, CommStats)> {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.iter().map(|(axes, seat)| (*axes, seat.stats())).collect()
    }

    fn leave(&self, departure: &Departure) {
        self.core.watch.leave(departure);
    }

    fn recordable(&self) -> Option<Arc<MemoryMeter>> {
        Some(Arc::clone(&self.core.meter))
    }

    fn agree(&self, yes: bool) -> Result<bool, CommError> {
        let mut no = [f32::from(u8::from(!yes))];
        let site = Site::new("recorded steps");
        self.seat(AxisSet::ALL).all_reduce(&site, ReduceOp::Max, ViewMut::from(&mut no[..]))?;
        Ok(no[0] == 0.0)
    }

    fn replay(
        &self,
        what: &str,
        added: &BTreeMap<AxisSet, CommStats>,
        submit: &mut dyn FnMut(),
    ) -> Result<(), CommError> {
        let Core { watch, device, .. } = &*self.core;
        watch.recorded();
        watch.check()?;
        submit();
        if added.is_empty() {
            return Ok(());
        }
        let axes: Vec<String> = added.keys().map(|axes| axes_name(*axes)).collect();
        let call = format!("{what}, with its recorded calls over {}", axes.join(", over "));
        watch.queued(call, device.mark(Queue::Compute), None);
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        for (axes, recorded) in added {
            if let Some(seat) = seats.get(axes) {
                seat.account.count_again(recorded);
            }
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Core { watch, library, registry, .. } = &*self.core;
        // What was queued ends first, or fails.
        let _ = watch.wait_for_all();
        if let Some(registry) = registry {
            registry.clear();
        }
        watch.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        watch.take_comms().into_iter().for_each(|comm| library.finish(comm));
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
    device: &'a dyn Device,
    /// What the first messages carry.
    word: Buffer,
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
            let comm = self.split(all, color, key, pipeline)?;
            comm.map_or(Ok(()), |comm| self.connect(comm, key == 0))?;
            Ok(comm)
        })?;
        Ok((comms, edges))
    }

    /// Sends a first message, for which the library connects the two ranks: the host waits for that, and later messages,
    /// which may cross each other, must not make it wait.
    fn connect(&self, comm: Comm, is_sender: bool) -> Result<(), CommError> {
        let call = "connecting neighbours along pp";
        let queue = Queue::Communication(AxisSet::of(AxisId::Pp).number());
        self.device.wait_for(queue, &self.device.mark(Queue::Compute));
        let (on, word) = (On { comm, stream: self.device.handle(queue) }, &self.word.view());
        let address = word.address() as u64;
        let transfer = match is_sender {
            true => Transfer::Send { src: address, count: 1, to: 1 },
            false => Transfer::Recv { dst: address, count: 1, from: 0 },
        };
        let send = || {
            self.library.begin_group()?;
            // SAFETY: the word is a live element, which only this queue uses; it is waited for below.
            unsafe { self.library.queue(on, word.dtype(), &transfer)? };
            self.library.end_group()
        };
        send().map_err(|error| self.watch.fail(call, error.to_string()))?;
        self.watch.settle(comm, call)?;
        let end = self.device.mark(queue);
        self.watch.queued(call.into(), end.clone(), None);
        self.device.wait_for(Queue::Compute, &end);
        Ok(())
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
        let mut keep_waiting =
            || start.elapsed() < self.watch.timeout() && self.watch.check_peers(&call).is_ok();
        let comm = self.library.split(all, color, key, &mut keep_waiting);
        self.watch.check()?;
        let comm = comm.map_err(|error| self.watch.fail(&call, error.to_string()))?;
        if let Some(comm) = comm {
            self.watch.add(comm);
            self.watch.settle(comm, &call)?;
        }
        Ok(comm)
    }
}
