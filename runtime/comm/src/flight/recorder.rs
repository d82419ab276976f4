//! The recorder of one rank: a ring of its last calls.
//!
//! Recording is part of every call, so it does little: the main thread writes an entry under a lock that no other
//! thread wants, and the thread that completes the call stores the times.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use meshwright_backend::{DType, ReduceOp};
use meshwright_mesh::AxisSet;

use super::super::CommError;
use super::super::call::{Call, CommOp, Peer, axes_name};
use super::super::rank_progress::RankProgress;
use super::file::{FlightCall, GroupRecord, Sequence};

/// Calls that are kept.
pub const CAPACITY: usize = 1024;

/// The last calls of a rank.
#[derive(Debug)]
pub struct FlightRecorder {
    /// The begin of the recording, by both clocks.
    origin: Instant,
    unix_origin: Duration,
    step: AtomicU64,
    /// Set when a call has failed: the rank whose end is the reason, if it is one.
    failed_call: OnceLock<Option<usize>>,
    ring: Mutex<Ring>,
    /// Times of the calls in the ring.
    times: OnceLock<Box<[Times]>>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Number of calls so far.
    calls: u64,
    entries: Vec<Entry>,
    /// The groups of the rank, by the number of their axes.
    groups: Vec<Option<Group>>,
}

/// A group, with the numbers of calls in its sequences so far.
#[derive(Debug)]
struct Group {
    axes: AxisSet,
    world_ranks: Box<[usize]>,
    blocking: u64,
    asynchronous: u64,
    /// Messages to and from each member.
    messages: Box<[[u64; 2]]>,
}

/// A call, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    field: Arc<str>,
    /// Position in the sequence, from 1.
    number: u64,
    elements: u64,
    bytes: u64,
    /// Nanoseconds since the origin.
    issued: u64,
    step: u32,
    /// World rank of the root or of the other end of a message, or [`NO_PEER`].
    peer: u32,
    /// Code of the operation.
    op: u8,
    axes: AxisSet,
    sequence: SequenceKind,
    dtype: Option<DType>,
    reduce: Option<ReduceOp>,
}

const NO_PEER: u32 = u32::MAX;

const _: () = assert!(size_of::<Entry>() == 64);

/// Start and end of a call, in nanoseconds since the origin; 0 before. The start is known if this process transfers the
/// data.
#[derive(Debug, Default)]
struct Times {
    /// Index of the call: one that has left the ring may end later.
    index: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
    /// Nanoseconds of long steps of the call.
    slow_steps: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SequenceKind {
    Blocking,
    Asynchronous,
    Sent,
    Received,
}

impl FlightRecorder {
    /// Creates a recorder without calls, which has no memory for them yet.
    pub fn new() -> FlightRecorder {
        FlightRecorder {
            origin: Instant::now(),
            unix_origin: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            step: AtomicU64::new(0),
            failed_call: OnceLock::new(),
            ring: Mutex::default(),
            times: OnceLock::new(),
        }
    }

    /// Sets the number of the step that begins, from 1.
    pub fn begin_step(&self, step: u64) {
        self.step.store(step, Relaxed);
    }

    /// Records a call that is issued at `now` in the group of `world_ranks`, and returns its index.
    pub fn record(&self, call: &Call, world_ranks: &[usize], now: Instant) -> u64 {
        let (elements, reduce, peer) = arguments(&call.op);
        let (issued, step) = (self.nanos(now), self.step.load(Relaxed));
        let mut ring = self.lock_ring();
        let group = ring.group(call.axes, world_ranks);
        let (sequence, number) = match (&call.op, call.asynchronous) {
            (CommOp::Send { to, .. }, _) => {
                (SequenceKind::Sent, &mut group.messages[to.group_rank][0])
            }
            (CommOp::Recv { from, .. }, _) => {
                (SequenceKind::Received, &mut group.messages[from.group_rank][1])
            }
            (_, false) => (SequenceKind::Blocking, &mut group.blocking),
            (_, true) => (SequenceKind::Asynchronous, &mut group.asynchronous),
        };
        *number += 1;
        let entry = Entry {
            field: Arc::clone(call.site.shared_field()),
            op: call.op.code(),
            axes: call.axes,
            sequence,
            dtype: call.dtype,
            reduce,
            peer: peer.map_or(NO_PEER, |peer| peer.world_rank as u32),
            number: *number,
            step: step as u32,
            elements: elements as u64,
            bytes: call.bytes as u64,
            issued,
        };
        let index = ring.calls;
        ring.calls += 1;
        let slot = index as usize % CAPACITY;
        if let Some(times) = self.times.get() {
            times[slot].index.store(index, Relaxed);
            times[slot].started.store(0, Relaxed);
            times[slot].ended.store(0, Relaxed);
            times[slot].slow_steps.store(0, Relaxed);
        } else {
            ring.entries.reserve_exact(CAPACITY);
            self.times.get_or_init(|| (0..CAPACITY).map(|_| Times::default()).collect());
        }
        match ring.entries.get_mut(slot) {
            Some(old) => *old = entry,
            None => ring.entries.push(entry),
        }
        index
    }

    /// Notes the start of a transfer.
    pub fn mark_start(&self, index: u64, at: Instant) {
        if let Some(times) = self.times_of(index) {
            times.started.store(self.nanos(at).max(1), Relaxed);
        }
    }

    /// Notes the end of a call, unless it is known: the end of an asynchronous transfer is before that of the wait.
    pub fn mark_end(&self, index: u64, at: Instant) {
        if let Some(times) = self.times_of(index)
            && times.ended.load(Relaxed) == 0
        {
            times.ended.store(self.nanos(at).max(1), Relaxed);
        }
    }

    /// Adds the time of a long step of a call.
    #[cfg(feature = "mpi")]
    pub fn add_slow_step(&self, index: u64, time: Duration) {
        if let Some(times) = self.times_of(index) {
            times.slow_steps.fetch_add(time.as_nanos() as u64, Relaxed);
        }
    }

    /// Returns the times of a call that is in the ring.
    fn times_of(&self, index: u64) -> Option<&Times> {
        let times = self.times.get()?.get(index as usize % CAPACITY)?;
        (times.index.load(Relaxed) == index).then_some(times)
    }

    /// Notes that a call has failed: the failure of the rank follows from it.
    pub fn note_failed_call(&self, error: &CommError) {
        let ended = match error {
            CommError::PeerLeft { rank, .. } => Some(*rank),
            _ => None,
        };
        // Later ones follow from the first.
        let _ = self.failed_call.set(ended);
    }

    /// Returns true if a call has failed.
    pub fn has_failed_call(&self) -> bool {
        self.failed_call.get().is_some()
    }

    /// Returns the rank whose end has made a call fail.
    pub fn stopped_by(&self) -> Option<usize> {
        self.failed_call.get().copied().flatten()
    }

    /// Returns the progress of the rank.
    pub fn progress(&self, is_communicating: bool) -> RankProgress {
        let ring = self.lock_ring();
        let last = ring.calls.checked_sub(1).map(|last| last as usize % CAPACITY);
        let last_call = last.and_then(|slot| ring.entries.get(slot)).map(Entry::describe);
        RankProgress {
            step: self.step.load(Relaxed),
            calls: ring.calls,
            is_communicating,
            last_call: last_call.unwrap_or_default(),
        }
    }

    /// The number of the step of the rank, from 1; 0 before the first.
    pub fn step(&self) -> u64 {
        self.step.load(Relaxed)
    }

    /// Returns the groups and calls, the oldest first.
    pub fn records(&self) -> (Vec<GroupRecord>, Vec<FlightCall>) {
        let ring = self.lock_ring();
        let groups = ring.groups.iter().flatten();
        let of_group = |group: &Group| {
            (
                axes_name(group.axes),
                GroupRecord {
                    axes: axes_name(group.axes),
                    members: group.world_ranks.to_vec(),
                    blocking: group.blocking,
                    asynchronous: group.asynchronous,
                    messages: group.messages.to_vec(),
                },
            )
        };
        let groups: BTreeMap<String, GroupRecord> = groups.map(of_group).collect();
        let first = ring.calls.saturating_sub(ring.entries.len() as u64);
        let calls = (first..ring.calls).filter_map(|index| self.call(&ring, index)).collect();
        (groups.into_values().collect(), calls)
    }

    fn call(&self, ring: &Ring, index: u64) -> Option<FlightCall> {
        let slot = index as usize % CAPACITY;
        let (entry, times) = (ring.entries.get(slot)?, self.times.get()?.get(slot)?);
        let micros = |nanos: u64| {
            let since = self.unix_origin + Duration::from_nanos(nanos);
            since.as_micros() as u64
        };
        let known = |time: &AtomicU64| Some(time.load(Relaxed)).filter(|time| *time > 0);
        Some(FlightCall {
            index,
            step: entry.step.into(),
            axes: axes_name(entry.axes),
            sequence: match entry.sequence {
                SequenceKind::Blocking => Sequence::Blocking,
                SequenceKind::Asynchronous => Sequence::Asynchronous,
                SequenceKind::Sent => Sequence::Sent,
                SequenceKind::Received => Sequence::Received,
            },
            number: entry.number,
            op: CommOp::name_of(entry.op).to_owned(),
            reduce: entry.reduce.map(|reduce| reduce.name().to_owned()),
            dtype: entry.dtype.map(|dtype| dtype.name().to_owned()),
            elements: entry.elements,
            bytes: entry.bytes,
            peer: Some(entry.peer as usize).filter(|_| entry.peer != NO_PEER),
            field: entry.field.to_string(),
            issued: micros(entry.issued),
            started: known(&times.started).map(micros),
            ended: known(&times.ended).map(micros),
            slow_steps: known(&times.slow_steps).map(|nanos| nanos / 1000),
        })
    }

    fn nanos(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.origin).as_nanos() as u64
    }

    fn lock_ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// Returns the group over `axes`, which all its communicators share.
    fn group(&mut self, axes: AxisSet, world_ranks: &[usize]) -> &mut Group {
        let index = axes.number();
        if index >= self.groups.len() {
            self.groups.resize_with(index + 1, || None);
        }
        self.groups[index].get_or_insert_with(|| Group {
            axes,
            world_ranks: world_ranks.into(),
            blocking: 0,
            asynchronous: 0,
            messages: vec![[0; 2]; world_ranks.len()].into(),
        })
    }
}

impl Entry {
    /// Describes the call: ``all_gather of `blocks.3` over tp, number 12``.
    fn describe(&self) -> String {
        format!(
            "{} of `{}` over {}, number {}",
            CommOp::name_of(self.op),
            self.field,
            axes_name(self.axes),
            self.number
        )
    }
}

/// Returns the number of elements that the members agree on, or 0, the reduction, and the root or other end.
fn arguments(op: &CommOp) -> (usize, Option<ReduceOp>, Option<Peer>) {
    match op {
        CommOp::AllReduce { op, count } => (*count, Some(*op), None),
        CommOp::AllGather { blocks } => (blocks.total(), None, None),
        CommOp::ReduceScatter { blocks } => (blocks.total(), Some(ReduceOp::Sum), None),
        // Each member has parts of its own.
        CommOp::AllToAll { .. } | CommOp::Barrier => (0, None, None),
        CommOp::Broadcast { root, count } => (*count, None, Some(*root)),
        CommOp::Reduce { root, op, count } => (*count, Some(*op), Some(*root)),
        CommOp::Scatter { root, counts } | CommOp::Gather { root, counts } => {
            (counts.iter().sum(), None, Some(*root))
        }
        CommOp::Send { to: peer, count } | CommOp::Recv { from: peer, count } => {
            (*count, None, Some(*peer))
        }
    }
}
