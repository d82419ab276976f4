//! All-reduce of the engine `local`, next to plain copies in the same run: `meshwright bench comm` measures all
//! collectives.
//!
//! `cargo run --release -p meshwright-bench --bin comm` prints a Markdown report.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use meshwright::backend::ViewMut;
use meshwright::comm::{CommError, ReduceOp, Site, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;

/// Bytes that are copied and reduced.
const SIZE: usize = 64 << 20;
/// Number of measurements per figure; the median is reported.
const ROUNDS: usize = 7;
/// Rounds of the comparison with copies.
const TURNS: usize = 60;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cores = std::thread::available_parallelism()?;
    println!("# All-reduce of the engine `local`, and copies\n");
    println!("`cargo run --release -p meshwright-bench --bin comm`, on {cores} cores.");
    println!("A rank is a thread; each figure is the median of {ROUNDS} measurements.\n");

    println!("## Plain copies\n");
    println!("`copy_from_slice` by threads that start together, each within memory of its own.\n");
    println!("| bytes in all | threads | time | GB/s |\n|---|---|---|---|");
    let large = SIZE;
    for (threads, each) in [(1, large), (2, large / 2), (2, large)] {
        let time = copy_time(threads, each);
        println!(
            "| {} | {threads} | {} | {:.2} |",
            bytes(threads * each),
            show(time),
            gbps(threads * each, time)
        );
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
