//! A library whose transfers take place between threads at once, and a device that does everything at once: what the engine
//! asks for is carried out as it is documented, and written down.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use half::bf16;
use meshwright::backend::{DType, Device, Moment, Queue, ReduceOp};
use meshwright::comm::nccl::{Comm, Id, Library, LibraryError, On, State, Transfer};

/// What all ranks of a test share.
#[derive(Debug, Default)]
pub struct Hub {
    shared: Mutex<Shared>,
    changed: Condvar,
    /// Makes every communicator report an error.
    pub is_broken: AtomicBool,
    /// Communicators that were aborted, and finished.
    pub ended: Mutex<(usize, usize)>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The number of ranks of each communicator.
    comms: Vec<usize>,
    /// Meetings held so far, by communicator and rank.
    met: HashMap<(usize, usize), usize>,
    meetings: HashMap<(usize, usize), Meeting>,
    messages: HashMap<(usize, usize, usize), VecDeque<Vec<u8>>>,
    log: BTreeMap<usize, Vec<String>>,
}

#[derive(Debug, Default)]
struct Meeting {
    offers: BTreeMap<usize, Offer>,
    is_done: bool,
    children: HashMap<usize, Comm>,
}

#[derive(Debug, Clone)]
enum Offer {
    Split(Option<usize>, usize),
    Transfer(DType, Transfer),
}

/// The hub as one rank sees it.
#[derive(Debug)]
pub struct Port {
    pub hub: Arc<Hub>,
    pub rank: usize,
}

thread_local! {
    static GROUP: RefCell<Vec<(On, DType, Transfer)>> = const { RefCell::new(Vec::new()) };
}

fn handle(comm: usize, rank: usize) -> Comm {
    Comm((comm << 8 | rank) as u64)
}

fn parts(comm: Comm) -> (usize, usize) {
    (comm.0 as usize >> 8, comm.0 as usize & 0xff)
}

impl Hub {
    /// What a world rank has queued since this was last asked.
    pub fn take_log(&self, rank: usize) -> Vec<String> {
        self.lock().log.remove(&rank).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All ranks of a communicator bring an offer; the last one to come does `work`.
    fn meet(
        &self,
        comm: Comm,
        offer: Offer,
        work: impl FnOnce(&mut Shared, usize, usize),
    ) -> Option<Comm> {
        let (comm, rank) = parts(comm);
        let mut shared = self.lock();
        let number = *shared.met.entry((comm, rank)).and_modify(|met| *met += 1).or_insert(1);
        let size = shared.comms[comm];
        let meeting = shared.meetings.entry((comm, number)).or_default();
        meeting.offers.insert(rank, offer);
        if meeting.offers.len() == size {
            work(&mut shared, comm, number);
            shared.meetings.get_mut(&(comm, number)).expect("held").is_done = true;
            self.changed.notify_all();
        }
        while !shared.meetings[&(comm, number)].is_done {
            // A library that fails does not wait for ranks that have noticed it.
            if self.is_broken.load(Ordering::Relaxed) {
                return None;
            }
            let waited = self.changed.wait_timeout(shared, Duration::from_millis(5));
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        shared.meetings[&(comm, number)].children.get(&rank).copied()
    }

    fn send(&self, comm: Comm, to: usize, bytes: Vec<u8>) {
        let (comm, rank) = parts(comm);
        self.lock().messages.entry((comm, rank, to)).or_default().push_back(bytes);
        self.changed.notify_all();
    }

    fn recv(&self, comm: Comm, from: usize) -> Vec<u8> {
        let (comm, rank) = parts(comm);
        let mut shared = self.lock();
        loop {
            let queue = shared.messages.entry((comm, from, rank)).or_default();
            if let Some(bytes) = queue.pop_front() {
                return bytes;
            }
            shared = self.changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn split(shared: &mut Shared, comm: usize, number: usize) {
    let mut colors: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (rank, offer) in &shared.meetings[&(comm, number)].offers {
        let Offer::Split(color, key) = offer else { panic!("a split meets {offer:?}") };
        if let Some(color) = color {
            colors.entry(*color).or_default().push((*key, *rank));
        }
    }
    for mut ranks in colors.into_values() {
        ranks.sort_unstable();
        shared.comms.push(ranks.len());
        let child = shared.comms.len() - 1;
        let meeting = shared.meetings.get_mut(&(comm, number)).expect("held");
        for (idx, (_, rank)) in ranks.into_iter().enumerate() {
            meeting.children.insert(rank, handle(child, idx));
        }
    }
}

// SAFETY of the blocks below: addresses are those of live host memory, as `Library::queue` asks for, and all ranks whose
// memory it is are inside a meeting.
fn bytes_at(address: u64, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(address as *const u8, bytes) };
    copy
}

fn write_at(address: u64, bytes: &[u8]) {
    unsafe { (address as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn combined(dtype: DType, op: ReduceOp, sources: &[u64], count: usize) -> Vec<u8> {
    let value = |address: u64, i: usize| unsafe {
        match dtype {
            DType::Bf16 => (*(address as *const bf16).add(i)).to_f32(),
            _ => *(address as *const f32).add(i),
        }
    };
    let combine = |a: f32, b: f32| if op == ReduceOp::Sum { a + b } else { a.max(b) };
    let results = (0..count)
        .map(|i| sources.iter().map(|source| value(*source, i)).reduce(combine).expect("ranks"));
    match dtype {
        DType::Bf16 => results.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
        _ => results.flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn transfer(shared: &mut Shared, comm: usize, number: usize) {
    let offers: Vec<(DType, Transfer)> = shared.meetings[&(comm, number)]
        .offers
        .values()
        .map(|offer| match offer {
            Offer::Transfer(dtype, transfer) => (*dtype, transfer.clone()),
            offer => panic!("a transfer meets {offer:?}"),
        })
        .collect();
    let dtype = offers[0].0;
    assert!(offers.iter().all(|offer| offer.0 == dtype));
    let transfers: Vec<Transfer> = offers.into_iter().map(|offer| offer.1).collect();
    let element = dtype.bytes();
    let source = |transfer: &Transfer| match *transfer {
        Transfer::AllReduce { data, .. } => data,
        Transfer::Reduce { src, .. }
        | Transfer::ReduceScatter { src, .. }
        | Transfer::AllGather { src, .. }
        | Transfer::Broadcast { src, .. } => src,
        _ => panic!("a message in a meeting"),
    };
    let sources: Vec<u64> = transfers.iter().map(source).collect();
    match transfers[0] {
        Transfer::AllReduce { count, op, .. } => {
            let result = combined(dtype, op, &sources, count);
            sources.iter().for_each(|data| write_at(*data, &result));
        }
        Transfer::Reduce { count, op, root, .. } => {
            let result = combined(dtype, op, &sources, count);
            let Transfer::Reduce { dst, .. } = transfers[root] else { panic!("transfers differ") };
            write_at(dst, &result);
        }
        Transfer::ReduceScatter { count, .. } => {
            let parts: Vec<Vec<u8>> = (0..transfers.len())
                .map(|rank| {
                    let skip = (rank * count * element) as u64;
                    let sources: Vec<u64> = sources.iter().map(|source| source + skip).collect();
                    combined(dtype, ReduceOp::Sum, &sources, count)
                })
                .collect();
            for (transfer, part) in transfers.iter().zip(parts) {
                let Transfer::ReduceScatter { dst, .. } = transfer else {
                    panic!("transfers differ")
                };
                write_at(*dst, &part);
            }
        }
        Transfer::AllGather { count, .. } => {
            let whole: Vec<u8> =
                sources.iter().flat_map(|source| bytes_at(*source, count * element)).collect();
            for transfer in &transfers {
                let Transfer::AllGather { dst, .. } = transfer else { panic!("transfers differ") };
                write_at(*dst, &whole);
            }
        }
        Transfer::Broadcast { count, root, .. } => {
            let data = bytes_at(sources[root], count * element);
            for transfer in &transfers {
                let Transfer::Broadcast { dst, .. } = transfer else { panic!("transfers differ") };
                write_at(*dst, &data);
            }
        }
        _ => panic!("a message in a meeting"),
    }
}

/// `all_gather 37`: what a test compares.
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

impl Library for Port {
    fn new_id(&self) -> Result<Id, LibraryError> {
        Ok([1; 128])
    }

    fn begin(&self, _: &Id, ranks: usize, rank: usize) -> Result<Comm, LibraryError> {
        let mut shared = self.hub.lock();
        if shared.comms.is_empty() {
            shared.comms.push(ranks);
        }
        Ok(handle(0, rank))
    }

    fn split(
        &self,
        comm: Comm,
        color: Option<usize>,
        key: usize,
        _: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Comm>, LibraryError> {
        Ok(self.hub.meet(comm, Offer::Split(color, key), split))
    }

    fn state(&self, _: Comm) -> Result<State, LibraryError> {
        match self.hub.is_broken.load(Ordering::Relaxed) {
            false => Ok(State::Ready),
            true => {
                let reason = "unhandled cuda error".to_string();
                Err(LibraryError { function: "ncclCommGetAsyncError", reason })
            }
        }
    }

    fn abort(&self, _: Comm) {
        self.hub.ended.lock().unwrap().0 += 1;
    }

    fn finish(&self, _: Comm) {
        self.hub.ended.lock().unwrap().1 += 1;
    }

    fn begin_group(&self) -> Result<(), LibraryError> {
        GROUP.with_borrow_mut(Vec::clear);
        Ok(())
    }

    fn end_group(&self) -> Result<(), LibraryError> {
        let group = GROUP.take();
        let texts: Vec<String> = group.iter().map(|(.., transfer)| text(transfer)).collect();
        self.hub.lock().log.entry(self.rank).or_default().push(texts.join(", "));
        let element = |dtype: DType| dtype.bytes();
        for (on, dtype, transfer) in &group {
            if let Transfer::Send { src, count, to } = *transfer {
                self.hub.send(on.comm, to, bytes_at(src, count * element(*dtype)));
            }
        }
        for (on, dtype, next) in group {
            match next {
                Transfer::Send { .. } => {}
                Transfer::Recv { dst, count, from } => {
                    let bytes = self.hub.recv(on.comm, from);
                    assert_eq!(bytes.len(), count * element(dtype));
                    write_at(dst, &bytes);
                }
                next => drop(self.hub.meet(on.comm, Offer::Transfer(dtype, next), transfer)),
            }
        }
        Ok(())
    }

    unsafe fn queue(&self, on: On, dtype: DType, transfer: &Transfer) -> Result<(), LibraryError> {
        GROUP.with_borrow_mut(|group| group.push((on, dtype, transfer.clone())));
        Ok(())
    }
}

/// Does everything at once, and may not tell that it has.
#[derive(Debug, Default)]
pub struct Prompt {
    pub is_stuck: AtomicBool,
}

impl Device for Prompt {
    fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new(
            Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice()).as_mut_ptr().cast(),
        )
    }

    unsafe fn free(&self, memory: NonNull<u8>, bytes: usize) {
        let words =
            std::ptr::slice_from_raw_parts_mut(memory.as_ptr().cast::<u64>(), bytes.div_ceil(8));
        drop(unsafe { Box::from_raw(words) });
    }

    fn alloc_page_locked(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.alloc(bytes)
    }

    unsafe fn free_page_locked(&self, memory: NonNull<u8>, bytes: usize) {
        unsafe { self.free(memory, bytes) }
    }

    unsafe fn copy_out(&self, dst: &mut [u8], src: *const u8) {
        unsafe { self.download(src, dst) }
    }

    unsafe fn copy_in(&self, dst: *mut u8, src: &[u8]) {
        unsafe { self.upload(dst, src) }
    }

    unsafe fn upload(&self, dst: *mut u8, src: &[u8]) {
        unsafe { dst.copy_from_nonoverlapping(src.as_ptr(), src.len()) };
    }

    unsafe fn download(&self, src: *const u8, dst: &mut [u8]) {
        unsafe { dst.as_mut_ptr().copy_from_nonoverlapping(src, dst.len()) };
    }

    unsafe fn zero(&self, _: Queue, dst: *mut u8, bytes: usize) {
        unsafe { dst.write_bytes(0, bytes) };
    }

    unsafe fn copy(&self, _: Queue, dst: *mut u8, src: *const u8, bytes: usize) {
        unsafe { dst.copy_from_nonoverlapping(src, bytes) };
    }

    unsafe fn combine(
        &self,
        _: Queue,
        op: ReduceOp,
        dtype: DType,
        dst: *mut u8,
        srcs: &[*const u8],
        len: usize,
    ) {
        let sources: Vec<u64> = srcs.iter().map(|src| *src as u64).collect();
        write_at(dst as u64, &combined(dtype, op, &sources, len));
    }

    fn mark(&self, _: Queue) -> Moment {
        Moment(Arc::new(()))
    }

    fn mark_timed(&self, queue: Queue) -> Moment {
        self.mark(queue)
    }

    fn elapsed_ms(&self, _: &Moment, _: &Moment) -> f32 {
        0.0
    }

    fn wait_for(&self, _: Queue, _: &Moment) {}

    fn is_done(&self, _: &Moment) -> bool {
        !self.is_stuck.load(Ordering::Relaxed)
    }

    fn handle(&self, _: Queue) -> u64 {
        7
    }

    fn synchronize(&self, _: &Moment) {}
}
