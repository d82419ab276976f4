//! Makespans of pipeline schedules with stages that sleep, relative to the simulator's, and times of a small Llama's
//! stages, relative to the same stages alone.
//!
//! `cargo run --release -p meshwright-bench --bin pipeline` prints a Markdown report.

mod llama_stages;
mod sleeping_stages;
mod slow_links;

use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright::backend::{CachingAllocator, DType};
use meshwright::comm::{Site, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::pipeline::{MessagePart, PipelineExecutor};
use meshwright::schedule::{Costs, Schedule, ScheduleKind, lower_schedule, simulate, verify};

use sleeping_stages::{BenchError, SleepingStages};
use slow_links::SlowLinks;

const RANKS: usize = 4;
const MICRO_BATCHES: usize = 8;
/// Time of a forward pass, and of each part of a backward pass.
const UNIT: Duration = Duration::from_millis(5);
/// Times of a message, in units.
const MESSAGES: [f64; 2] = [0.0, 0.5];
/// Number of computations between posting a receive and its use.
const LOOKAHEADS: [usize; 3] = [0, 1, usize::MAX];
/// Number of measurements per figure; the median is reported.
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("# Pipelines\n");
    println!("`cargo run --release -p meshwright-bench --bin pipeline`");
    report_sleeping_stages()?;
    llama_stages::report()
}

fn report_sleeping_stages() -> Result<(), Box<dyn std::error::Error>> {
    println!("\n## Sleeping stages");
    println!(
        "\n{RANKS} ranks, {MICRO_BATCHES} micro-batches; a forward pass and each part of a backward pass sleep for {} \
         ms.",
        UNIT.as_millis()
    );
    println!(
        "The figures are measured makespans over the simulated one with all receives posted at the start;"
    );
    println!("each is the median of {ROUNDS} measurements.");
    for message in MESSAGES {
        println!("\n### A message takes {message} of a forward pass\n");
        println!("| schedule | simulated, ms | lookahead 0 | lookahead 1 | all at the start |");
        println!("|---|---|---|---|---|");
        for kind in ScheduleKind::ALL {
            let schedule = kind.generate(RANKS, kind.default_chunks(), MICRO_BATCHES)?;
            let simulated = simulated_makespan(&lower_schedule(&schedule, usize::MAX), message)?;
            print!("| {kind} | {:.0} ", simulated * 1e3);
            for lookahead in LOOKAHEADS {
                let measured = median_makespan(&lower_schedule(&schedule, lookahead), message)?;
                print!("| {:.3} ", measured.as_secs_f64() / simulated);
            }
            println!("|");
        }
    }
    Ok(())
}

/// The makespan in seconds.
fn simulated_makespan(lowered: &Schedule, message: f64) -> Result<f64, String> {
    let costs = Costs { message, ..Costs::default() };
    let simulation = simulate(lowered, costs).map_err(|stuck| stuck.to_string())?;
    Ok(simulation.makespan() * UNIT.as_secs_f64())
}

fn median_makespan(
    lowered: &Schedule,
    message: f64,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(run_step(lowered, message)?);
    }
    times.sort();
    Ok(times[ROUNDS / 2])
}

/// Runs one step, and returns the time from the first start to the last end of a rank.
fn run_step(lowered: &Schedule, message: f64) -> Result<Duration, Box<dyn std::error::Error>> {
    let links = (message > 0.0).then(|| SlowLinks::new(UNIT.mul_f64(message)));
    // A name stands for one lookahead.
    let verified = verify(&Schedule { kind: None, ..lowered.clone() });
    let verified = Arc::new(verified.map_err(|findings| format!("{findings:?}"))?);
    let times = launch(&format!("pp={RANKS}").parse()?, |comms| {
        let comms = match &links {
            Some(links) => links.connect(comms),
            None => comms,
        };
        let allocator = CachingAllocator::new();
        let part = |_| vec![MessagePart { dtype: DType::F32, len: 1 }];
        let executor = PipelineExecutor::new(&comms, &allocator, &verified)?;
        let parts = executor.agree_on_parts(part)?;
        let mut stages = SleepingStages::new(lowered.stages(), UNIT, &allocator);
        comms.group(AxisSet::of(AxisId::Pp)).barrier(&Site::new("start"))?;
        let start = Instant::now();
        executor.run_step(&parts, &mut stages)?;
        Ok::<_, BenchError>((start, Instant::now()))
    })?;
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    Ok(start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start))
}
