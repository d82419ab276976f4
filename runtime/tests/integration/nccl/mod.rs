//! The NCCL engine with a library that works between threads, against the engine `local`.

mod exchanges;
mod hub;
mod port;
mod prompt;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use half::bf16;
use meshwright::backend::{Buffer, CachingAllocator, Category, DType, Device, View, ViewMut};
use meshwright::comm::nccl::{MessagePath, NcclEngine, NcclSettings, RealLibrary};
use meshwright::comm::{
    Blocks, CommError, CommStats, Communicator, Peers, RankComms, RankExit, ReduceOp, Site, launch,
};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;

use super::device_collectives::scenario::{self, Scenario, Value};
use hub::Hub;
use port::Port;
use prompt::Prompt;

/// The axis of messages.
const PP: AxisSet = AxisSet::of(AxisId::Pp);

type Script<T> = fn(&mut Scenario<'_, T>) -> Result<(), CommError>;

/// The communicators of a rank whose peers stay alive.
fn connect(hub: &Arc<Hub>, device: &Arc<Prompt>, shape: MeshShape, rank: usize) -> RankComms {
    connect_with(hub, device, settings(shape, rank))
}

/// The communicators of a rank that `launch` has not started.
fn connect_with(hub: &Arc<Hub>, device: &Arc<Prompt>, settings: NcclSettings) -> RankComms {
    let (shape, rank) = (settings.shape, settings.rank);
    RankComms::with_engine(shape, rank, engine_with(hub, device, settings))
}

/// Settings of a rank whose peers stay alive.
fn settings(shape: MeshShape, rank: usize) -> NcclSettings {
    let (timeout, peers) = (Duration::from_secs(20), Arc::new(Alive::default()));
    let messages = MessagePath::PerPair;
    NcclSettings { shape, rank, timeout, peers, messages, registers: false, expected: None }
}

/// Failure detection by hand.
#[derive(Debug, Default)]
struct Alive {
    failed: OnceLock<(usize, RankExit)>,
}

impl Peers for Alive {
    fn failed_peer(&self) -> Option<(usize, RankExit)> {
        self.failed.get().cloned()
    }

    fn announce_exit(&self, _: &RankExit) {}
}

fn engine_with(hub: &Arc<Hub>, device: &Arc<Prompt>, settings: NcclSettings) -> Arc<NcclEngine> {
    let library = Arc::new(Port::new(Arc::new(Arc::clone(hub)), settings.rank));
    let device = Arc::clone(device) as Arc<dyn Device>;
    NcclEngine::new(settings, library, device, &[1; 128]).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs `body` on every rank of a mesh with its communicators, and returns the results.
fn on_ranks<R: Send>(mesh: &str, body: impl Fn(&Hub, usize, &RankComms) -> R + Sync) -> Vec<R> {
    on_ranks_of(mesh.parse().unwrap(), body)
}

fn on_ranks_of<R: Send>(
    shape: MeshShape,
    body: impl Fn(&Hub, usize, &RankComms) -> R + Sync,
) -> Vec<R> {
    let hub = Arc::new(Hub::default());
    let rank = |rank: usize| body(&hub, rank, &connect(&hub, &Arc::default(), shape, rank));
    std::thread::scope(|scope| {
        let rank = &rank;
        let start = |n| scope.spawn(move || rank(n));
        let threads: Vec<_> = (0..shape.world_size()).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn agree<T: Value>(scripts: &[Script<T>], host_memory: bool) {
    for script in scripts {
        for ranks in 2..=4 {
            let mesh = format!("pp={ranks}");
            let expected = launch(&mesh.parse().unwrap(), |comms| {
                let group = comms.group(PP);
                let mut scenario =
                    Scenario::new(&group, CachingAllocator::new(), CachingAllocator::new());
                script(&mut scenario)?;
                Ok::<_, CommError>(scenario.recorded())
            });
            let expected: Vec<Vec<Vec<T>>> = expected.unwrap_or_else(|error| panic!("{error}"));
            let got = on_ranks(&mesh, |_, _, comms| {
                let device: Arc<dyn Device> = Arc::new(Prompt::default());
                let device = (!host_memory).then_some(device);
                let allocator = CachingAllocator::on(device, usize::MAX);
                let group = comms.group(PP);
                let mut scenario = Scenario::new(&group, Arc::clone(&allocator), allocator);
                script(&mut scenario).unwrap_or_else(|error| panic!("{error}"));
                scenario.recorded()
            });
            for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
                let [got, expected]: [&[u8]; 2] = [got, expected].map(|v| bytemuck::cast_slice(v));
                assert!(got == expected, "{ranks} ranks");
            }
        }
    }
}

#[test]
fn collectives_match_the_local_engine() {
    for host_memory in [false, true] {
        agree::<f32>(&[scenario::reductions, scenario::started_reductions], host_memory);
        agree::<bf16>(&[scenario::reductions, scenario::exchanges], host_memory);
        agree::<u32>(&[scenario::exchanges, scenario::started_exchanges], host_memory);
    }
}

/// The members of a group follow the mesh, in any order of the axes: also of the group of all ranks.
#[test]
fn group_ranks_follow_the_coordinates() {
    let shape: MeshShape = "fsdp=2,cp=2,tp=2".parse().unwrap();
    for order in ["fsdp,cp,tp", "tp,cp,fsdp", "cp,fsdp,tp"] {
        let shape = shape.with_order(order.parse().unwrap()).unwrap();
        let axes = [AxisId::Fsdp, AxisId::Cp, AxisId::Tp].map(AxisSet::of);
        let sets = (1..8).map(|bits: usize| {
            let chosen = axes.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            chosen.fold(AxisSet::NONE, |set, (_, axis)| set.union(*axis))
        });
        let sets: Vec<AxisSet> = sets.collect();
        on_ranks_of(shape, |_, rank, comms| {
            for set in &sets {
                let group = comms.group(*set);
                let mut ranks = vec![0u32; group.size()];
                let (site, one_each) = (Site::new("w"), Blocks::even(1, 1, group.size()));
                let own = [rank as u32];
                group
                    .all_gather(&site, own[..].into(), ranks.as_mut_slice().into(), &one_each)
                    .unwrap();
                let members: Vec<u32> = group.members().iter().map(|rank| *rank as u32).collect();
                assert_eq!(ranks, members, "{order}, {set}");
                assert_eq!(shape.group_of(rank, *set), group.members(), "{order}, {set}");
            }
        });
    }
}

#[test]
fn messages_arrive_in_order() {
    agree::<u32>(&[scenario::messages], false);
    agree::<bf16>(&[scenario::messages], true);
}

/// The transfers of one collective each, on rank 1 of 3.
#[test]
fn collectives_use_the_fewest_transfers() {
    let logs = on_ranks("tp=3", |hub, rank, comms| {
        let group = comms.group(AxisSet::of(AxisId::Tp));
        let allocator =
            CachingAllocator::on(Some(Arc::new(Prompt::default()) as Arc<dyn Device>), usize::MAX);
        let site = Site::new("w");
        let data = |len| allocator.zeros(DType::F32, len, Category::Activations);
        hub.take_log(rank);
        let even = Blocks::even(1, 4, 3);
        let (part, mut whole) = (data(4), data(12));
        group.all_gather(&site, part.view(), whole.view_mut(), &even).unwrap();
        group.reduce_scatter(&site, whole.view(), data(4).view_mut(), &even).unwrap();
        // Rows are joined in scratch memory.
        let rows = Blocks::even(2, 2, 3);
        group.all_gather(&site, part.view(), whole.view_mut(), &rows).unwrap();
        group.reduce_scatter(&site, whole.view(), data(4).view_mut(), &rows).unwrap();
        let nearly = Blocks::new(1, [4, 5, 4]);
        let (own, mut odd) = (data(nearly.owned(group.rank())), data(13));
        group.all_gather(&site, own.view(), odd.view_mut(), &nearly).unwrap();
        let odd = group.start_reduce_scatter_in_place(&site, odd, &nearly).wait().unwrap();
        drop(odd);
        let uneven = Blocks::new(1, [5, 0, 7]);
        let own = data(uneven.owned(group.rank()));
        group.all_gather(&site, own.view(), whole.view_mut(), &uneven).unwrap();
        let whole = group.start_reduce_scatter_in_place(&site, whole, &uneven).wait().unwrap();
        let mut to = data(12);
        group.all_to_all(&site, whole.view(), to.view_mut(), &[4; 3], &[4; 3]).unwrap();
        group.all_reduce(&site, ReduceOp::Sum, to.view_mut()).unwrap();
        group.barrier(&site).unwrap();
        hub.take_log(rank)
    });
    assert_eq!(
        logs[1],
        [
            "all_gather 4",
            "reduce_scatter 4",
            "all_gather 4",
            "reduce_scatter 4",
            // Parts of almost equal length are padded.
            "all_gather 5",
            "reduce_scatter 5",
            "broadcast 5 of 0, broadcast 7 of 2",
            "reduce 5 to 0, reduce 7 to 2",
            "send 4 to 0, send 4 to 2, recv 4 of 0, recv 4 of 2",
            "all_reduce 12",
            "all_reduce 1",
        ]
    );
}

/// Numbers of the host in f64 are one call of the library, and the same on all ranks.
#[test]
fn sums_of_f64_are_one_call() {
    let value = |rank: usize, index: usize| (rank as f64 + 0.1).powi(3) * 1e-3 + index as f64;
    let ranks = on_ranks("tp=3", |hub, rank, comms| {
        let group = comms.group(AxisSet::of(AxisId::Tp));
        hub.take_log(rank);
        let mut values: Vec<f64> = (0..2).map(|index| value(rank, index)).collect();
        group.all_reduce_f64(&Site::here("x"), &mut values).unwrap();
        (values, hub.take_log(rank))
    });
    let sum = |index| (0..3).map(|rank| value(rank, index)).sum::<f64>().to_bits();
    for (values, log) in ranks {
        assert_eq!(
            values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
            [sum(0), sum(1)]
        );
        assert_eq!(log, ["all_reduce 2"]);
    }
}

/// Every set of axes is an independent group, with one communicator; single ranks do not use the library.
///
/// The library matches the creation of groups by its order, so a rank that had another order would be in wrong groups.
#[test]
fn groups_of_a_mesh_are_independent() {
    let sums = on_ranks("dp=2,fsdp=2,tp=2", |hub, rank, comms| {
        hub.take_log(rank);
        let sum = |axes: AxisSet| {
            let mut data = [rank as f32];
            let view = ViewMut::from(&mut data[..]);
            comms.group(axes).all_reduce(&Site::new("x"), ReduceOp::Sum, view).unwrap();
            data[0]
        };
        let [dp, fsdp, tp, pp] =
            [AxisId::Dp, AxisId::Fsdp, AxisId::Tp, AxisId::Pp].map(AxisSet::of);
        let sums = [sum(dp), sum(fsdp), sum(tp), sum(dp.union(fsdp)), sum(AxisSet::ALL), sum(pp)];
        assert_eq!(hub.take_log(rank), ["all_reduce 1"; 5]);
        sums
    });
    let shape: MeshShape = "dp=2,fsdp=2,tp=2".parse().unwrap();
    for (rank, sums) in sums.iter().enumerate() {
        let [dp, fsdp, tp] = [AxisId::Dp, AxisId::Fsdp, AxisId::Tp].map(AxisSet::of);
        let sum = |axes| shape.group_of(rank, axes).iter().sum::<usize>() as f32;
        assert_eq!(*sums, [sum(dp), sum(fsdp), sum(tp), sum(dp.union(fsdp)), 28.0, rank as f32]);
    }
}

#[test]
fn engine_finalizes_its_communicators() {
    let hub = Arc::new(Hub::default());
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let hub = &hub;
            scope.spawn(move || {
                let shape = "dp=2,pp=2".parse().unwrap();
                let comms = connect(hub, &Arc::default(), shape, rank);
                let group = comms.group(PP);
                group.barrier(&Site::new("x")).unwrap();
                drop(comms);
                let error = group.barrier(&Site::new("x")).expect_err("it has ended");
                assert!(matches!(error, CommError::Closed { rank: of } if of == rank), "{error}");
            });
        }
    });
    // The root, the world, dp and pp, and two for messages, on each rank.
    assert_eq!(*hub.ended.lock().unwrap(), (0, 4 * 6));
}

#[test]
fn unsupported_calls_are_refused() {
    on_ranks("tp=2", |_, _, comms| {
        let group = comms.group(AxisSet::of(AxisId::Tp));
        let error = group.send(&Site::here("x"), 1, View::from(&[1f32][..])).expect_err("tp");
        assert!(error.to_string().contains("along the axis pp only"), "{error}");
        let mut data = [1u32];
        let data = ViewMut::from(&mut data[..]);
        let error = group.all_reduce(&Site::here("x"), ReduceOp::Sum, data).expect_err("u32");
        assert!(error.to_string().contains("reductions take f32, bf16 or f64"), "{error}");
    });
}

/// Waits until a call of `group` fails, and gives its error.
fn next_failure(group: &Communicator) -> CommError {
    let start = Instant::now();
    loop {
        let mut data = CachingAllocator::new().zeros(DType::F32, 4, Category::Activations);
        if let Err(error) = group.broadcast(&Site::new("next"), 0, data.view_mut()) {
            return error;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "nothing was noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn library_error_aborts_all_communicators() {
    let all_are_here = std::sync::Barrier::new(2);
    let errors = on_ranks("tp=2", |hub, rank, comms| {
        let group = comms.group(AxisSet::of(AxisId::Tp));
        // Both ranks have their communicators.
        all_are_here.wait();
        hub.is_broken.store(true, Ordering::Relaxed);
        let error = next_failure(&group);
        assert!(matches!(error, CommError::Engine { rank: of, .. } if of == rank), "{error}");
        error.to_string()
    });
    for error in errors {
        assert!(error.contains("ncclCommGetAsyncError failed: unhandled cuda error"), "{error}");
    }
}

/// The rank drops its CUDA graphs only after it has the error; the aborts wait for them.
#[test]
fn error_does_not_wait_for_the_aborts() {
    let all_are_here = std::sync::Barrier::new(2);
    let aborted = on_ranks("dp=2", |hub, _, comms| {
        let group = comms.group(AxisSet::of(AxisId::Dp));
        all_are_here.wait();
        hub.aborts_wait.store(true, Ordering::Relaxed);
        hub.is_broken.store(true, Ordering::Relaxed);
        let error = next_failure(&group);
        assert!(matches!(error, CommError::Engine { .. }), "{error}");
        let aborted = hub.ended.lock().unwrap().0;
        all_are_here.wait();
        hub.aborts_wait.store(false, Ordering::Relaxed);
        aborted
    });
    assert_eq!(aborted, [0, 0]);
}

/// A group would hold back all later calls of its thread if it stayed open after an error.
#[test]
fn failed_transfer_ends_its_group() {
    let all_are_here = std::sync::Barrier::new(2);
    let errors = on_ranks("tp=2", |hub, _, comms| {
        let group = comms.group(AxisSet::of(AxisId::Tp));
        all_are_here.wait();
        hub.refuses_transfers.store(true, Ordering::Relaxed);
        let (src, mut dst) = ([1f32; 4], [0f32; 4]);
        let (src, dst) = (src[..].into(), ViewMut::from(&mut dst[..]));
        let error = group.all_to_all(&Site::new("x"), src, dst, &[2; 2], &[2; 2]);
        assert!(!Port::is_group_open());
        error.expect_err("its second transfer is refused").to_string()
    });
    assert!(errors.iter().any(|error| error.contains("ncclSend failed: invalid")), "{errors:?}");
}

#[test]
fn timed_out_call_is_named() {
    late(&["all_reduce(sum, f32 x 0)", "blocks.3.norm"], |_, group, data| {
        drop(group.start_all_reduce(&Site::here("blocks.3.norm"), ReduceOp::Sum, data));
    });
}

#[test]
fn timed_out_replay_is_named() {
    late(&["step 7, with its captured calls over tp"], |comms, _, _| {
        let calls = CommStats { bytes: 12, calls: 3, ..CommStats::default() };
        let tp = AxisSet::of(AxisId::Tp);
        let captured = BTreeMap::from([(tp, calls)]);
        let before = comms.stats()[&tp];
        let mut submitted = 0;
        comms.replay("step 7", &captured, &mut || submitted += 1).unwrap();
        let after = comms.stats()[&tp];
        assert_eq!(submitted, 1);
        assert_eq!((after.bytes - before.bytes, after.calls - before.calls), (12, 3));
    });
}

/// Rank 0 of two, whose device has stopped after a first barrier.
struct StuckRank<'a> {
    hub: &'a Arc<Hub>,
    device: &'a Prompt,
    comms: RankComms,
    group: Arc<Communicator>,
    allocator: Arc<CachingAllocator>,
}

impl StuckRank<'_> {
    fn empty_buffer(&self) -> Buffer {
        self.allocator.zeros(DType::F32, 0, Category::Gradients)
    }
}

/// Runs `stuck` on a rank whose device has stopped and whose calls time out after 0.15 s, and `other` on the other
/// rank.
fn on_stuck_device(stuck: impl Fn(StuckRank<'_>) + Sync, other: impl Fn(&Communicator) + Sync) {
    let (hub, device) = (Arc::new(Hub::default()), Arc::new(Prompt::default()));
    let connect = |rank, timeout, device: &Arc<Prompt>| {
        let timeout = Duration::from_millis(timeout);
        let settings = NcclSettings { timeout, ..settings("tp=2".parse().unwrap(), rank) };
        let comms = connect_with(&hub, device, settings);
        let group = comms.group(AxisSet::of(AxisId::Tp));
        group.barrier(&Site::new("begin")).unwrap();
        (comms, group)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (comms, group) = connect(0, 150, &device);
            // Until the watchdog has seen that the barrier is complete.
            std::thread::sleep(Duration::from_millis(100));
            device.is_stuck.store(true, Ordering::Relaxed);
            let other_device = Arc::new(Prompt::default()) as Arc<dyn Device>;
            let allocator = CachingAllocator::on(Some(other_device), usize::MAX);
            stuck(StuckRank { hub: &hub, device: &device, comms, group, allocator });
        });
        scope.spawn(|| {
            let (_comms, group) = connect(1, 15_000, &Arc::default());
            other(&group);
        });
    });
}

/// Issues calls on a device that is stuck, and waits for the error, which names them by these `parts`.
fn late(parts: &[&str], call: impl Fn(&RankComms, &Communicator, Buffer) + Sync) {
    let stuck = |rank: StuckRank<'_>| {
        let group = &rank.group;
        call(&rank.comms, group, rank.empty_buffer());
        let start = Instant::now();
        let error = loop {
            let data = rank.empty_buffer();
            let next = group.start_all_reduce(&Site::new("next"), ReduceOp::Sum, data);
            if let Err(error) = next.wait() {
                break error.to_string();
            }
            assert!(start.elapsed() < Duration::from_secs(10), "nothing was noticed");
            std::thread::sleep(Duration::from_millis(5));
        };
        for part in parts.iter().chain(&["rank 0: ", "after 0.15 s"]) {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
        drop(rank.comms);
        assert_eq!(rank.hub.ended.lock().unwrap().0, 1, "its communicator was aborted");
        let closed = group.barrier(&Site::new("end"));
        assert!(matches!(closed, Err(CommError::Engine { .. })));
    };
    on_stuck_device(stuck, |_| ());
}

/// The limit of a call is that of its submission.
#[test]
fn calls_wait_longer_for_files() {
    let end = |group: &Communicator| group.barrier(&Site::new("end")).unwrap();
    let stuck = |rank: StuckRank<'_>| {
        let waits_for_files = rank.comms.extend_time_limit();
        let (site, data) = (Site::new("files"), rank.empty_buffer());
        drop(rank.group.start_all_reduce(&site, ReduceOp::Sum, data));
        drop(waits_for_files);
        std::thread::sleep(Duration::from_millis(600));
        rank.device.is_stuck.store(false, Ordering::Relaxed);
        end(&rank.group);
    };
    on_stuck_device(stuck, end);
}

/// Memory is registered when it is reused, and deregistered before it is freed and before finalization.
#[test]
fn reused_memory_is_registered() {
    let (hub, shape) = (Arc::new(Hub::default()), "fsdp=2".parse().unwrap());
    let run = |rank: usize| {
        let device = Arc::new(Prompt::default());
        let settings = NcclSettings { registers: true, ..settings(shape, rank) };
        let comms = connect_with(&hub, &device, settings);
        let group = comms.group(AxisSet::of(AxisId::Fsdp));
        let allocator = CachingAllocator::on(Some(device as Arc<dyn Device>), 5 << 20);
        let site = Site::new("block");
        hub.take_log(rank);
        let gather = |data: Buffer| {
            let blocks = Blocks::even(1, data.len() / 2, 2);
            group.start_all_gather_in_place(&site, data, &blocks).wait().unwrap()
        };
        let zeros = |len| allocator.zeros(DType::F32, len, Category::Parameters);
        let (mut large, mut kept, mut small) = (zeros(1 << 19), zeros(1 << 18), zeros(1 << 17));
        for _ in 0..3 {
            (large, kept, small) = (gather(large), gather(kept), gather(small));
        }
        // The memory of the large one is needed for others.
        drop((large, small));
        drop(zeros((4 << 18) - 16));
        drop(comms);
        hub.take_log(rank)
    };
    let logs: Vec<Vec<String>> = std::thread::scope(|scope| {
        let threads = [0, 1].map(|rank| scope.spawn(move || run(rank)));
        threads.map(|thread| thread.join().unwrap()).into()
    });
    let [large, kept, small] = ["all_gather 262144", "all_gather 131072", "all_gather 65536"];
    let [large_bytes, kept_bytes] = ["register 2097152 bytes", "register 1048576 bytes"];
    let all = [large, kept, small];
    let expected = [
        all.as_slice(),
        &[large_bytes, large, kept_bytes, kept, small],
        &all,
        &["deregister 2097152 bytes", "deregister 1048576 bytes"],
    ];
    assert_eq!(logs, [expected.concat(), expected.concat()]);
}

/// A rank that fails, as a thread of a process with others.
#[test]
fn threads_detect_failed_peers() {
    let hub = Arc::new(Hub::default());
    let start = Instant::now();
    let outcome = launch(&"tp=2".parse().unwrap(), |comms| {
        let rank = comms.rank();
        let settings = NcclSettings { peers: comms.peers(), ..settings(*comms.shape(), rank) };
        let comms = comms.over(engine_with(&hub, &Arc::default(), settings));
        let group = comms.group(AxisSet::of(AxisId::Tp));
        group.barrier(&Site::new("begin"))?;
        if rank == 1 {
            let problem = "it had enough".to_owned();
            return Err(CommError::Argument { call: "its call".into(), problem });
        }
        group.barrier(&Site::new("end"))
    });
    let text = outcome.unwrap_err().to_string();
    assert!(text.starts_with("rank 1 failed: its call: it had enough"), "{text}");
    let expected =
        "rank 0 failed: rank 1 has failed (its call: it had enough); this rank's barrier";
    assert!(text.contains(expected), "{text}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// The barrier of rank 0 waits for rank 1, whose failure is detected.
#[test]
fn failed_peer_is_named() {
    let hub = Arc::new(Hub::default());
    let shape = "tp=2".parse().unwrap();
    let peers = Arc::new(Alive::default());
    let ending = Arc::clone(&peers);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| connect(&hub, &Arc::default(), shape, 1));
        let settings = NcclSettings { peers, ..settings(shape, 0) };
        let comms = connect_with(&hub, &Arc::default(), settings);
        let other = other.join().unwrap();
        let start = Instant::now();
        hub.take_log(0);
        scope.spawn(|| {
            while hub.take_log(0).is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            ending.failed.set((1, RankExit::Failed { error: "no more".into(), code: 3 })).unwrap();
        });
        let group = comms.group(AxisSet::of(AxisId::Tp));
        let error = group.barrier(&Site::new("x")).expect_err("rank 1 makes no barrier");
        let text = error.to_string();
        assert!(text.starts_with("rank 1 has failed (no more); this rank's barrier"), "{text}");
        assert!(start.elapsed() < Duration::from_secs(5));
        drop(other);
    });
    assert_eq!(hub.ended.lock().unwrap().0, 1, "that of rank 0 was aborted");
}

/// An identifier can be created with the library but without a GPU, and nothing else is possible.
#[test]
fn library_creates_identifiers() {
    use meshwright::comm::nccl::Library;
    let library = match RealLibrary::new() {
        Ok(library) => library,
        Err(error) => {
            assert!(error.to_string().contains("NCCL"), "{error}");
            return;
        }
    };
    let [first, second] = [(); 2].map(|()| library.new_id().unwrap());
    assert!(first != second && first != [0; 128], "{library:?}");
}
