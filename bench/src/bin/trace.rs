//! Cost of recording a trace: per span, and per collective of two ranks.
//!
//! `cargo run --release -p meshwright-bench --bin trace` prints a Markdown report.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright::backend::ViewMut;
use meshwright::comm::{CommError, LaunchOptions, ReduceOp, Site, launch_with};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::trace::{Lane, Tracer};

/// Number of measurements per figure; the median is reported.
const ROUNDS: usize = 15;
/// Spans per measurement.
const SPANS: usize = 8000;
/// Elements of an all-reduce, and calls per measurement.
const ALL_REDUCES: [(usize, u32); 3] = [(16, 8000), (16 << 10, 4000), (1 << 20, 100)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("# The cost of a trace\n");
    println!(
        "`cargo run --release -p meshwright-bench --bin trace`; each figure is the median of {ROUNDS}"
    );
    println!("measurements.\n");
    println!("| | off | on |\n|---|---|---|");
    let on = Tracer::with_capacity(ROUNDS * SPANS).rank_lane(0, "compute");
    println!("| span | {} | {} |", show(span_time(&Lane::disabled())), show(span_time(&on)));
    for (len, calls) in ALL_REDUCES {
        let (mut off, mut on) = (Vec::new(), Vec::new());
        // Alternating, so that both run under the same load.
        for _ in 0..ROUNDS {
            off.push(collective_time(None, len, calls)?);
            on.push(collective_time(Some(Tracer::new()), len, calls)?);
        }
        println!(
            "| all-reduce of {len} elements, 2 ranks | {} | {} |",
            show(median(off)),
            show(median(on))
        );
    }
    Ok(())
}

fn span_time(lane: &Lane) -> Duration {
    let path: Arc<str> = "blocks.3".into();
    let measure = |_| {
        let start = Instant::now();
        for _ in 0..SPANS {
            drop(black_box(lane).open_span(("forward", &path)));
        }
        start.elapsed() / SPANS as u32
    };
    median((0..ROUNDS).map(measure).collect())
}

fn collective_time(
    tracer: Option<Arc<Tracer>>,
    len: usize,
    calls: u32,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let options = LaunchOptions { tracer, ..LaunchOptions::default() };
    let times = launch_with(&options, &"tp=2".parse()?, |comms| {
        let tp = comms.group(AxisSet::of(AxisId::Tp));
        let site = Site::here("blocks.3.mlp.down");
        let mut data = vec![0.0f32; len];
        data.fill(0.0);
        let start = Instant::now();
        for _ in 0..calls {
            tp.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut data[..]))?;
        }
        Ok::<_, CommError>(start.elapsed() / calls)
    })?;
    Ok(times.into_iter().max().unwrap_or_default())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn show(time: Duration) -> String {
    match time.as_nanos() {
        nanos @ 0..1000 => format!("{nanos} ns"),
        nanos => format!("{:.1} µs", nanos as f64 / 1000.0),
    }
}
