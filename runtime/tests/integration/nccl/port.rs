//! A replacement of the library for tests: it carries out transfers as NCCL documents them, and logs them.
//!
//! As with NCCL, no call waits for other ranks: a communicator is busy until they have arrived.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwright::backend::DType;
use meshwright::comm::nccl::{
    Comm, CommState, CommStream, Id, Library, LibraryError, Registration, SplitResources, Transfer,
};

use super::hub::{Offer, RendezvousTable, Taken, parts};

/// The library as one rank sees it.
pub struct Port {
    rendezvous_table: Arc<dyn RendezvousTable>,
    rank: usize,
    streams: Box<dyn Streams>,
    under_way: Arc<UnderWay>,
    families: Mutex<Families>,
    /// Communicators on which two ranks have exchanged a message: the first one connects them.
    connected: Mutex<HashSet<Comm>>,
    /// Sizes of registered memory, by address.
    known: Mutex<HashMap<(Comm, u64), usize>>,
}

/// Streams of the device of a rank.
pub trait Streams: Send + Sync {
    /// Returns when a stream has reached this point.
    fn drain(&self, stream: u64);

    /// Returns `true` if the stream is being captured into a graph.
    fn is_capturing(&self, _stream: u64) -> bool {
        false
    }

    /// Captures `work` on a stream that is being captured.
    fn record(&self, _stream: u64, _work: Work) {}

    /// Submits the steps of a group of messages. The stream waits at each step until its condition holds, while the
    /// host goes on. Returns `false` if the device works synchronously.
    fn submit_messages(&self, _stream: u64, _steps: Vec<(Condition, Work)>) -> bool {
        false
    }
}

/// Communicators that share resources: messages of a family run one after another, in the order of submission.
#[derive(Default)]
struct Families {
    /// The family of each communicator, by the communicator that it began with.
    of_comm: HashMap<Comm, Comm>,
    /// Communicators whose splits are of their family.
    sharing: HashSet<Comm>,
    /// The number of messages that were submitted, and that of those that are over.
    turns: HashMap<Comm, (usize, Arc<AtomicUsize>)>,
}

impl Families {
    /// Adds a communicator that was split from `parent`.
    fn add(&mut self, comm: Comm, parent: Option<Comm>, splits: SplitResources) {
        let shared = parent.filter(|parent| self.sharing.contains(parent));
        let family = shared.map_or(comm, |parent| self.of_comm[&parent]);
        self.of_comm.insert(comm, family);
        if splits == SplitResources::Shared {
            self.sharing.insert(comm);
        }
    }

    /// Returns the turn of the next messages of a communicator, and the number of those that are over.
    fn next_turn(&mut self, comm: Comm) -> (usize, Arc<AtomicUsize>) {
        let (submitted, over) = self.turns.entry(self.of_comm[&comm]).or_default();
        *submitted += 1;
        (*submitted - 1, Arc::clone(over))
    }
}

/// A condition for work.
pub type Condition = Box<dyn Fn() -> bool + Send + Sync>;

/// Transfers of a group.
pub type Work = Arc<dyn Fn() + Send + Sync>;

/// Streams of a device that works synchronously and captures nothing.
struct AtOnce;

impl Streams for AtOnce {
    fn drain(&self, _: u64) {}
}

/// Number of groups in progress, by communicator; `None` if it was aborted, and nothing is written any more.
#[derive(Default)]
struct UnderWay(Mutex<HashMap<Comm, Option<usize>>>);

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, HashMap<Comm, Option<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the number of groups, unless the communicator was aborted.
    fn unless_aborted(&self, comm: Comm, change: impl FnOnce(&mut usize)) {
        if let Some(count) = self.lock().entry(comm).or_insert(Some(0)) {
            change(count);
        }
    }
}

thread_local! {
    /// The transfers of the group that is open on this thread.
    static GROUP: RefCell<Option<Vec<(CommStream, DType, Transfer)>>> = const { RefCell::new(None) };
}

impl Port {
    /// Creates the library of a rank with a synchronous device.
    pub fn new(rendezvous_table: Arc<dyn RendezvousTable>, rank: usize) -> Port {
        Port::on(rendezvous_table, rank, AtOnce)
    }

    /// Creates the library of a rank with these streams.
    pub fn on(
        rendezvous_table: Arc<dyn RendezvousTable>,
        rank: usize,
        streams: impl Streams + 'static,
    ) -> Port {
        Port {
            rendezvous_table,
            rank,
            streams: Box::new(streams),
            under_way: Arc::default(),
            families: Mutex::default(),
            connected: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Returns `true` if a group is open on this thread.
    pub fn is_group_open() -> bool {
        GROUP.with_borrow(Option::is_some)
    }

    /// Submits messages between connected ranks; the stream waits for them. Returns `false` for the first ones of a
    /// communicator, when the host waits while the library connects its ranks, and on a synchronous device.
    fn submit_messages(&self, group: &Group, stream: u64) -> bool {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if connected.insert(group.comm) {
            return false;
        }
        let is_captured = self.streams.is_capturing(stream);
        // All messages of a group begin together, and it ends when all of them have.
        let [begun, arriving, received, taken] = [(); 4].map(|()| group.clone());
        let send = move || {
            if is_captured {
                begun.note();
            }
            if !begun.is_aborted() {
                begun.carry_out(begun.ready_sends());
            }
        };
        let receive = move || {
            if !received.is_aborted() {
                received.carry_out(received.ready_receives());
            }
        };
        let is_there = move || arriving.is_aborted() || arriving.has_arrived();
        let is_over = move || taken.is_aborted() || !taken.is_send_waiting();
        // A graph has an order of its own.
        let turn = (!is_captured).then(|| self.families().next_turn(group.comm));
        let ending = turn.clone();
        let is_next =
            move || turn.as_ref().is_none_or(|(turn, over)| over.load(Ordering::SeqCst) == *turn);
        let end = move || {
            if let Some((_, over)) = &ending {
                over.fetch_add(1, Ordering::SeqCst);
            }
        };
        let steps: Vec<(Condition, Work)> = vec![
            (Box::new(is_next), Arc::new(send)),
            (Box::new(is_there), Arc::new(receive)),
            (Box::new(is_over), Arc::new(end)),
        ];
        self.streams.submit_messages(stream, steps)
    }

    fn families(&self) -> MutexGuard<'_, Families> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken() -> LibraryError {
        let reason = "unhandled cuda error".to_string();
        LibraryError { function: "ncclCommGetAsyncError", reason }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port of rank {}", self.rank)
    }
}

// SAFETY of the blocks below: addresses refer to live host memory, as `Library::submit` asks for; what is written is
// ordered by the check that the communicator is ready, or it is aborted, after which nothing is written.
fn bytes_at(address: u64, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(address as *const u8, bytes) };
    copy
}

fn write_at(address: u64, bytes: &[u8]) {
    unsafe { (address as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// One transfer of a group, with the data that it reads.
struct Ready {
    dtype: DType,
    transfer: Transfer,
    data: Vec<u8>,
}

impl Ready {
    fn new(comm: Comm, dtype: DType, transfer: Transfer) -> Ready {
        let (_, ranks, rank) = parts(comm);
        let (src, elements) = match transfer {
            Transfer::AllReduce { data, count, .. } => (data, count),
            Transfer::Reduce { src, count, .. }
            | Transfer::AllGather { src, count, .. }
            | Transfer::Send { src, count, .. } => (src, count),
            Transfer::ReduceScatter { src, count, .. } => (src, count * ranks),
            Transfer::Broadcast { src, count, root, .. } if root == rank => (src, count),
            Transfer::Broadcast { src, .. } => (src, 0),
            Transfer::Recv { dst, .. } => (dst, 0),
        };
        let data = bytes_at(src, elements * dtype.bytes());
        Ready { dtype, transfer, data }
    }

    fn is_send(&self) -> bool {
        matches!(self.transfer, Transfer::Send { .. })
    }

    /// Carries out the transfer, and returns the address and data to write.
    fn carry_out(
        self,
        rendezvous_table: &dyn RendezvousTable,
        comm: Comm,
    ) -> Option<(u64, Vec<u8>)> {
        let dst = match self.transfer {
            Transfer::Send { to, .. } => {
                rendezvous_table.send(comm, to, self.data);
                return None;
            }
            Transfer::Recv { dst, count, from } => {
                let bytes = rendezvous_table.recv(comm, from)?;
                assert_eq!(bytes.len(), count * self.dtype.bytes());
                return Some((dst, bytes));
            }
            Transfer::AllReduce { data, .. } => data,
            Transfer::Reduce { dst, .. }
            | Transfer::ReduceScatter { dst, .. }
            | Transfer::AllGather { dst, .. }
            | Transfer::Broadcast { dst, .. } => dst,
        };
        match rendezvous_table.meet(comm, Offer::Transfer(self.dtype, self.transfer, self.data))? {
            Taken::Bytes(bytes) => Some((dst, bytes)),
            Taken::Comm(_) => panic!("a transfer gives a communicator"),
        }
    }
}

/// Transfers of one rank that are submitted as a group.
#[derive(Clone)]
struct Group {
    comm: Comm,
    rank: usize,
    transfers: Vec<(CommStream, DType, Transfer)>,
    rendezvous_table: Arc<dyn RendezvousTable>,
    under_way: Arc<UnderWay>,
}

impl Group {
    fn has_messages_alone(&self) -> bool {
        let is_message =
            |transfer: &Transfer| matches!(transfer, Transfer::Send { .. } | Transfer::Recv { .. });
        self.transfers.iter().all(|(.., transfer)| is_message(transfer))
    }

    fn is_aborted(&self) -> bool {
        matches!(self.under_way.lock().get(&self.comm), Some(None))
    }

    /// Returns true if no message has to be waited for.
    fn has_arrived(&self) -> bool {
        self.transfers.iter().all(|(.., transfer)| match transfer {
            Transfer::Recv { from, .. } => self.rendezvous_table.has_message(self.comm, *from),
            _ => true,
        })
    }

    /// Returns true if a send has to wait for its receiver.
    fn is_send_waiting(&self) -> bool {
        self.transfers.iter().any(|(.., transfer)| match transfer {
            Transfer::Send { to, .. } => self.rendezvous_table.is_send_waiting(self.comm, *to),
            _ => false,
        })
    }

    /// Logs the transfers.
    fn note(&self) {
        let texts: Vec<String> =
            self.transfers.iter().map(|(.., transfer)| text(transfer)).collect();
        self.rendezvous_table.note(self.rank, texts.join(", "));
    }

    /// Reads the data of the transfers now; sends come first, which do not wait.
    fn ready(&self) -> Vec<Ready> {
        let ready = |(_, dtype, transfer): &(CommStream, DType, Transfer)| {
            Ready::new(self.comm, *dtype, transfer.clone())
        };
        let mut all: Vec<Ready> = self.transfers.iter().map(ready).collect();
        all.sort_by_key(|ready| !ready.is_send());
        all
    }

    fn ready_sends(&self) -> Vec<Ready> {
        self.ready().into_iter().filter(Ready::is_send).collect()
    }

    fn ready_receives(&self) -> Vec<Ready> {
        self.ready().into_iter().filter(|ready| !ready.is_send()).collect()
    }

    fn carry_out(&self, ready: Vec<Ready>) {
        for ready in ready {
            if let Some((dst, bytes)) = ready.carry_out(&*self.rendezvous_table, self.comm) {
                self.under_way.unless_aborted(self.comm, |_| write_at(dst, &bytes));
            }
        }
    }

    /// Waits until the sends have their receivers.
    fn wait_for_receivers(&self) {
        while !self.is_aborted() && self.is_send_waiting() {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
}

/// The form that a test compares, such as `all_gather 37`.
fn text(transfer: &Transfer) -> String {
    match transfer {
        Transfer::AllReduce { count, .. } => format!("all_reduce {count}"),
        Transfer::Reduce { count, root, .. } => format!("reduce {count} to {root}"),
        Transfer::ReduceScatter { count, .. } => format!("reduce_scatter {count}"),
        Transfer::AllGather { count, .. } => format!("all_gather {count}"),
        Transfer::Broadcast { count, root, .. } => format!("broadcast {count} of {root}"),
        Transfer::Send { count, to, .. } => format!("send {count} to {to}"),
        Transfer::Recv { count, from, .. } => format!("recv {count} of {from}"),
    }
}

fn id_number(id: &Id) -> u64 {
    let first = id.first_chunk().expect("128 bytes");
    u64::from_le_bytes(*first)
}

impl Library for Port {
    fn new_id(&self) -> Result<Id, LibraryError> {
        // Another one for each call of each process.
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let mut id = [1; 128];
        id[..8].copy_from_slice(&(u64::from(std::process::id()) << 32 | call).to_le_bytes());
        Ok(id)
    }

    fn init_comm(
        &self,
        id: &Id,
        ranks: usize,
        rank: usize,
        splits: SplitResources,
    ) -> Result<Comm, LibraryError> {
        let comm = self.rendezvous_table.begin(id_number(id), ranks, rank);
        self.families().add(comm, None, splits);
        Ok(comm)
    }

    fn split_comm(
        &self,
        comm: Comm,
        color: Option<usize>,
        key: usize,
        splits: SplitResources,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Comm>, LibraryError> {
        let (sender, taken) = std::sync::mpsc::channel();
        let rendezvous_table = Arc::clone(&self.rendezvous_table);
        std::thread::spawn(move || {
            sender.send(rendezvous_table.meet(comm, Offer::Split(color, key)))
        });
        loop {
            match taken.recv_timeout(std::time::Duration::from_millis(2)) {
                Ok(Some(Taken::Comm(child))) => {
                    if let Some(child) = child {
                        self.families().add(child, Some(comm), splits);
                    }
                    return Ok(child);
                }
                Ok(_) => return Err(Port::broken()),
                Err(_) if keep_waiting() => {}
                Err(_) => {
                    let reason = "the rendezvous with the other ranks timed out".to_string();
                    return Err(LibraryError { function: "ncclCommSplit", reason });
                }
            }
        }
    }

    fn comm_state(&self, comm: Comm) -> Result<CommState, LibraryError> {
        if self.rendezvous_table.is_broken() {
            return Err(Port::broken());
        }
        match self.under_way.lock().get(&comm) {
            Some(Some(1..)) => Ok(CommState::Busy),
            Some(None) => panic!("{comm:?} was aborted, and is asked for its state"),
            _ => Ok(CommState::Ready),
        }
    }

    fn abort_comm(&self, comm: Comm) {
        self.under_way.lock().insert(comm, None);
        self.rendezvous_table.ended(true);
    }

    fn finalize_comm(&self, comm: Comm) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(known.keys().all(|(of, _)| *of != comm), "memory outlives its communicator");
        self.rendezvous_table.ended(false);
    }

    unsafe fn register_memory(
        &self,
        comm: Comm,
        address: u64,
        bytes: usize,
    ) -> Result<Option<Registration>, LibraryError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(known.insert((comm, address), bytes).is_none(), "{address} is known already");
        self.rendezvous_table.note(self.rank, format!("register {bytes} bytes"));
        Ok(Some(Registration(address)))
    }

    fn deregister_memory(
        &self,
        comm: Comm,
        registration: Registration,
    ) -> Result<(), LibraryError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = known.remove(&(comm, registration.0)).expect("memory that is known");
        self.rendezvous_table.note(self.rank, format!("deregister {bytes} bytes"));
        Ok(())
    }

    fn begin_group(&self) -> Result<(), LibraryError> {
        let open = GROUP.replace(Some(Vec::new()));
        assert!(open.is_none(), "a group begins inside of another, which has not ended");
        Ok(())
    }

    fn end_group(&self) -> Result<(), LibraryError> {
        let group = GROUP.take().expect("a group that has begun");
        let Some(CommStream { comm, stream }) = group.first().map(|(on, ..)| *on) else {
            return Ok(());
        };
        assert!(
            group.iter().all(|(on, ..)| *on == CommStream { comm, stream }),
            "a group on one communicator and stream"
        );
        let (rendezvous_table, under_way) =
            (Arc::clone(&self.rendezvous_table), Arc::clone(&self.under_way));
        let group = Group { comm, rank: self.rank, transfers: group, rendezvous_table, under_way };
        let is_captured = self.streams.is_capturing(stream);
        if !is_captured {
            group.note();
        }
        if group.has_messages_alone() && self.submit_messages(&group, stream) {
            return Ok(());
        }
        if is_captured {
            let replay = move || {
                group.note();
                group.carry_out(group.ready());
            };
            self.streams.record(stream, Arc::new(replay));
            return Ok(());
        }
        self.streams.drain(stream);
        let ready = group.ready();
        self.under_way.unless_aborted(comm, |count| *count += 1);
        std::thread::spawn(move || {
            group.carry_out(ready);
            group.wait_for_receivers();
            group.under_way.unless_aborted(comm, |count| *count -= 1);
        });
        Ok(())
    }

    unsafe fn submit(
        &self,
        stream: CommStream,
        dtype: DType,
        transfer: &Transfer,
    ) -> Result<(), LibraryError> {
        GROUP.with_borrow_mut(|group| {
            let group = group.as_mut().expect("a group that has begun");
            if self.rendezvous_table.refuses_transfers() && !group.is_empty() {
                let reason = "invalid argument".to_string();
                return Err(LibraryError { function: "ncclSend", reason });
            }
            group.push((stream, dtype, transfer.clone()));
            Ok(())
        })
    }
}
