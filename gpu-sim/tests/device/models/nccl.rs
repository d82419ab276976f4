//! Ranks with a GPU each: every kind of parallelism through the NCCL engine, with a library that connects threads and
//! logs its calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use meshwright::backend::{Backend, DType};
use meshwright::bench::{COLLECTIVES, measure_collective};
use meshwright::comm::nccl::{MessagePath, NcclEngine, NcclSettings};
use meshwright::comm::{LaunchOptions, RankComms};
use meshwright::models::llama::Llama;
use meshwright::nn::ContextStyle;
use meshwright::tensor::{Rank, Settings as RankSettings, ZeroStage};
use meshwright::train::{Gpus, LanguageModel, Machine, Result, run_on_machine};
use meshwright_cuda::Driver;
use meshwright_gpu_sim::{SimDriver, not_checked_on_gpu};
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::{Batches, PackedData, TokenData, Turn};
use meshwright_tests::run::{Setup, train};

use super::llama::{DATA, setup};
use super::{BF16, F32, compare};
use crate::nccl_stub::hub::Hub;
use crate::nccl_stub::in_order::InOrder;
use crate::nccl_stub::port::Port;

/// A device per rank, and the library between them.
pub struct Cluster {
    pub drivers: Vec<Arc<SimDriver>>,
    gpus: Gpus,
    pub hub: Arc<Hub>,
    messages: MessagePath,
    /// True if the messages of all streams of a device, and in graphs all transfers, share a queue.
    has_one_queue: bool,
}

impl Cluster {
    pub fn new(ranks: usize) -> Cluster {
        Cluster::seeded(ranks, 0)
    }

    /// Creates devices with consecutive seeds, which choose the execution order of their streams.
    fn seeded(ranks: usize, first: u64) -> Cluster {
        let seeds = first..first + ranks as u64;
        let drivers: Vec<_> = seeds.map(|seed| Arc::new(SimDriver::new(seed))).collect();
        let gpus = drivers.iter().map(|driver| Arc::clone(driver) as Arc<dyn Driver>).collect();
        Cluster {
            drivers,
            gpus: Gpus::new(gpus, ranks),
            hub: Arc::default(),
            messages: MessagePath::PerPair,
            has_one_queue: false,
        }
    }

    /// Sends messages in groups.
    pub fn grouped(self) -> Cluster {
        Cluster { messages: MessagePath::Grouped, ..self }
    }

    /// An installation whose waiting messages hold up all others of their device, also a send that has no receiver yet,
    /// and in CUDA graphs collectives too.
    pub fn with_one_queue(self) -> Cluster {
        self.hub.sends_wait.store(true, Ordering::Relaxed);
        Cluster { has_one_queue: true, ..self }
    }
}

impl Machine for Cluster {
    fn backend(&self, rank: usize) -> Result<Box<dyn Backend>> {
        self.gpus.backend(rank)
    }

    fn connect(&self, comms: RankComms, backend: &dyn Backend) -> Result<RankComms> {
        let (shape, rank) = (*comms.shape(), comms.rank());
        let (timeout, peers, messages) = (Duration::from_secs(60), comms.peers(), self.messages);
        let (registers, expected) = (true, None);
        let settings = NcclSettings { shape, rank, timeout, peers, messages, registers, expected };
        let driver = Arc::clone(&self.drivers[rank]);
        let hub = Arc::new(Arc::clone(&self.hub));
        let streams = if self.has_one_queue {
            InOrder::with_one_queue(driver)
        } else {
            InOrder::with_asynchronous_messages(driver)
        };
        let library = Arc::new(Port::on(hub, rank, streams));
        let device = backend.device().expect("a GPU has memory of its own");
        Ok(comms.over(NcclEngine::new(settings, library, device, &[1; 128])?))
    }

    fn describe(&self) -> String {
        self.gpus.describe()
    }

    fn memory(&self) -> Option<f64> {
        self.gpus.memory()
    }

    fn peak_flops(&self, dtype: DType) -> Option<f64> {
        self.gpus.peak_flops(dtype)
    }
}

/// `meshwright bench comm` carries out every collective over the library.
#[test]
fn collectives_are_measured() {
    if not_checked_on_gpu() {
        return;
    }
    let (size, shape) = (1536, "pp=3".parse().unwrap());
    let measure = |rank: &Rank| {
        let time = |one| Ok((one, measure_collective(rank, one, size, DType::F32)?));
        COLLECTIVES.iter().map(time).collect::<Result<Vec<_>>>()
    };
    let options = LaunchOptions::default();
    for (one, time) in run_on_machine(&Cluster::new(3), &shape, &options, measure).unwrap() {
        assert!(time.seconds > 0.0 && time.calls > 0, "{}", one.name);
        if one.call.is_some() {
            assert_eq!(time.sent as f64, size as f64 * one.bus_factor(3), "{}", one.name);
        }
    }
}

#[test]
fn every_parallelism_and_what_it_asks_for() {
    if not_checked_on_gpu() {
        return;
    }
    let one = train("1", &setup(DType::F32), |model: &Llama, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
    let mut report = Report::default();
    let mut calls = Vec::new();
    for (mesh, zero, _) in CALLS {
        let setup = setup(DType::F32);
        let cluster = Arc::new(Cluster::new(ranks_of(mesh)));
        let settings = RankSettings { zero, ..setup.settings };
        let machine = Some(Arc::clone(&cluster) as Arc<dyn Machine>);
        let setup = Setup { settings, machine, ..setup };
        let got = train(mesh, &setup, |model: &Llama, rank, turn| {
            let (tokens, targets) = DATA.block(rank, turn);
            model.loss(&tokens, &targets)
        });
        compare(&mut report, &format!("{zero} on {mesh}"), &got, &one, F32);
        let logs: Vec<_> =
            (0..cluster.drivers.len()).map(|rank| cluster.hub.take_log(rank)).collect();
        assert!(logs.iter().all(|log| log.len() == logs[0].len()), "{mesh}: ranks differ");
        calls.push((mesh, zero, kinds(&logs[0])));
    }
    report.print();
    let expected = CALLS.map(|(mesh, zero, calls)| (mesh, zero, calls.to_owned()));
    assert_eq!(calls, expected);
}

/// Late ranks, and streams that advance in other orders, cause no hang and change no bit of any style.
#[test]
fn late_streams_of_context_parallel_attention() {
    if not_checked_on_gpu() {
        return;
    }
    const DATA: TokenData = TokenData { batch: 2, seq: 24, vocab: 61, masked: true };
    /// Milliseconds that a rank is late in a step: other ranks and steps with each seed.
    fn delay(seed: u64, rank: usize, step: u64) -> u64 {
        (rank as u64 + 2 * step + seed / 100) % 3 * (seed / 5)
    }
    let loss_after = |seed: u64, packed: bool| {
        move |model: &Llama, rank: &Rank, turn: Turn| {
            thread::sleep(Duration::from_millis(delay(seed, rank.index(), turn.step)));
            let (tokens, targets) =
                if packed { PackedData(DATA).block(rank, turn) } else { DATA.block(rank, turn) };
            model.loss(&tokens, &targets)
        }
    };
    let mut report = Report::default();
    for (mesh, style, packed, dtype, tolerance) in [
        ("cp=3", ContextStyle::Ring, true, DType::F32, F32),
        ("cp=2", ContextStyle::Gather, false, DType::F32, F32),
        ("cp=2", ContextStyle::Ulysses, true, DType::F32, F32),
        ("cp=4", ContextStyle::Hybrid(Some(2)), true, DType::F32, F32),
        ("cp=2,tp=2", ContextStyle::Ring, false, DType::Bf16, BF16),
    ] {
        let mut setup = setup(dtype);
        let one = train("1", &setup, loss_after(0, packed));
        setup.sizes.context = Some(style);
        let on = |seed| {
            let machine: Arc<dyn Machine> = Arc::new(Cluster::seeded(ranks_of(mesh), seed));
            let setup = Setup { machine: Some(machine), ..setup.clone() };
            train(mesh, &setup, loss_after(seed, packed))
        };
        let got = on(0);
        let place = format!("{style} on {mesh} in {dtype}, packed={packed}");
        compare(&mut report, &place, &got, &one, tolerance);
        for seed in [100, 200] {
            let late = on(seed);
            assert_eq!(late.losses, got.losses, "{place}");
            assert_same_bits(&place, &late.trained, &got.trained);
        }
    }
    report.print();
}

pub fn ranks_of(mesh: &str) -> usize {
    mesh.split(',').map(|axis| axis[axis.len() - 1..].parse::<usize>().unwrap()).product()
}

/// Returns the number of calls of each kind: `all_gather 24, all_reduce 9`.
fn kinds(log: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for call in log {
        *counts.entry(call.split(' ').next().unwrap_or_default()).or_default() += 1;
    }
    let texts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    texts.join(", ")
}

/// Meshes and ZeRO stages, and the calls in two steps of a two-layer Llama: 5 FSDP units with a gradient reduction per
/// step, the gathers of the comparison, and two for the consistency check of the first step; the sums of the loss, of
/// the norm over ranks with other shards, and of the exchange of each step. Unequal shards (11 positions and 61 tokens
/// over `tp`) differ by so little that they are exchanged as if they were equal.
const CALLS: [(&str, ZeroStage, &str); 8] = [
    ("dp=2", ZeroStage::Replicated, "all_gather 2, all_reduce 14"),
    ("tp=2", ZeroStage::Replicated, "all_gather 78, all_reduce 16, reduce_scatter 20"),
    ("fsdp=2", ZeroStage::Replicated, "all_gather 2, all_reduce 14"),
    ("fsdp=2", ZeroStage::Optimizer, "all_gather 75, all_reduce 6, reduce_scatter 10"),
    ("fsdp=2", ZeroStage::Gradients, "all_gather 75, all_reduce 6, reduce_scatter 10"),
    ("fsdp=2", ZeroStage::Parameters, "all_gather 80, all_reduce 6, reduce_scatter 10"),
    ("dp=2,fsdp=2", ZeroStage::Parameters, "all_gather 80, all_reduce 16, reduce_scatter 10"),
    ("dp=2,fsdp=2,tp=2", ZeroStage::Parameters, "all_gather 156, all_reduce 28, reduce_scatter 30"),
];
