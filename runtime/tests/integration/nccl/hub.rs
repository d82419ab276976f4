//! A rendezvous for a replacement of the library: all ranks of a communicator make an offer, and take their result.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use half::bf16;
use meshwright::backend::{DType, ReduceOp};
use meshwright::comm::nccl::{Comm, Transfer};

/// Contribution of a rank to a collective.
#[derive(Debug, Clone)]
pub enum Offer {
    /// Split with this color and key.
    Split(Option<usize>, usize),
    /// Transfer with its elements; addresses mean nothing here.
    Transfer(DType, Transfer, Vec<u8>),
}

/// Result of a rank.
#[derive(Debug, Clone)]
pub enum Taken {
    Comm(Option<Comm>),
    Bytes(Vec<u8>),
}

/// A rank's access to the rendezvous. `None` if the library has failed.
pub trait RendezvousTable: Send + Sync + Debug {
    /// The communicator of the ranks that have this id.
    fn begin(&self, id: u64, ranks: usize, rank: usize) -> Comm;
    /// Exchanges the offers of all ranks of a communicator.
    fn meet(&self, comm: Comm, offer: Offer) -> Option<Taken>;
    fn send(&self, comm: Comm, to: usize, bytes: Vec<u8>);
    fn recv(&self, comm: Comm, from: usize) -> Option<Vec<u8>>;
    /// Returns `true` if a send to `to` has to wait for its receiver.
    fn is_send_waiting(&self, _comm: Comm, _to: usize) -> bool {
        false
    }
    /// Returns `true` if [`recv`](Self::recv) would not wait.
    fn has_message(&self, comm: Comm, from: usize) -> bool;
    /// Returns `true` if the library has failed.
    fn is_broken(&self) -> bool {
        false
    }
    /// Returns `true` if the library refuses the second transfer of a group.
    fn refuses_transfers(&self) -> bool {
        false
    }
    /// Logs a submission of a rank.
    fn note(&self, _rank: usize, _text: String) {}
    /// Counts a communicator that was aborted or finalized.
    fn ended(&self, _is_aborted: bool) {}
}

/// The rendezvous of all ranks of a test.
#[derive(Debug, Default)]
pub struct Hub {
    shared: Mutex<Shared>,
    changed: Condvar,
    /// Makes every communicator report an error.
    pub is_broken: AtomicBool,
    /// Makes the second transfer of every group fail.
    pub refuses_transfers: AtomicBool,
    /// Makes every send wait for its receiver, as it does for data that does not fit into NCCL's buffers.
    pub sends_wait: AtomicBool,
    /// Makes every abort wait, as it does for CUDA graphs with calls of the communicator.
    pub aborts_wait: AtomicBool,
    /// Numbers of aborted and of finalized communicators.
    pub ended: Mutex<(usize, usize)>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Number of communicators.
    comms: usize,
    /// Communicators that were created by an id.
    begun: HashMap<u64, usize>,
    /// Number of rendezvous, by communicator and rank.
    met: HashMap<(usize, usize), usize>,
    rendezvous_table: HashMap<(usize, usize), Rendezvous>,
    messages: HashMap<(usize, usize, usize), VecDeque<Vec<u8>>>,
    log: BTreeMap<usize, Vec<String>>,
}

#[derive(Debug, Default)]
struct Rendezvous {
    offers: BTreeMap<usize, Offer>,
    /// Results by rank, when all have arrived.
    results: Option<HashMap<usize, Taken>>,
}

/// Packs a communicator, its number of ranks, and the rank.
fn handle(comm: usize, size: usize, rank: usize) -> Comm {
    Comm((comm << 16 | size << 8 | rank) as u64)
}

/// Unpacks a [`handle`].
pub fn parts(comm: Comm) -> (usize, usize, usize) {
    let number = comm.0 as usize;
    (number >> 16, number >> 8 & 0xff, number & 0xff)
}

impl Hub {
    /// Returns the submissions of a world rank since the last call.
    pub fn take_log(&self, rank: usize) -> Vec<String> {
        self.lock().log.remove(&rank).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, shared: MutexGuard<'a, Shared>) -> MutexGuard<'a, Shared> {
        let waited = self.changed.wait_timeout(shared, Duration::from_millis(5));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl RendezvousTable for Arc<Hub> {
    fn begin(&self, id: u64, ranks: usize, rank: usize) -> Comm {
        let Shared { comms, begun, .. } = &mut *self.lock();
        let comm = *begun.entry(id).or_insert_with(|| {
            *comms += 1;
            *comms - 1
        });
        handle(comm, ranks, rank)
    }

    fn meet(&self, comm: Comm, offer: Offer) -> Option<Taken> {
        let (comm, size, rank) = parts(comm);
        let mut shared = self.lock();
        let number = *shared.met.entry((comm, rank)).and_modify(|met| *met += 1).or_insert(1);
        let rendezvous = shared.rendezvous_table.entry((comm, number)).or_default();
        rendezvous.offers.insert(rank, offer);
        if rendezvous.offers.len() == size {
            let offers = std::mem::take(&mut rendezvous.offers);
            let results = match &offers[&0] {
                Offer::Split(..) => split(&mut shared.comms, &offers),
                Offer::Transfer(..) => transfer(&offers),
            };
            shared.rendezvous_table.get_mut(&(comm, number)).expect("held").results = Some(results);
            self.changed.notify_all();
        }
        loop {
            let results =
                &mut shared.rendezvous_table.get_mut(&(comm, number)).expect("held").results;
            if let Some(results) = results {
                return results.remove(&rank);
            }
            // A library that fails does not wait for ranks that have noticed it.
            if self.is_broken() {
                return None;
            }
            shared = self.wait(shared);
        }
    }

    fn send(&self, comm: Comm, to: usize, bytes: Vec<u8>) {
        let (comm, _, rank) = parts(comm);
        self.lock().messages.entry((comm, rank, to)).or_default().push_back(bytes);
        self.changed.notify_all();
    }

    fn recv(&self, comm: Comm, from: usize) -> Option<Vec<u8>> {
        let (comm, _, rank) = parts(comm);
        let mut shared = self.lock();
        loop {
            let queue = shared.messages.entry((comm, from, rank)).or_default();
            if let Some(bytes) = queue.pop_front() {
                return Some(bytes);
            }
            if self.is_broken() {
                return None;
            }
            shared = self.wait(shared);
        }
    }

    fn has_message(&self, comm: Comm, from: usize) -> bool {
        let (comm, _, rank) = parts(comm);
        let shared = self.lock();
        let queue = shared.messages.get(&(comm, from, rank));
        queue.is_some_and(|queue| !queue.is_empty()) || self.is_broken()
    }

    fn is_send_waiting(&self, comm: Comm, to: usize) -> bool {
        if !self.sends_wait.load(Ordering::Relaxed) || self.is_broken() {
            return false;
        }
        let (comm, _, rank) = parts(comm);
        self.lock().messages.get(&(comm, rank, to)).is_some_and(|queue| !queue.is_empty())
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    fn refuses_transfers(&self) -> bool {
        self.refuses_transfers.load(Ordering::Relaxed)
    }

    fn note(&self, rank: usize, text: String) {
        self.lock().log.entry(rank).or_default().push(text);
    }

    fn ended(&self, is_aborted: bool) {
        while is_aborted && self.aborts_wait.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (aborted, finished) = &mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *if is_aborted { aborted } else { finished } += 1;
    }
}

fn split(comms: &mut usize, offers: &BTreeMap<usize, Offer>) -> HashMap<usize, Taken> {
    let mut colors: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    let mut results = HashMap::new();
    for (rank, offer) in offers {
        let Offer::Split(color, key) = offer else { panic!("a split meets {offer:?}") };
        results.insert(*rank, Taken::Comm(None));
        if let Some(color) = color {
            colors.entry(*color).or_default().push((*key, *rank));
        }
    }
    for mut ranks in colors.into_values() {
        ranks.sort_unstable();
        let (comm, size) = (*comms, ranks.len());
        *comms += 1;
        for (idx, (_, rank)) in ranks.into_iter().enumerate() {
            results.insert(rank, Taken::Comm(Some(handle(comm, size, idx))));
        }
    }
    results
}

fn transfer(offers: &BTreeMap<usize, Offer>) -> HashMap<usize, Taken> {
    let offers: Vec<(DType, &Transfer, &[u8])> = offers
        .values()
        .map(|offer| match offer {
            Offer::Transfer(dtype, transfer, bytes) => (*dtype, transfer, bytes.as_slice()),
            offer => panic!("a transfer meets {offer:?}"),
        })
        .collect();
    let (dtype, first, _) = offers[0];
    let is_alike =
        |transfer: &Transfer| std::mem::discriminant(transfer) == std::mem::discriminant(first);
    assert!(offers.iter().all(|offer| offer.0 == dtype && is_alike(offer.1)), "{offers:?}");
    let (ranks, sources): (_, Vec<&[u8]>) =
        (offers.len(), offers.iter().map(|(.., bytes)| *bytes).collect());
    let for_all = |bytes: Vec<u8>| vec![bytes; ranks];
    let results: Vec<Vec<u8>> = match *first {
        Transfer::AllReduce { op, .. } => for_all(combined(dtype, op, &sources)),
        Transfer::Reduce { op, root, .. } => {
            let mut results = for_all(Vec::new());
            results[root] = combined(dtype, op, &sources);
            results
        }
        Transfer::ReduceScatter { count, .. } => combined(dtype, ReduceOp::Sum, &sources)
            .chunks(count * dtype.bytes())
            .map(<[u8]>::to_vec)
            .collect(),
        Transfer::AllGather { .. } => for_all(sources.concat()),
        Transfer::Broadcast { root, .. } => for_all(sources[root].to_vec()),
        Transfer::Send { .. } | Transfer::Recv { .. } => panic!("a message in a rendezvous"),
    };
    results.into_iter().map(Taken::Bytes).enumerate().collect()
}

/// Elements of all sources, combined in their order and rounded once.
pub fn combined(dtype: DType, op: ReduceOp, sources: &[&[u8]]) -> Vec<u8> {
    if dtype == DType::F64 {
        let values = |source: &[u8]| -> Vec<f64> {
            let numbers = source.chunks_exact(8);
            numbers.map(|bytes| f64::from_le_bytes(bytes.try_into().expect("8 bytes"))).collect()
        };
        let combine = |a: f64, b: f64| if op == ReduceOp::Sum { a + b } else { a.max(b) };
        let folded = sources.iter().map(|source| values(source)).reduce(|acc, source| {
            acc.into_iter().zip(source).map(|(a, b)| combine(a, b)).collect()
        });
        return folded.expect("ranks").into_iter().flat_map(f64::to_le_bytes).collect();
    }
    let value = |source: &[u8], i: usize| match dtype {
        DType::Bf16 => bf16::from_le_bytes([source[2 * i], source[2 * i + 1]]).to_f32(),
        _ => f32::from_le_bytes(source[4 * i..4 * i + 4].try_into().expect("four bytes")),
    };
    let combine = |a: f32, b: f32| if op == ReduceOp::Sum { a + b } else { a.max(b) };
    let results = (0..sources[0].len() / dtype.bytes())
        .map(|i| sources.iter().map(|source| value(source, i)).reduce(combine).expect("ranks"));
    match dtype {
        DType::Bf16 => results.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
        _ => results.flat_map(|x| x.to_le_bytes()).collect(),
    }
}
