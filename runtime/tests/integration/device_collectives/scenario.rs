//! The calls of ranks, for memory of any kind. Right after each call sources are overwritten, and memory is freed and
//! used again: a missing order shows in the results.

use std::sync::Arc;

use half::bf16;
use meshwright::backend::{Buffer, CachingAllocator, Category, Element, StreamKind, View};
use meshwright::comm::{Blocks, CommError, Communicator, ReduceOp, Site};

/// An element with irregular values.
pub trait Value: Element {
    fn of(number: usize) -> Self;
}

fn irregular(number: usize) -> f32 {
    ((number * 31 + 3) as f32 * 0.377).sin() * 10f32.powi(number as i32 % 5)
}

impl Value for f32 {
    fn of(number: usize) -> f32 {
        irregular(number)
    }
}

impl Value for bf16 {
    fn of(number: usize) -> bf16 {
        bf16::from_f32(irregular(number))
    }
}

impl Value for u32 {
    fn of(number: usize) -> u32 {
        number as u32
    }
}

/// One rank with its memory.
pub struct Scenario<'a, T> {
    group: &'a Communicator,
    allocator: Arc<CachingAllocator>,
    /// Allocator of the records, so that they do not keep other memory from being used again.
    records_meter: Arc<CachingAllocator>,
    records: Vec<Buffer>,
    made: usize,
    element: std::marker::PhantomData<T>,
}

type Outcome = Result<(), CommError>;

impl<'a, T: Value> Scenario<'a, T> {
    pub fn new(
        group: &'a Communicator,
        allocator: Arc<CachingAllocator>,
        records_meter: Arc<CachingAllocator>,
    ) -> Self {
        let element = std::marker::PhantomData;
        Scenario { group, allocator, records_meter, records: Vec::new(), made: 0, element }
    }

    /// Recorded results, in order.
    pub fn recorded(self) -> Vec<Vec<T>> {
        self.records.iter().map(|record| record.view().to_vec()).collect()
    }

    /// A buffer of values that differ by rank and from call to call.
    fn data(&mut self, len: usize) -> Buffer {
        self.made += 1;
        let first = self.group.rank() * 1_000_003 + self.made * 7919;
        let values: Vec<T> = (0..len).map(|i| T::of(first + i)).collect();
        self.allocator.copy_of(&values, Category::Activations)
    }

    fn record(&mut self, view: View<'_>) {
        let mut copy = self.records_meter.alloc(T::DTYPE, view.len(), Category::Activations);
        match view.device() {
            None => copy.typed_mut::<T>().copy_from_slice(view.typed()),
            Some(_) if view.is_empty() => {}
            Some(device) => {
                let (dst, src) = (copy.view_mut().address(), view.address());
                // SAFETY: both are live, and used in the order of the compute queue.
                unsafe { device.copy(StreamKind::Compute, dst, src, view.byte_len()) };
            }
        }
        self.records.push(copy);
    }

    /// Records a result and overwrites its memory, and that of a source.
    fn spend(&mut self, mut buffer: Buffer) {
        self.record(buffer.view());
        buffer.view_mut().clear();
    }
}

fn site() -> Site {
    Site::new("block")
}

/// Lengths below and above the size from which host memory is lent.
const LENS: [usize; 4] = [0, 1, 37, 5001];

fn uneven(ranks: usize, base: usize) -> Vec<usize> {
    (0..ranks).map(|rank| if rank == 1 { 0 } else { base + rank * 3 }).collect()
}

fn all_blocks(ranks: usize) -> [Blocks; 6] {
    let [small, large, rows] = [3, 2500, 50].map(|base| uneven(ranks, base));
    let nearly = |base: usize| -> Vec<usize> { (0..ranks).map(|rank| base + rank % 2).collect() };
    [
        Blocks::new(1, small),
        Blocks::new(1, large),
        Blocks::new(4, rows),
        Blocks::new(1, nearly(2600)),
        Blocks::new(3, nearly(17)),
        Blocks::even(0, 3, ranks),
    ]
}

pub fn one_all_reduce(s: &mut Scenario<'_, f32>) -> Outcome {
    let mut data = s.data(64);
    s.group.all_reduce(&site(), ReduceOp::Sum, data.view_mut())?;
    s.spend(data);
    Ok(())
}

pub fn one_started_all_reduce(s: &mut Scenario<'_, f32>) -> Outcome {
    let data = s.data(64);
    let data = s.group.start_all_reduce(&site(), ReduceOp::Sum, data).wait()?;
    s.spend(data);
    Ok(())
}

/// Sends from rank 0 to rank 1, which waits for the message already.
pub fn one_message(s: &mut Scenario<'_, f32>) -> Outcome {
    let mut data = s.data(64);
    if s.group.rank() == 0 {
        s.group.barrier(&site())?;
        s.group.send(&site(), 1, data.view())?;
        data.view_mut().clear();
        s.record(data.view());
        return Ok(());
    }
    let pending = s.group.start_recv(&site(), 0, data);
    s.group.barrier(&site())?;
    s.spend(pending.wait()?);
    Ok(())
}

pub fn reductions<T: Value>(s: &mut Scenario<'_, T>) -> Outcome {
    let (group, ranks, me) = (s.group, s.group.size(), s.group.rank());
    for len in LENS {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let mut data = s.data(len);
            group.all_reduce(&site(), op, data.view_mut())?;
            s.spend(data);
            let mut data = s.data(len);
            group.reduce(&site(), len % ranks, op, data.view_mut())?;
            s.spend(data);
        }
    }
    for blocks in all_blocks(ranks) {
        let (mut src, mut dst) = (s.data(blocks.total()), s.data(blocks.owned(me)));
        group.reduce_scatter(&site(), src.view(), dst.view_mut(), &blocks)?;
        src.view_mut().clear();
        s.spend(dst);
    }
    Ok(())
}

pub fn started_reductions<T: Value>(s: &mut Scenario<'_, T>) -> Outcome {
    let (group, ranks, me) = (s.group, s.group.size(), s.group.rank());
    for len in LENS {
        let (all, one) = (s.data(len), s.data(len));
        let all = group.start_all_reduce(&site(), ReduceOp::Sum, all);
        let one = group.start_reduce(&site(), len % ranks, ReduceOp::Max, one);
        let extra = s.data(len);
        s.spend(extra);
        s.spend(all.wait()?);
        s.spend(one.wait()?);
    }
    for blocks in all_blocks(ranks) {
        let (src, dst) = (Arc::new(s.data(blocks.total())), s.data(blocks.owned(me)));
        // The source is freed when it is not used any more.
        let apart = group.start_reduce_scatter(&site(), src, dst, &blocks);
        let in_place = (blocks.outer == 1).then(|| {
            let whole = s.data(blocks.total());
            group.start_reduce_scatter_in_place(&site(), whole, &blocks)
        });
        s.spend(apart.wait()?);
        let Some(in_place) = in_place else { continue };
        let mut whole = in_place.wait()?;
        let own = blocks.start(me)..blocks.start(me) + blocks.lens[me];
        s.record(whole.view().slice(own.clone()));
        let mut fresh = s.data(own.len());
        copy(fresh.view(), &mut whole, own.start);
        fresh.view_mut().clear();
        s.spend(group.start_all_gather_in_place(&site(), whole, &blocks).wait()?);
    }
    Ok(())
}

/// Copies on the compute queue, as an update of a part would write it.
fn copy(src: View<'_>, dst: &mut Buffer, at: usize) {
    let mut place = dst.view_mut();
    let mut place = place.slice(at..at + src.len());
    match src.device() {
        None => place.bytes_mut().copy_from_slice(src.bytes()),
        Some(_) if src.is_empty() => {}
        // SAFETY: both are live, and used in the order of the compute queue.
        Some(device) => unsafe {
            device.copy(StreamKind::Compute, place.address(), src.address(), src.byte_len());
        },
    }
}

/// Data that `from` sends to `to` in an all-to-all.
fn crossing(base: usize, from: usize, to: usize) -> usize {
    if (from + to) % 3 == 2 { 0 } else { base + from * 5 + to }
}

fn counts(base: usize, ranks: usize, me: usize) -> (Vec<usize>, Vec<usize>) {
    let send = (0..ranks).map(|to| crossing(base, me, to)).collect();
    (send, (0..ranks).map(|from| crossing(base, from, me)).collect())
}

pub fn exchanges<T: Value>(s: &mut Scenario<'_, T>) -> Outcome {
    let (group, ranks, me) = (s.group, s.group.size(), s.group.rank());
    for blocks in all_blocks(ranks) {
        let (mut src, mut dst) = (s.data(blocks.owned(me)), s.data(blocks.total()));
        group.all_gather(&site(), src.view(), dst.view_mut(), &blocks)?;
        src.view_mut().clear();
        s.spend(dst);
    }
    for base in [0, 4, 2100] {
        let root = base % ranks;
        let (send, recv) = counts(base, ranks, me);
        let (mut src, mut dst) = (s.data(send.iter().sum()), s.data(recv.iter().sum()));
        group.all_to_all(&site(), src.view(), dst.view_mut(), &send, &recv)?;
        src.view_mut().clear();
        s.spend(dst);

        let mut data = s.data(base);
        group.broadcast(&site(), root, data.view_mut())?;
        s.spend(data);

        let parts = uneven(ranks, base);
        let mut whole = (me == root).then(|| s.data(parts.iter().sum()));
        let mut part = s.data(parts[me]);
        group.scatter(&site(), root, whole.as_ref().map(Buffer::view), part.view_mut(), &parts)?;
        whole.iter_mut().for_each(|whole| whole.view_mut().clear());
        s.record(part.view());
        let back = whole.as_mut().map(Buffer::view_mut);
        group.gather(&site(), root, part.view(), back, &parts)?;
        part.view_mut().clear();
        whole.into_iter().for_each(|whole| s.spend(whole));
    }
    Ok(())
}

pub fn started_exchanges<T: Value>(s: &mut Scenario<'_, T>) -> Outcome {
    let (group, ranks, me) = (s.group, s.group.size(), s.group.rank());
    for blocks in all_blocks(ranks) {
        let (src, dst) = (Arc::new(s.data(blocks.owned(me))), s.data(blocks.total()));
        let pending = group.start_all_gather(&site(), src, dst, &blocks);
        let extra = s.data(blocks.owned(me));
        s.spend(extra);
        s.spend(pending.wait()?);
    }
    for base in [0, 4, 2100] {
        let root = base % ranks;
        let (send, recv) = counts(base, ranks, me);
        let (src, dst) = (Arc::new(s.data(send.iter().sum())), s.data(recv.iter().sum()));
        let crossed = group.start_all_to_all(&site(), src, dst, &send, &recv);
        let data = s.data(base);
        let copied = group.start_broadcast(&site(), root, data);
        let parts = uneven(ranks, base);
        let whole = (me == root).then(|| Arc::new(s.data(parts.iter().sum())));
        let part = s.data(parts[me]);
        let scattered = group.start_scatter(&site(), root, whole, part, &parts);
        s.spend(crossed.wait()?);
        s.spend(copied.wait()?);
        let part = scattered.wait()?;
        s.record(part.view());
        let room = (me == root).then(|| s.data(parts.iter().sum()));
        let gathered = group.start_gather(&site(), root, Arc::new(part), room, &parts);
        gathered.wait()?.into_iter().for_each(|whole| s.spend(whole));
    }
    Ok(())
}

pub fn messages<T: Value>(s: &mut Scenario<'_, T>) -> Outcome {
    let (group, ranks, me) = (s.group, s.group.size(), s.group.rank());
    let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    for round in 0..8 {
        for len in [0, 5, 3000] {
            // Some receive before they send, some after; in both ways, which meet each other.
            let is_early = (round + me) % 3 == 0;
            let early = is_early.then(|| {
                let room = s.data(len);
                group.start_recv(&site(), previous, room)
            });
            for turn in 0..3 {
                let mut data = s.data(len);
                if (round + turn) % 2 == 0 {
                    drop(group.start_send(&site(), next, Arc::new(data)));
                } else {
                    group.send(&site(), next, data.view())?;
                    data.view_mut().clear();
                }
            }
            let mut late = s.data(len);
            if !is_early {
                group.recv(&site(), previous, late.view_mut())?;
                s.record(late.view());
            }
            let room = s.data(len);
            let started = group.start_recv(&site(), previous, room);
            let mut last = s.data(len);
            group.recv(&site(), previous, last.view_mut())?;
            if let Some(early) = early {
                s.spend(early.wait()?);
            }
            s.spend(started.wait()?);
            s.spend(last);
        }
    }
    Ok(())
}

/// Calls whose results are dropped; their memory goes back to the pool of the rank, and is reused by the next ones.
pub fn dropped<T: Value>(s: &mut Scenario<'_, T>) -> Outcome {
    let (group, ranks, me) = (s.group, s.group.size(), s.group.rank());
    let blocks = Blocks::even(1, 300, ranks);
    for _ in 0..12 {
        let data = s.data(300);
        drop(group.start_all_reduce(&site(), ReduceOp::Sum, data));
        let (src, dst) = (Arc::new(s.data(300)), s.data(blocks.total()));
        drop(group.start_all_gather(&site(), src, dst, &blocks));
        let room = s.data(300);
        drop(group.start_recv(&site(), (me + 1) % ranks, room));
        let data = Arc::new(s.data(300));
        drop(group.start_send(&site(), (me + ranks - 1) % ranks, data));
        let mut kept = s.data(300);
        group.all_reduce(&site(), ReduceOp::Sum, kept.view_mut())?;
        s.spend(kept);
        let kept = s.data(300);
        let kept = group.start_all_reduce(&site(), ReduceOp::Sum, kept).wait()?;
        s.spend(kept);
    }
    Ok(())
}
