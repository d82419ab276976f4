//! One rank's communicators and position in the mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::trace::Lane;
use meshwright_backend::{CachingAllocator, Device, ReduceOp, ViewMut};
use meshwright_mesh::AxisSet;
use meshwright_mesh::{Coordinates, MeshShape};

use super::accounting::Accounting;
use super::call::axes_name;
use super::call_observer::CallObserver;
use super::dry_run::DryRunEngine;
use super::observed::ObservedEngine;
use super::process_ranks::ProcessRanks;
use super::{
    CommError, CommStats, CommTimes, Communicator, Engine, GroupMember, LaunchOptions, Peers,
    RankProgress, Site, Timeline,
};

/// One rank's communicators and position in the mesh.
pub struct RankComms {
    process_ranks: Arc<ProcessRanks>,
    rank: usize,
    coordinates: Coordinates,
    engine: Arc<dyn Engine>,
    /// Number of [guards](ExtendedTimeLimit) that exist.
    extensions: AtomicUsize,
    /// Created at their first use.
    groups: Mutex<BTreeMap<AxisSet, Arc<Communicator>>>,
    /// Created at its first use.
    uncounted_world: OnceLock<Arc<Communicator>>,
    expected_groups: Option<BTreeSet<AxisSet>>,
}

/// Guard of an extended time limit: see [`RankComms::extend_time_limit`].
pub struct ExtendedTimeLimit<'a>(&'a RankComms);

impl Drop for ExtendedTimeLimit<'_> {
    fn drop(&mut self) {
        if self.0.extensions.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.engine.extend_time_limit(false);
        }
    }
}

impl RankComms {
    /// Creates the communicators of `rank` over the engine `local`.
    pub(super) fn new(process_ranks: &Arc<ProcessRanks>, rank: usize) -> RankComms {
        let (process_ranks, coordinates) =
            (Arc::clone(process_ranks), process_ranks.shape().coordinates(rank));
        let engine = process_ranks.local_engine(rank);
        RankComms {
            process_ranks,
            rank,
            coordinates,
            engine,
            extensions: AtomicUsize::new(0),
            groups: Mutex::default(),
            uncounted_world: OnceLock::new(),
            expected_groups: None,
        }
    }

    /// Creates the communicators of a rank that was not started by [`launch`](super::launch), over `engine`.
    pub fn with_engine(shape: MeshShape, rank: usize, engine: Arc<dyn Engine>) -> RankComms {
        RankComms::new(&ProcessRanks::new(shape, &LaunchOptions::default()), rank).over(engine)
    }

    /// Creates the last rank of a mesh, without the other ranks, for a [dry run](Self::over_nothing). This rank has the
    /// largest part of dims that do not divide evenly.
    #[doc(hidden)]
    pub fn unattended(shape: MeshShape) -> RankComms {
        RankComms::with_engine(shape, shape.world_size() - 1, Arc::new(DryRunEngine::default()))
    }

    /// Replaces the engine of this rank by one for dry runs: every call is complete immediately, as if the other ranks
    /// had passed the values of this one. With `groups_messages` it [groups messages](Communicator::groups_messages).
    #[doc(hidden)]
    pub fn over_nothing(self, groups_messages: bool) -> RankComms {
        self.over(Arc::new(DryRunEngine { groups_messages }))
    }

    /// Passes all calls of this rank to `observer` first.
    #[doc(hidden)]
    pub fn observed_by(self, observer: Arc<dyn CallObserver>) -> RankComms {
        // A rank is observed once.
        let _ = self.process_ranks.clock(self.rank).observer.set(Arc::clone(&observer));
        let engine = ObservedEngine::new(Arc::clone(&self.engine), observer);
        self.over(Arc::new(engine))
    }

    /// Replaces the engine of this rank. The failure of the rank is still reported to the ranks of this process.
    pub fn over(self, engine: Arc<dyn Engine>) -> RankComms {
        self.process_ranks.add_engine(self.rank, &engine);
        RankComms { engine, groups: Mutex::default(), uncounted_world: OnceLock::new(), ..self }
    }

    /// Sets the process groups that the run is known to use, if it is; the same on all ranks. An engine
    /// [over](Self::over) this one may prepare them.
    #[doc(hidden)]
    #[must_use]
    pub fn expecting(self, expected_groups: Option<BTreeSet<AxisSet>>) -> RankComms {
        RankComms { expected_groups, ..self }
    }

    /// The process groups that the run is known to use, by axes; `None` if it may use any.
    pub fn expected_groups(&self) -> Option<&BTreeSet<AxisSet>> {
        self.expected_groups.as_ref()
    }

    /// Returns the axes of the process groups that were used so far.
    #[doc(hidden)]
    pub fn used_groups(&self) -> BTreeSet<AxisSet> {
        self.lock_groups().keys().copied().collect()
    }

    /// The engine of this rank, for an engine [over](Self::over) it.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Failure detection among the ranks of this process, for an engine.
    pub fn peers(&self) -> Arc<dyn Peers> {
        self.process_ranks.peers(self.rank)
    }

    /// Checks that no other rank has failed, while this one waits for something else than a call, which `wait`
    /// describes. `peers` detects failures in other processes, if the other ranks are in them.
    ///
    /// # Errors
    /// The end of the rank that has failed.
    #[doc(hidden)]
    pub fn check_peers(&self, peers: Option<&dyn Peers>, wait: &str) -> Result<(), CommError> {
        let failed = peers.map_or_else(|| self.peers().failed_peer(), Peers::failed_peer);
        let Some((rank, exit)) = failed else { return Ok(()) };
        Err(self.process_ranks.stop_wait(self.rank, (rank, exit), wait))
    }

    /// Extends the time limit of this rank's calls to [`FILE_TIME_LIMIT`](super::FILE_TIME_LIMIT) until the guard is
    /// dropped, for ranks that wait while another one reads or writes files: its file system may be slow. A rank that
    /// fails or is lost still ends the calls of the others, and so does a deadlock. Every rank that waits extends its
    /// own limit.
    #[must_use = "the limit is restored when the guard is dropped"]
    pub fn extend_time_limit(&self) -> ExtendedTimeLimit<'_> {
        if self.extensions.fetch_add(1, Ordering::Relaxed) == 0 {
            self.engine.extend_time_limit(true);
        }
        ExtendedTimeLimit(self)
    }

    /// The world rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The mesh.
    pub fn shape(&self) -> &MeshShape {
        self.process_ranks.shape()
    }

    /// Coordinates of the rank in the mesh.
    pub fn coordinates(&self) -> &Coordinates {
        &self.coordinates
    }

    /// Returns the communicator with the ranks that differ from this one along `axes` only. Every call with the same
    /// axes returns the same communicator; different sets of axes are independent groups, even if their ranks are the
    /// same.
    pub fn group(&self, axes: AxisSet) -> Arc<Communicator> {
        let mut groups = self.lock_groups();
        let group = groups.entry(axes).or_insert_with(|| {
            Arc::new(self.communicator(axes, self.process_ranks.accounting(self.rank, axes)))
        });
        Arc::clone(group)
    }

    /// Returns the communicator with all ranks. Its group ranks are world ranks only in the default order of the axes:
    /// see [`MeshShape::group_of`].
    pub fn world(&self) -> Arc<Communicator> {
        self.group(AxisSet::ALL)
    }

    /// Returns the communicator with all ranks whose calls are not counted in [`stats`](Self::stats), for checks that
    /// are not part of training. Every call returns the same one: the engine keeps the process group of each until the
    /// rank leaves.
    #[doc(hidden)]
    pub fn uncounted_world(&self) -> Arc<Communicator> {
        let create = || {
            let uncounted = Accounting::new(Arc::clone(self.process_ranks.clock(self.rank)));
            Arc::new(self.communicator(AxisSet::ALL, uncounted))
        };
        Arc::clone(self.uncounted_world.get_or_init(create))
    }

    /// Notes that the rank begins a step, from 1, for messages about its progress.
    #[doc(hidden)]
    pub fn begin_step(&self, step: u64) {
        self.process_ranks.clock(self.rank).recorder.begin_step(step);
    }

    /// Returns a function that reads the progress of this rank, from any thread.
    pub fn progress_reader(&self) -> impl Fn() -> RankProgress + Send + Sync + use<> {
        let clock = Arc::clone(self.process_ranks.clock(self.rank));
        move || clock.recorder.progress(clock.is_communicating())
    }

    /// The trace lane of the rank's main thread. Communicators add their waits to it.
    pub fn lane(&self) -> &Lane {
        &self.process_ranks.clock(self.rank).lane
    }

    /// Traces the streams of the rank's device from now on, if tracing is on.
    #[doc(hidden)]
    pub fn trace_device(&self, device: Arc<dyn Device>) -> Option<Arc<Timeline>> {
        let timeline = self.process_ranks.timeline(self.rank, device)?;
        // A rank is traced once, by one timeline.
        let _ = self.process_ranks.clock(self.rank).timeline.set(Arc::clone(&timeline));
        Some(timeline)
    }

    /// Payload bytes that the rank has sent so far, by the axes of the group.
    pub fn bytes_by_axes(&self) -> BTreeMap<AxisSet, u64> {
        self.stats().into_iter().map(|(axes, stats)| (axes, stats.bytes)).collect()
    }

    /// Communication times so far, exposed and overlapped, by the axes of the group.
    pub fn times_by_axes(&self) -> BTreeMap<AxisSet, CommTimes> {
        self.stats().into_iter().map(|(axes, stats)| (axes, stats.times)).collect()
    }

    /// Statistics of the rank so far, by the axes of the group.
    pub fn stats(&self) -> BTreeMap<AxisSet, CommStats> {
        self.lock_groups().iter().map(|(axes, group)| (*axes, group.stats())).collect()
    }

    /// Passes the allocator of this rank to its engine.
    #[doc(hidden)]
    pub fn use_allocator(&self, allocator: &Arc<CachingAllocator>) {
        self.engine.use_allocator(allocator);
    }

    /// Returns the memory pools that CUDA graphs of this rank have to keep for its collectives, besides that of its
    /// allocator. `None` if they cannot be captured, or tracing is on.
    #[doc(hidden)]
    pub fn graph_pools(&self) -> Option<Vec<Arc<CachingAllocator>>> {
        if self.lane().is_enabled() { None } else { self.engine.graph_pools() }
    }

    /// Returns `true` if `vote` is `true` on all ranks whose collectives can be [captured](Self::graph_pools). It is
    /// not counted in [`stats`](Self::stats), and the host waits for it.
    #[doc(hidden)]
    pub fn all_agree(&self, vote: bool) -> Result<bool, CommError> {
        if self.shape().world_size() == 1 || self.engine.graph_pools().is_none() {
            return Ok(vote);
        }
        let mut rejections = [f32::from(u8::from(!vote))];
        let data = ViewMut::from(&mut rejections[..]);
        let site = Site::new("CUDA graphs");
        self.uncounted_world().all_reduce(&site, ReduceOp::Max, data)?;
        Ok(rejections[0] == 0.0)
    }

    /// Replays the CUDA graph `name` by `submit`. Its collectives count as `captured` in the [statistics](Self::stats).
    ///
    /// # Errors
    /// If no call can be issued any more.
    pub fn replay(
        &self,
        name: &str,
        captured: &BTreeMap<AxisSet, CommStats>,
        submit: &mut dyn FnMut(),
    ) -> Result<(), CommError> {
        let axes: Vec<String> = captured.keys().map(|axes| axes_name(*axes)).collect();
        let calls = (!axes.is_empty())
            .then(|| format!("{name}, with its captured calls over {}", axes.join(", over ")));
        self.engine.replay(calls, submit)?;
        let groups = self.lock_groups();
        for (axes, stats) in captured {
            if let Some(group) = groups.get(axes) {
                group.count_replayed(stats);
            }
        }
        Ok(())
    }

    fn communicator(&self, axes: AxisSet, accounting: Accounting) -> Communicator {
        let shape = self.shape();
        let world_ranks = shape.group_of(self.rank, axes);
        let group_rank = shape.index_in_group(self.rank, axes);
        let member = Arc::new(GroupMember::new(axes, world_ranks, group_rank, accounting));
        let group = self.engine.process_group(&member);
        Communicator::new(member, group)
    }

    fn lock_groups(&self) -> MutexGuard<'_, BTreeMap<AxisSet, Arc<Communicator>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
