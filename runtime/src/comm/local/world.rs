//! All ranks of the process, their groups, and what one rank sees of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::comm::{CommError, Communicator, Departure, LaunchOptions};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::{Coordinates, MeshShape};

use super::communicator::LocalCommunicator;
use super::group::Group;
use super::roster::{Ending, Roster};

/// The mesh of one [`launch`](crate::comm::launch).
pub struct World {
    shape: MeshShape,
    roster: Arc<Roster>,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    /// By axes and first member.
    groups: HashMap<(AxisSet, usize), Arc<Group>>,
    /// By axes and world rank.
    seats: HashMap<(AxisSet, usize), Arc<LocalCommunicator>>,
    /// How ranks have ended, in the order in which they did.
    endings: Vec<(usize, Ending)>,
}

impl World {
    pub fn new(shape: MeshShape, options: &LaunchOptions) -> Arc<World> {
        let roster = Arc::new(Roster::new(shape.world_size(), options.timeout));
        let world = Arc::new(World { shape, roster, registry: Mutex::default() });
        let weak = Arc::downgrade(&world);
        world.roster.activity.on_deadlock(move || {
            if let Some(world) = weak.upgrade() {
                world.break_deadlock();
            }
        });
        world
    }

    pub fn comms(self: &Arc<Self>, rank: usize) -> RankComms {
        RankComms { world: Arc::clone(self), rank, coordinates: self.shape.coordinates(rank) }
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
        let (groups, seats) = {
            let mut registry = self.lock();
            registry.endings.push((rank, ending.clone()));
            let member = |group: &Arc<Group>| {
                let member = group.members.iter().position(|member| *member == rank)?;
                Some((Arc::clone(group), member))
            };
            let groups: Vec<_> = registry.groups.values().filter_map(member).collect();
            let own = registry.seats.iter().filter(|((_, owner), _)| *owner == rank);
            (groups, own.map(|(_, seat)| Arc::clone(seat)).collect::<Vec<_>>())
        };
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
        let Registry { groups, seats, endings } = &mut *registry;
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
            Arc::new(LocalCommunicator::new(Arc::clone(group), member))
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
}

impl RankComms {
    /// Rank 0 of a mesh on which no rank runs, to look at the mesh as a rank does. A collective would wait in vain.
    pub(crate) fn unattended(shape: MeshShape) -> RankComms {
        World::new(shape, &LaunchOptions::default()).comms(0)
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
        self.world.seat(self.rank, axes)
    }

    /// Payload bytes that the rank has sent so far, by the axes of the group it sent them in.
    pub fn bytes_by_axes(&self) -> BTreeMap<AxisSet, u64> {
        let registry = self.world.lock();
        let own = registry.seats.iter().filter(|((_, owner), _)| *owner == self.rank);
        own.map(|((axes, _), seat)| (*axes, seat.comm_bytes())).collect()
    }

    /// The rank's seat among all ranks; its members are world ranks.
    pub fn world(&self) -> Arc<dyn Communicator> {
        self.group(
            AxisId::ALL.into_iter().fold(AxisSet::NONE, |all, axis| all.or(AxisSet::of(axis))),
        )
    }
}
