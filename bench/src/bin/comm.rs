//! Bandwidth of the collectives of the engine `local`, next to plain copies in the same run.
//!
//! `cargo run --release -p meshwright-bench --bin comm` prints a Markdown report.
//!
//! *Algorithm bandwidth* is the size of the whole tensor divided by the time of a call; *bus bandwidth* is that
//! times the factor of the usual NCCL tests, which makes operations and group sizes comparable.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use meshwright::backend::{View, ViewMut};
use meshwright::comm::{Blocks, CommError, Communicator, ReduceOp, Site, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;

/// Size of the whole tensor, in bytes.
const SIZES: [usize; 6] = [1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20];
/// Number of measurements per figure; the median is reported.
const ROUNDS: usize = 7;
/// Rounds of the comparison with copies.
const TURNS: usize = 60;
/// Minimum duration of a measurement.
const MEASURE: Duration = Duration::from_millis(30);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cores = std::thread::available_parallelism()?;
    println!("# Collectives of the engine `local`\n");
    println!("`cargo run --release -p meshwright-bench --bin comm`, on {cores} cores.");
    println!("A rank is a thread; each figure is the median of {ROUNDS} measurements.\n");

    println!("## Plain copies\n");
    println!("`copy_from_slice` by threads that start together, each within memory of its own.\n");
    println!("| bytes in all | threads | time | GB/s |\n|---|---|---|---|");
    let large = SIZES[SIZES.len() - 1];
    for (threads, each) in [(1, large), (2, large / 2), (2, large)] {
        let time = copy_time(threads, each);
        println!(
            "| {} | {threads} | {} | {:.2} |",
            bytes(threads * each),
            show(time),
            gbps(threads * each, time)
        );
    }

    for ranks in [2, 4] {
        println!("\n## {ranks} ranks\n");
        println!("| operation | size | time | algorithm GB/s | bus GB/s |\n|---|---|---|---|---|");
        for operation in OPERATIONS {
            for size in SIZES {
                let time = collective_time(ranks, size, operation)?;
                let algorithm = gbps(size, time);
                let bus = algorithm * (operation.bus_factor)(ranks as f64);
                let Operation { name, .. } = operation;
                println!(
                    "| {name} | {} | {} | {algorithm:.2} | {bus:.2} |",
                    bytes(size),
                    show(time)
                );
            }
        }
        println!("| barrier | | {} | | |", show(collective_time(ranks, 0, &BARRIER)?));
    }

    let (copied, reduced) = target(large)?;
    println!("\n## The target: all-reduce of {} between 2 ranks\n", bytes(large));
    println!(
        "Two ranks, by turns: they copy {0} between them, half each, into memory of their own; and they all-reduce \
         {0}.\n\
         {TURNS} turns.\n",
        bytes(large)
    );
    println!("| | copy, GB/s | all-reduce, GB/s | ratio |\n|---|---|---|---|");
    for (name, pick) in [("best", best as fn(&[Duration]) -> Duration), ("median", median)] {
        let (copied, reduced) = (gbps(large, pick(&copied)), gbps(large, pick(&reduced)));
        println!("| {name} | {copied:.2} | {reduced:.2} | **{:.2}** |", reduced / copied);
    }
    println!(
        "\nThe ratio is to be at least 0.5. GB/s is {} over the time in both columns.",
        bytes(large)
    );
    Ok(())
}

/// A collective on a whole tensor of `len` elements.
struct Operation {
    name: &'static str,
    /// Bus bandwidth over algorithm bandwidth, by the number of ranks.
    bus_factor: fn(f64) -> f64,
    run: fn(&Communicator, &Site, &mut Memory) -> Result<(), CommError>,
}

/// Buffers of one rank.
struct Memory {
    whole: Vec<f32>,
    other: Vec<f32>,
    part: Vec<f32>,
    blocks: Blocks,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "all_reduce",
        bus_factor: |p| 2.0 * (p - 1.0) / p,
        run: |tp, site, m| tp.all_reduce(site, ReduceOp::Sum, ViewMut::from(&mut m.whole[..])),
    },
    Operation {
        name: "all_gather",
        bus_factor: |p| (p - 1.0) / p,
        run: |tp, site, m| {
            tp.all_gather(site, View::from(&m.part[..]), ViewMut::from(&mut m.whole[..]), &m.blocks)
        },
    },
    Operation {
        name: "reduce_scatter",
        bus_factor: |p| (p - 1.0) / p,
        run: |tp, site, m| {
            tp.reduce_scatter(
                site,
                View::from(&m.whole[..]),
                ViewMut::from(&mut m.part[..]),
                &m.blocks,
            )
        },
    },
    Operation {
        name: "all_to_all",
        bus_factor: |p| (p - 1.0) / p,
        run: |tp, site, m| {
            let (src, dst) = (View::from(&m.whole[..]), ViewMut::from(&mut m.other[..]));
            tp.all_to_all(site, src, dst, &m.blocks.lens, &m.blocks.lens)
        },
    },
    Operation {
        name: "broadcast",
        bus_factor: |_| 1.0,
        run: |tp, site, m| tp.broadcast(site, 0, ViewMut::from(&mut m.whole[..])),
    },
    Operation {
        name: "reduce",
        bus_factor: |_| 1.0,
        run: |tp, site, m| tp.reduce(site, 0, ReduceOp::Sum, ViewMut::from(&mut m.whole[..])),
    },
    Operation {
        name: "scatter",
        bus_factor: |p| (p - 1.0) / p,
        run: |tp, site, m| {
            let src = (tp.rank() == 0).then(|| View::from(&m.whole[..]));
            tp.scatter(site, 0, src, ViewMut::from(&mut m.part[..]), &m.blocks.lens)
        },
    },
    Operation {
        name: "gather",
        bus_factor: |p| (p - 1.0) / p,
        run: |tp, site, m| {
            let src = View::from(&m.part[..]);
            let dst = if tp.rank() == 0 { Some(ViewMut::from(&mut m.whole[..])) } else { None };
            tp.gather(site, 0, src, dst, &m.blocks.lens)
        },
    },
    Operation {
        name: "send to the next, recv from the previous",
        bus_factor: |_| 1.0,
        run: |tp, site, m| {
            let (rank, size) = (tp.rank(), tp.size());
            tp.send(site, (rank + 1) % size, View::from(&m.whole[..]))?;
            tp.recv(site, (rank + size - 1) % size, ViewMut::from(&mut m.other[..]))
        },
    },
];

const BARRIER: Operation =
    Operation { name: "barrier", bus_factor: |_| 0.0, run: |tp, site, _| tp.barrier(site) };

/// Returns the median time of one call on rank 0.
fn collective_time(
    ranks: usize,
    size: usize,
    operation: &Operation,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let shape = MeshShape::new([(AxisId::Tp, ranks)])?;
    let times = launch(&shape, |comms| {
        let tp = comms.group(AxisSet::of(AxisId::Tp));
        let site = Site::new(operation.name);
        let len = size / size_of::<f32>();
        let blocks = Blocks::even(1, len / ranks, ranks);
        let mut memory = Memory {
            // Ones would overflow if summed repeatedly; zeros stay.
            whole: vec![0.0; len],
            other: vec![1.0; len],
            part: vec![1.0; len / ranks],
            blocks,
        };
        memory.whole.fill(0.0);
        let mut run = |calls: usize| {
            tp.barrier(&site)?;
            let start = Instant::now();
            for _ in 0..calls {
                (operation.run)(&tp, &site, &mut memory)?;
            }
            tp.barrier(&site)?;
            Ok::<_, CommError>(start.elapsed() / calls as u32)
        };
        // Warm-up; rank 0 determines the calls per measurement.
        let first = run(2)?.max(Duration::from_nanos(100));
        let mut calls = [(MEASURE.as_nanos() / first.as_nanos()).clamp(1, 100_000) as u32];
        tp.broadcast(&site, 0, ViewMut::from(&mut calls[..]))?;
        (0..ROUNDS).map(|_| run(calls[0] as usize)).collect::<Result<Vec<_>, CommError>>()
    })?;
    Ok(median(&times.into_iter().next().unwrap_or_default()))
}

/// Returns the times of a copy of `size` bytes between two ranks, and of an all-reduce of `size` bytes.
fn target(size: usize) -> Result<(Vec<Duration>, Vec<Duration>), Box<dyn std::error::Error>> {
    let shape = MeshShape::new([(AxisId::Tp, 2)])?;
    let times = launch(&shape, |comms| {
        let tp = comms.group(AxisSet::of(AxisId::Tp));
        let site = Site::new("target");
        let mut data = vec![0.0f32; size / size_of::<f32>()];
        // Zeros stay in range however often they are summed; written, so that the pages are committed.
        data.fill(0.0);
        let src = vec![1.0f32; data.len() / 2];
        let mut dst = vec![0.0f32; src.len()];
        let (mut copied, mut reduced) = (Vec::new(), Vec::new());
        for _ in 0..TURNS + 1 {
            tp.barrier(&site)?;
            let start = Instant::now();
            dst.copy_from_slice(black_box(&src));
            black_box(&mut dst);
            tp.barrier(&site)?;
            copied.push(start.elapsed());
            let start = Instant::now();
            tp.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut data[..]))?;
            reduced.push(start.elapsed());
        }
        // The first round touches the memory.
        Ok::<_, CommError>((copied.split_off(1), reduced.split_off(1)))
    })?;
    Ok(times.into_iter().next().unwrap_or_default())
}

/// Returns the median time that `threads` threads take to copy `each` bytes.
fn copy_time(threads: usize, each: usize) -> Duration {
    let gate = Barrier::new(threads);
    let times = std::thread::scope(|scope| {
        let copy = || {
            let src = vec![1.0f32; each / size_of::<f32>()];
            let mut dst = vec![0.0f32; src.len()];
            let mut times = Vec::new();
            for _ in 0..ROUNDS + 2 {
                gate.wait();
                let start = Instant::now();
                for _ in 0..4 {
                    dst.copy_from_slice(black_box(&src));
                    black_box(&mut dst);
                }
                gate.wait();
                times.push(start.elapsed() / 4);
            }
            // The first two rounds touch the memory.
            times.split_off(2)
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(copy)).collect();
        handles.into_iter().map(|handle| handle.join()).collect::<Vec<_>>()
    });
    times.into_iter().flatten().next().map_or(Duration::ZERO, |times| median(&times))
}

fn best(times: &[Duration]) -> Duration {
    times.iter().min().copied().unwrap_or_default()
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn gbps(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

fn bytes(count: usize) -> String {
    if count >= 1 << 20 { format!("{} MiB", count >> 20) } else { format!("{} KiB", count >> 10) }
}

fn show(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1000.0 { format!("{micros:.1} µs") } else { format!("{:.2} ms", micros / 1e3) }
}
