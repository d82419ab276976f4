//! Creation of the communicators of a rank, in the same order on all ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::CommError;
use crate::group_member::axes_of_several;
use meshwright_backend::{Buffer, CachingAllocator, Category, DType, Device, StreamKind};
use meshwright_mesh::MeshShape;
use meshwright_mesh::{AxisId, AxisSet};

use super::api::{Comm, CommStream, Id, Library, LibraryError, SplitResources, Transfer, in_group};
use super::message_comms::MessageComms;
use super::pair_comms::PairComms;
use super::settings::{ExpectedGroups, MessagePath, NcclSettings};
use super::watchdog::Watchdog;

/// A rank that creates its communicators.
pub struct CommInit<'a> {
    shape: MeshShape,
    rank: usize,
    library: &'a dyn Library,
    watchdog: &'a Watchdog,
    device: &'a dyn Device,
    messages: MessagePath,
    expected: Option<&'a ExpectedGroups>,
    /// Data of the first message between each pair of ranks: one element is sent, and the others are received.
    elements: Buffer,
}

impl<'a> CommInit<'a> {
    /// Prepares the communicators of the rank of `settings`.
    pub fn new(
        settings: &'a NcclSettings,
        library: &'a dyn Library,
        watchdog: &'a Watchdog,
        device: &'a dyn Device,
        allocator: &Arc<CachingAllocator>,
    ) -> CommInit<'a> {
        let elements = allocator.zeros(DType::F32, 3, Category::Communication);
        let NcclSettings { shape, rank, messages, ref expected, .. } = *settings;
        let expected = expected.as_ref();
        CommInit { shape, rank, library, watchdog, device, messages, expected, elements }
    }

    /// Creates one communicator for each set of axes with more than one rank that the run is expected to use, and those
    /// for messages along `pp`.
    pub fn create_comms(
        &self,
        id: &Id,
    ) -> Result<(BTreeMap<AxisSet, Comm>, MessageComms), CommError> {
        let ranks = self.shape.world_size();
        let mut comms = BTreeMap::new();
        if ranks == 1 {
            return Ok((comms, MessageComms::default()));
        }
        // Not the world rank, which depends on the order of the axes.
        let member = self.shape.index_in_group(self.rank, AxisSet::ALL);
        let world = axes_of_several(&self.shape, AxisSet::ALL);
        // Collectives share resources, and so the order of their calls. Messages must wait for nothing but their
        // receiver: a receive that waits for a later send would hold it up.
        let (messages, collectives) = if self.shape.degree_of(AxisSet::of(AxisId::Pp)) > 1 {
            let all = self.init_world(id, (ranks, member), SplitResources::Separate)?;
            let split = self.split_comm(all, Some(0), member, (world, SplitResources::Shared))?;
            (self.create_message_comms(all)?, split.unwrap_or(all))
        } else {
            let all = self.init_world(id, (ranks, member), SplitResources::Shared)?;
            (MessageComms::default(), all)
        };
        comms.insert(world, collectives);
        let expected: Option<BTreeSet<AxisSet>> = self.expected.map(|expected| {
            expected.axes.iter().map(|axes| axes_of_several(&self.shape, *axes)).collect()
        });
        // Subsets of the axes, in the order of their numbers, which is the same on all ranks.
        let axes: Vec<AxisId> = world.iter().collect();
        for subset in 1..(1usize << axes.len()) - 1 {
            let chosen = axes.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
            let set = chosen.fold(AxisSet::NONE, |set, (_, axis)| set.union(AxisSet::of(*axis)));
            if expected.as_ref().is_some_and(|expected| !expected.contains(&set)) {
                continue;
            }
            let color = self.shape.group_of(self.rank, set)[0];
            let key = self.shape.index_in_group(self.rank, set);
            let splits = (set, SplitResources::Shared);
            if let Some(comm) = self.split_comm(collectives, Some(color), key, splits)? {
                comms.insert(set, comm);
            }
        }
        Ok((comms, messages))
    }

    /// Creates the communicator of all ranks.
    fn init_world(
        &self,
        id: &Id,
        (ranks, member): (usize, usize),
        splits: SplitResources,
    ) -> Result<Comm, CommError> {
        let call = "creating the communicator of all ranks";
        await_comm(self.watchdog, self.library.init_comm(id, ranks, member, splits), call)
    }

    /// Creates the communicators of messages from `all`, whose splits have resources of their own.
    fn create_message_comms(&self, all: Comm) -> Result<MessageComms, CommError> {
        let pipeline = AxisSet::of(AxisId::Pp);
        let members = self.shape.group_of(self.rank, pipeline);
        let member = self.shape.index_in_group(self.rank, pipeline);
        let splits = (pipeline, SplitResources::Separate);
        if self.messages == MessagePath::Grouped {
            let comm = self.split_comm(all, Some(members[0]), member, splits)?;
            comm.map_or(Ok(()), |comm| self.connect_neighbors(comm, members.len(), member))?;
            return Ok(MessageComms::Grouped(comm));
        }
        let pair_comms = PairComms::create(members.len(), member, |color, key| {
            // A separate color for each pair of each group.
            let color = color.map(|pair| members[0] * members.len() + pair);
            let comm = self.split_comm(all, color, key, splits)?;
            let address = self.elements.view().address() as u64;
            let transfer = match key {
                0 => Transfer::Send { src: address, count: 1, to: 1 },
                _ => Transfer::Recv { dst: address, count: 1, from: 0 },
            };
            comm.map_or(Ok(()), |comm| self.connect(comm, &[transfer]))?;
            Ok(comm)
        })?;
        Ok(MessageComms::PerPair(pair_comms))
    }

    /// Exchanges first messages with the ranks before and after this one, to which the messages of all named schedules
    /// go.
    fn connect_neighbors(
        &self,
        comm: Comm,
        members: usize,
        member: usize,
    ) -> Result<(), CommError> {
        let first = self.elements.view().address() as u64;
        let element = |index: usize| first + (index * DType::F32.bytes()) as u64;
        let mut neighbors = vec![(member + 1) % members, (member + members - 1) % members];
        neighbors.dedup();
        let transfers: Vec<Transfer> = neighbors
            .iter()
            .enumerate()
            .flat_map(|(index, neighbor)| {
                let sent = Transfer::Send { src: element(0), count: 1, to: *neighbor };
                [sent, Transfer::Recv { dst: element(1 + index), count: 1, from: *neighbor }]
            })
            .collect();
        self.connect(comm, &transfers)
    }

    /// Submits first messages, so that the library connects the ranks. The host waits for that here, because messages
    /// that cross each other must not wait for it later.
    fn connect(&self, comm: Comm, transfers: &[Transfer]) -> Result<(), CommError> {
        let call = "connecting neighbors along pp";
        let stream = StreamKind::Communication(AxisSet::of(AxisId::Pp).number());
        self.device.wait_for(stream, &self.device.mark_stream(StreamKind::Compute));
        let handle = CommStream { comm, stream: self.device.stream_handle(stream) };
        let submitted = in_group(self.library, || {
            transfers.iter().try_for_each(|transfer| {
                // SAFETY: the elements are live, and only this stream uses them; the compute stream waits for it below.
                unsafe { self.library.submit(handle, DType::F32, transfer) }
            })
        });
        submitted.map_err(|error| self.watchdog.report_failure(call, error.to_string()))?;
        self.watchdog.wait_until_ready(comm, call)?;
        let end = self.device.mark_stream(stream);
        self.watchdog.watch_call(call.into(), end.clone(), None);
        self.device.wait_for(StreamKind::Compute, &end);
        Ok(())
    }

    fn split_comm(
        &self,
        all: Comm,
        color: Option<usize>,
        key: usize,
        (axes, splits): (AxisSet, SplitResources),
    ) -> Result<Option<Comm>, CommError> {
        let call = format!("creating the communicators over {axes}");
        let start = Instant::now();
        let mut keep_waiting = || {
            let is_late = start.elapsed() >= self.watchdog.timeout();
            !is_late && self.watchdog.check_peers(&call).is_ok()
        };
        let comm = self.library.split_comm(all, color, key, splits, &mut keep_waiting);
        self.watchdog.check_failure()?;
        comm.transpose().map(|comm| await_comm(self.watchdog, comm, &call)).transpose()
    }
}

/// Creates the communicator of a group that was not expected, as member `member` of the world ranks `members`. The
/// first one publishes its id.
pub fn create_unexpected(
    expected: &ExpectedGroups,
    (library, watchdog): (&dyn Library, &Watchdog),
    axes: AxisSet,
    (members, member): (&[usize], usize),
) -> Result<Comm, CommError> {
    let call = format!("creating the communicator over {axes}");
    let failed = |problem: String| watchdog.report_failure(&call, problem);
    let key = format!("communicator over {axes} from rank {}", members[0]);
    if member == 0 {
        let id = library.new_id().map_err(|error| failed(error.to_string()))?;
        expected.store.set(&key, &id).map_err(|error| failed(error.to_string()))?;
    }
    let id = expected.store.get(&key).map_err(|error| failed(error.to_string()))?;
    let id = id.try_into().map_err(|_| failed("its id has another length".to_owned()))?;
    let comm = library.init_comm(&id, members.len(), member, SplitResources::Shared);
    await_comm(watchdog, comm, &call)
}

/// Waits until a communicator can be used.
fn await_comm(
    watchdog: &Watchdog,
    comm: Result<Comm, LibraryError>,
    call: &str,
) -> Result<Comm, CommError> {
    let comm = comm.map_err(|error| watchdog.report_failure(call, error.to_string()))?;
    watchdog.add_comm(comm);
    watchdog.wait_until_ready(comm, call)?;
    Ok(comm)
}
