//! Exchanges of messages: over a communicator for each channel, and as groups over one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use meshwright::backend::{Buffer, CachingAllocator, Category, Device};
use meshwright::comm::nccl::{MessagePath, NcclSettings};
use meshwright::comm::{Communicator, RankComms, Site};
use meshwright::mesh::MeshShape;

use super::hub::Hub;
use super::prompt::Prompt;
use super::{PP, connect_with, settings};

const ROUNDS: usize = 3;

/// Runs `body` on every rank along `pp` with messages on `path`, and returns the results.
fn on_ranks<R: Send>(
    ranks: usize,
    (path, sends_wait): (MessagePath, bool),
    body: impl Fn(&Hub, &RankComms) -> R + Sync,
) -> Vec<R> {
    let (hub, shape) = (Arc::new(Hub::default()), format!("pp={ranks}"));
    let shape: MeshShape = shape.parse().unwrap();
    hub.sends_wait.store(sends_wait, Ordering::Relaxed);
    let rank = |rank: usize| {
        let settings = NcclSettings { messages: path, ..settings(shape, rank) };
        body(&hub, &connect_with(&hub, &Arc::default(), settings))
    };
    std::thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> = (0..ranks).map(|n| scope.spawn(move || rank(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The numbers that `from` sends in a round: more of them upwards than downwards.
fn numbers(from: usize, round: usize, is_upwards: bool) -> Vec<u32> {
    let len = if is_upwards { 5 + round } else { 2 };
    (0..len)
        .map(|at| (1000 * from + 100 * round + 10 * usize::from(is_upwards) + at) as u32)
        .collect()
}

/// Exchanges numbers with both neighbors of a ring.
fn exchange_in_ring(group: &Communicator, allocator: &Arc<CachingAllocator>) {
    let (me, ranks) = (group.rank(), group.size());
    let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    let buffer = |data: &[u32]| allocator.copy_of(data, Category::Communication);
    for round in 0..ROUNDS {
        let site = |to: &str| Site::new(format!("{to} in round {round}"));
        let sent = |is_upwards| Arc::new(buffer(&numbers(me, round, is_upwards)));
        let room = |is_upwards| buffer(&vec![0; numbers(0, round, is_upwards).len()]);
        let sends = vec![(site("up"), next, sent(true)), (site("down"), previous, sent(false))];
        let receives = vec![(site("up"), previous, room(true)), (site("down"), next, room(false))];
        let (sent, received) = group.exchange(sends, receives);
        let received: Vec<Buffer> =
            received.into_iter().map(|arriving| arriving.wait().unwrap()).collect();
        sent.into_iter().for_each(|sent| sent.wait().unwrap());
        let read = |index: usize| received[index].view().to_vec::<u32>();
        assert_eq!(read(0), numbers(previous, round, true), "{ranks} ranks");
        assert_eq!(read(1), numbers(next, round, false), "{ranks} ranks");
    }
}

/// Ranks may send to each other in groups before any of them receives, even if each send waits for its receiver.
#[test]
fn neighbors_exchange_in_both_directions() {
    let paths = [
        (MessagePath::PerPair, false),
        (MessagePath::Grouped, false),
        (MessagePath::Grouped, true),
    ];
    for (path, ranks) in paths.into_iter().flat_map(|path| (2..=4).map(move |ranks| (path, ranks)))
    {
        for is_on_host in [false, true] {
            on_ranks(ranks, path, |_, comms| {
                let device: Arc<dyn Device> = Arc::new(Prompt::default());
                let allocator = CachingAllocator::on((!is_on_host).then_some(device), usize::MAX);
                exchange_in_ring(&comms.group(PP), &allocator);
            });
        }
    }
}

#[test]
fn an_exchange_is_one_group() {
    let logs = |path| {
        on_ranks(3, (path, false), |hub, comms| {
            let group = comms.group(PP);
            let device: Arc<dyn Device> = Arc::new(Prompt::default());
            let allocator = CachingAllocator::on(Some(device), usize::MAX);
            hub.take_log(comms.rank());
            let before = group.stats();
            exchange_in_ring(&group, &allocator);
            let stats = group.stats();
            let sent: usize = (0..ROUNDS).map(|round| 4 * (7 + round)).sum();
            assert_eq!(stats.bytes - before.bytes, sent as u64);
            assert_eq!(stats.calls - before.calls, 4 * ROUNDS as u64);
            assert_eq!(group.groups_messages(), path == MessagePath::Grouped);
            hub.take_log(comms.rank())
        })
    };
    let grouped = logs(MessagePath::Grouped);
    assert_eq!(grouped[1][0], "send 5 to 2, send 2 to 0, recv 5 of 0, recv 2 of 2");
    assert!(grouped.iter().all(|log| log.len() == ROUNDS), "{grouped:?}");
    let apart = logs(MessagePath::PerPair);
    assert_eq!(apart[1][..4], ["send 5 to 1", "send 2 to 1", "recv 5 of 0", "recv 2 of 0"]);
}

/// A message that is refused does not keep the others from their receivers.
#[test]
fn refused_messages_are_errors_of_their_own() {
    for path in [MessagePath::PerPair, MessagePath::Grouped] {
        on_ranks(2, (path, false), |_, comms| {
            let group = comms.group(PP);
            let device: Arc<dyn Device> = Arc::new(Prompt::default());
            let allocator = CachingAllocator::on(Some(device), usize::MAX);
            let other = 1 - group.rank();
            let data = || allocator.copy_of(&[7u32; 3], Category::Communication);
            let site = Site::new("x");
            let sends =
                vec![(site.clone(), 5, Arc::new(data())), (site.clone(), other, Arc::new(data()))];
            let (sent, received) = group.exchange(sends, vec![(site, other, data())]);
            let outcomes: Vec<_> = sent.into_iter().map(|sent| sent.wait()).collect();
            let text = outcomes[0].as_ref().unwrap_err().to_string();
            assert!(text.contains("rank 5"), "{text}");
            assert!(outcomes[1].is_ok(), "{outcomes:?}");
            for arriving in received {
                assert_eq!(arriving.wait().unwrap().view().to_vec::<u32>(), [7; 3]);
            }
            // The group is used up by nothing that was refused.
            group.barrier(&Site::new("end")).unwrap();
        });
    }
}

/// Messages that are started one by one keep their order, too.
#[test]
fn single_messages_go_over_the_same_communicator() {
    on_ranks(2, (MessagePath::Grouped, false), |_, comms| {
        let group = comms.group(PP);
        let device: Arc<dyn Device> = Arc::new(Prompt::default());
        let allocator = CachingAllocator::on(Some(device), usize::MAX);
        for number in 0..4u32 {
            let data = allocator.copy_of(&[number; 2], Category::Communication);
            let site = Site::new("x");
            if group.rank() == 0 {
                group.start_send(&site, 1, Arc::new(data)).wait().unwrap();
            } else {
                let room = allocator.copy_of(&[9u32; 2], Category::Communication);
                let got = group.start_recv(&site, 0, room).wait().unwrap();
                assert_eq!(got.view().to_vec::<u32>(), [number; 2]);
            }
        }
    });
}
