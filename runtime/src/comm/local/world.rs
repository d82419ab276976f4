//! All ranks of the process, their groups, and what one rank sees of them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::backend::{Device, MemoryMeter};
use crate::comm::account::Account;
use crate::comm::own_thread::OwnThread;
use crate::comm::{
    CommError, CommStats, CommTimes, Communicator, Departure, Engine, LaunchOptions, Peers,
    Timeline,
};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::{Coordinates, MeshShape};
use crate::trace::{self, Lane, Tracer};

use super::communicator::LocalCommunicator;
use super::group::Group;
use super::roster::{Ending, Roster};

/// The mesh of one [`launch`](crate::comm::launch).
pub struct World {
    shape: MeshShape,
    roster: Arc<Roster>,
    tracer: Option<Arc<Tracer>>,
    own_threads: Vec<Arc<OwnThread>>,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    /// By axes and first member.
    groups: HashMap<(AxisSet, usize), Arc<Group>>,
    /// By axes and world rank.
    seats: HashMap<(AxisSet, usize), Arc<LocalCommunicator>>,
    /// What carries out the collectives of a rank, if not this engine.
    engines: HashMap<usize, Arc<dyn Engine>>,
    /// How ranks have ended, in the order in which they did.
    endings: Vec<(usize, Ending)>,
}

impl World {
    pub fn new(shape: MeshShape, options: &LaunchOptions) -> Arc<World> {
        let roster = Arc::new(Roster::new(shape.world_size(), options.timeout));
        let tracer = options.tracer.clone();
        let own_thread = |rank| {
            let lane = tracer.as_ref().map_or(Lane::off(), |t| t.lane(rank, trace::COMPUTE));
            Arc::new(OwnThread::new(lane))
        };
        let own_threads = (0..shape.world_size()).map(own_thread).collect();
        let registry = Mutex::default();
        let world = Arc::new(World { shape, roster, tracer, own_threads, registry });
        let weak = Arc::downgrade(&world);
        world.roster.activity.on_deadlock(move || {
            if let Some(world) = weak.upgrade() {
                world.break_deadlock();
            }
        });
        world
    }

    pub fn comms(self: &Arc<Self>, rank: usize) -> RankComms {
        let coordinates = self.shape.coordinates(rank);
        RankComms { world: Arc::clone(self), rank, coordinates, engine: None }
    }

    /// Another rank's end, if `rank` was stopped by it.
    pub fn stopped_by(&self, rank: usize) -> Option<usize> {
        self.roster.stopped_by(rank).map(|ending| ending.rank)
    }

    /// Position of `rank` in the order in which the ranks ended.
    pub fn end_order(&self, rank: usize) -> usize {
        let registry = self.lock();
        registry.endings.iter().position(|(ended, _)| *ended == rank).unwrap_or(usize::MAX)
    }

    /// The end of `rank`: whoever waits for it, or will, gets an error. Asynchronous calls that it has issued are
    /// carried out first if it returned, and abandoned if it failed.
    pub fn leave(&self, rank: usize, departure: Departure) {
        let returned = departure == Departure::Returned;
        let ending = match self.roster.stopped_by(rank) {
            Some(cause) if !returned => cause,
            _ => Ending { rank, departure },
        };
        let (groups, seats, engine) = {
            let mut registry = self.lock();
            registry.endings.push((rank, ending.clone()));
            let engine = registry.engines.remove(&rank);
            let member = |group: &Arc<Group>| {
                let member = group.members.iter().position(|member| *member == rank)?;
                Some((Arc::clone(group), member))
            };
            let groups: Vec<_> = registry.groups.values().filter_map(member).collect();
            let own = registry.seats.iter().filter(|((_, owner), _)| *owner == rank);
            (groups, own.map(|(_, seat)| Arc::clone(seat)).collect::<Vec<_>>(), engine)
        };
        if let Some(engine) = engine {
            engine.leave(&ending.departure);
        }
        for (group, member) in &groups {
            group.leave_calls(*member, &ending);
            if !returned {
                group.leave_started(*member, &ending);
            }
        }
        seats.iter().for_each(|seat| seat.close());
        for (group, member) in &groups {
            group.leave_started(*member, &ending);
        }
        if self.roster.activity.less() {
            self.roster.activity.deadlock();
        }
    }

    /// Every rank waits for another one: all of them get the error that says so.
    fn break_deadlock(&self) {
        let (groups, waiting) = {
            let registry = self.lock();
            let has_ended = |rank: &usize| registry.endings.iter().any(|(ended, _)| ended == rank);
            let waiting = (0..self.shape.world_size()).filter(|rank| !has_ended(rank));
            let groups: Vec<_> = registry.groups.values().map(Arc::clone).collect();
            (groups, waiting.collect::<Vec<_>>())
        };
        // The last rank to end leaves nobody behind.
        if waiting.is_empty() {
            return;
        }
        let calls = waiting.iter().map(|rank| format!("  {}\n", self.roster.last_call(*rank)));
        let error = CommError::Deadlock { calls: calls.collect() };
        // First all, then wake: nobody is to end before the others can see why.
        groups.iter().for_each(|group| group.condemn(&error));
        groups.iter().for_each(|group| group.wake());
    }

    fn seat(&self, rank: usize, axes: AxisSet) -> Arc<LocalCommunicator> {
        let mut registry = self.lock();
        let Registry { groups, seats, endings, .. } = &mut *registry;
        let make = || {
            let members = self.shape.group_of(rank, axes);
            let member = self.shape.index_in_group(rank, axes);
            let group = groups.entry((axes, members[0])).or_insert_with(|| {
                let ending = |rank: &usize| {
                    endings.iter().find(|(ended, _)| ended == rank).map(|(_, end)| end.clone())
                };
                let endings = members.iter().map(ending).collect();
                Arc::new(Group::new(axes, members, Arc::clone(&self.roster), endings))
            });
            let own_thread = Arc::clone(&self.own_threads[rank]);
            let account = match &self.tracer {
                Some(tracer) => Account::traced(own_thread, tracer, rank, axes),
                None => Account::new(own_thread),
            };
            Arc::new(LocalCommunicator::new(Arc::clone(group), member, account))
        };
        Arc::clone(seats.entry((axes, rank)).or_insert_with(make))
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One rank's view of the mesh: where it lies, and its communicators.
pub struct RankComms {
    world: Arc<World>,
    rank: usize,
    coordinates: Coordinates,
    /// What carries out the collectives, if not this engine.
    engine: Option<Arc<dyn Engine>>,
}

impl RankComms {
    /// The last rank of a mesh on which no rank runs, to look at the mesh as a rank does: what does not divide evenly,
    /// it has most of. A collective would wait in vain.
    pub(crate) fn unattended(shape: MeshShape) -> RankComms {
        World::new(shape, &LaunchOptions::default()).comms(shape.world_size() - 1)
    }

    /// The same rank, whose collectives `engine` carries out. Its end is still made known to the ranks of this process.
    pub fn over(self, engine: Arc<dyn Engine>) -> RankComms {
        self.world.lock().engines.insert(self.rank, Arc::clone(&engine));
        RankComms { engine: Some(engine), ..self }
    }

    /// The other ranks of this process, for an engine that carries out their collectives.
    pub fn peers(&self) -> Arc<dyn Peers> {
        Arc::new(ThreadPeers { world: Arc::downgrade(&self.world), rank: self.rank })
    }

    /// The world rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The mesh.
    pub fn shape(&self) -> &MeshShape {
        &self.world.shape
    }

    /// Where the rank lies on the mesh.
    pub fn coordinates(&self) -> &Coordinates {
        &self.coordinates
    }

    /// The rank's seat among the ranks that differ from it along `axes` only. Every call with the same axes gives
    /// the same seat; different sets of axes give independent groups, also where their ranks are the same.
    pub fn group(&self, axes: AxisSet) -> Arc<dyn Communicator> {
        match &self.engine {
            Some(engine) => engine.group(axes),
            None => self.world.seat(self.rank, axes),
        }
    }

    /// Draws what the queues of the rank's device do from now on, where a trace is recorded.
    pub(crate) fn trace_device(&self, device: Arc<dyn Device>) -> Option<Arc<Timeline>> {
        let tracer = Arc::clone(self.world.tracer.as_ref()?);
        let timeline = Timeline::new(device, tracer, self.rank);
        // A rank is traced once, by one timeline.
        let _ = self.world.own_threads[self.rank].timeline.set(Arc::clone(&timeline));
        if let Some(engine) = &self.engine {
            engine.trace(&timeline);
        }
        Some(timeline)
    }

    /// The lane of the trace on which the rank's own thread shows what it does. The engine adds the waits.
    pub fn lane(&self) -> &Lane {
        &self.world.own_threads[self.rank].lane
    }

    /// Payload bytes that the rank has sent so far, by the axes of the group it sent them in.
    pub fn bytes_by_axes(&self) -> BTreeMap<AxisSet, u64> {
        self.stats_by_axes().map(|(axes, stats)| (axes, stats.bytes)).collect()
    }

    /// Time that communication has taken so far, exposed and hidden, by the axes of the group.
    pub fn times_by_axes(&self) -> BTreeMap<AxisSet, CommTimes> {
        self.stats_by_axes().map(|(axes, stats)| (axes, stats.times)).collect()
    }

    /// What the rank has done so far, by the axes of the group.
    pub(crate) fn stats(&self) -> BTreeMap<AxisSet, CommStats> {
        self.stats_by_axes().collect()
    }

    /// Where what a device does for the rank can be recorded, with its collectives: what counts the memory that those need
    /// beside their operands. Ranks that meet on the host cannot be recorded, and what is traced is not.
    pub(crate) fn recordable(&self) -> Option<Vec<Arc<MemoryMeter>>> {
        match &self.engine {
            _ if self.lane().is_on() => None,
            Some(engine) => engine.recordable().map(|meter| vec![meter]),
            None => (self.shape().world_size() == 1).then(Vec::new),
        }
    }

    /// Whether all ranks whose collectives can be [recorded](Self::recordable) say yes.
    pub(crate) fn agree(&self, yes: bool) -> Result<bool, CommError> {
        self.engine.as_ref().map_or(Ok(yes), |engine| engine.agree(yes))
    }

    /// Lets `submit` queue what was recorded once more; of collectives, it has `added` this to the [statistics](Self::stats)
    /// then.
    pub(crate) fn replay(
        &self,
        what: &str,
        added: &BTreeMap<AxisSet, CommStats>,
        submit: &mut dyn FnMut(),
    ) -> Result<(), CommError> {
        match &self.engine {
            Some(engine) => engine.replay(what, added, submit),
            None => {
                submit();
                Ok(())
            }
        }
    }

    fn stats_by_axes(&self) -> impl Iterator<Item = (AxisSet, CommStats)> {
        if let Some(engine) = &self.engine {
            return engine.stats().into_iter();
        }
        let registry = self.world.lock();
        let own = registry.seats.iter().filter(|((_, owner), _)| *owner == self.rank);
        let stats: Vec<_> = own.map(|((axes, _), seat)| (*axes, seat.stats())).collect();
        stats.into_iter()
    }

    /// The rank's seat among all ranks; its members are world ranks.
    pub fn world(&self) -> Arc<dyn Communicator> {
        self.group(
            AxisId::ALL.into_iter().fold(AxisSet::NONE, |all, axis| all.or(AxisSet::of(axis))),
        )
    }
}

/// What a rank hears of the other ranks of its process.
struct ThreadPeers {
    world: Weak<World>,
    rank: usize,
}

impl Peers for ThreadPeers {
    fn lost(&self) -> Option<(usize, Departure)> {
        let world = self.world.upgrade()?;
        let registry = world.lock();
        let mut endings = registry.endings.iter().map(|(_, ending)| ending);
        let is_lost =
            |ending: &&Ending| ending.rank != self.rank && ending.departure != Departure::Returned;
        endings.find(is_lost).map(|ending| (ending.rank, ending.departure.clone()))
    }

    /// Whoever runs the ranks of a process notes their ends.
    fn leave(&self, _: &Departure) {}
}

impl fmt::Debug for ThreadPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peers of rank {}", self.rank)
    }
}
