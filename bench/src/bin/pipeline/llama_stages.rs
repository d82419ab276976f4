//! Steps of a small Llama on two stages, compared with the same stages run alone.

use std::sync::Arc;
use std::time::Instant;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::nn::{Sizes, build};
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::rotary::RopeParameters;
use meshwright::schedule::{Schedule, ScheduleKind, verify};
use meshwright::tensor::{Gradients, Pending, Rank, Targets, Tokens};
use meshwright::train::{Error, LanguageModel, Result};
use meshwright_bench::thread_time;

const MICRO_BATCHES: usize = 8;
/// Sequences and tokens of a micro-batch.
const SHAPE: [usize; 2] = [1, 128];
const VOCAB: usize = 2048;
/// Steps that are not measured, and measured ones; the fastest counts.
const WARM: usize = 1;
const STEPS: usize = 5;
const ROUNDS: usize = 9;

/// Times of a step of one rank, in seconds.
#[derive(Debug, Clone, Copy)]
struct StepTimes {
    /// CPU time of the rank's thread.
    cpu: f64,
    /// Time without waits for messages.
    busy: f64,
}

impl StepTimes {
    const MOST: StepTimes = StepTimes { cpu: f64::INFINITY, busy: f64::INFINITY };

    fn fastest(self, other: StepTimes) -> StepTimes {
        StepTimes { cpu: self.cpu.min(other.cpu), busy: self.busy.min(other.busy) }
    }

    fn plus(self, other: StepTimes) -> StepTimes {
        StepTimes { cpu: self.cpu + other.cpu, busy: self.busy + other.busy }
    }
}

type Micro = (Tokens<(<Llama as LanguageModel>::Batch, <Llama as LanguageModel>::Seq)>, Labels);
type Labels = Targets<(<Llama as LanguageModel>::Batch, <Llama as LanguageModel>::Seq)>;

/// Prints the times of steps on two ranks, relative to the same stages on one rank, and of the model without stages.
pub fn report() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let sizes = sizes();
    let two = ScheduleKind::OneFOneB.generate(2, 1, MICRO_BATCHES)?;
    // The same two stages on one rank: forward passes of a micro-batch in order, then its backward passes.
    let alone = ScheduleKind::OneFOneB.generate(1, 1, MICRO_BATCHES)?.split_stages(&[2]);
    println!("\n## Stages of a Llama\n");
    println!(
        "{} parameters, {MICRO_BATCHES} micro-batches of {} tokens, 1f1b on `pp=2` with one thread per rank.",
        run_ranks("1", |rank| Ok(build::<Llama>(rank, &sizes)?.global_len()))?[0],
        SHAPE[0] * SHAPE[1]
    );
    println!(
        "Times are for forward and backward of a step, the fastest of {STEPS}, added over the ranks."
    );
    println!(
        "CPU time is that of the ranks' threads; busy time is the rest after waits for messages."
    );
    println!(
        "The stages run alone on one rank while another one does the same, so that both cores are busy in each column \
         but the first.\n"
    );
    println!(
        "| round | no stages, CPU ms | both stages on one rank | `pp=2` | over the stages alone | busy ms: alone | \
         `pp=2` | over the stages alone |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let over = |time: f64, base: f64| 100.0 * (time / base - 1.0);
    let [mut cpu, mut busy] = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        let whole = run_whole(&sizes)?;
        let alone = run_stages_twice(&sizes, &alone)?;
        let two = run_stages("pp=2", &sizes, &two)?;
        cpu.push(over(two.cpu, alone.cpu));
        busy.push(over(two.busy, alone.busy));
        println!(
            "| {round} | {:.1} | {:.1} | {:.1} | {:+.1} % | {:.1} | {:.1} | {:+.1} % |",
            whole.cpu * 1e3,
            alone.cpu * 1e3,
            two.cpu * 1e3,
            cpu[round - 1],
            alone.busy * 1e3,
            two.busy * 1e3,
            busy[round - 1],
        );
    }
    let [cpu, busy] = [cpu, busy].map(median);
    println!("| median | | | | {cpu:+.1} % | | | {busy:+.1} % |");
    Ok(())
}

/// Returns the middle one of an odd number of values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn sizes() -> Sizes {
    Llama::sizes(&LlamaConfig {
        hidden: 256,
        ffn: 704,
        layers: 8,
        heads: 4,
        kv_heads: 4,
        head_dim: 64,
        vocab: VOCAB,
        norm_eps: 1e-5,
        rope: RopeParameters::with_theta(10_000.0),
        tied: false,
        max_positions: SHAPE[1],
        ..LlamaConfig::default()
    })
}

/// Runs `body` on the ranks of a mesh, each with one thread.
fn run_ranks<T: Send>(mesh: &str, body: impl Fn(&Rank) -> Result<T> + Sync) -> Result<Vec<T>> {
    let launched = meshwright::comm::launch(&mesh.parse()?, |comms| {
        let backend = meshwright::backend::cpu::CpuBackend::new(1)
            .map_err(|error| Error::Input(error.to_string()))?;
        body(&Rank::new(comms, Box::new(backend), 0))
    });
    launched.map_err(|error| Error::Input(error.to_string()))
}

fn micro_batches(rank: &Rank) -> Vec<Micro> {
    let ids = |index: usize, shift: usize| -> Vec<u32> {
        let tokens = SHAPE[0] * SHAPE[1];
        (0..tokens).map(|i| ((37 * (i + shift) + 101 * index) % VOCAB) as u32).collect()
    };
    let block = |index| {
        let tokens = Tokens::from_block(rank, &SHAPE, &ids(index, 0));
        (tokens, Targets::from_block(rank, &SHAPE, &ids(index, 1)))
    };
    (0..MICRO_BATCHES).map(block).collect()
}

/// Runs all steps; `step` returns its gradients and the seconds that the rank waited in it. Their reduction is not
/// measured: it waits for the other ranks.
fn measure(mut step: impl FnMut() -> Result<(Gradients<Pending>, f64)>) -> Result<StepTimes> {
    let mut fastest = StepTimes::MOST;
    for index in 0..WARM + STEPS {
        let (cpu, start) = (thread_time(), Instant::now());
        let (gradients, waited) = step()?;
        let busy = start.elapsed().as_secs_f64() - waited;
        let times = StepTimes { cpu: thread_time() - cpu, busy };
        drop(gradients.reduce());
        if index >= WARM {
            fastest = fastest.fastest(times);
        }
    }
    Ok(fastest)
}

/// Runs training steps of the model on one rank, without stages.
fn run_whole(sizes: &Sizes) -> Result<StepTimes> {
    let times = run_ranks("1", |rank| {
        let built = build::<Llama>(rank, sizes)?;
        let inputs = micro_batches(rank);
        measure(|| {
            let (last, earlier) = inputs.split_last().expect("there are micro-batches");
            let loss = |(tokens, targets): &Micro| built.model.loss(tokens, targets);
            let accumulated = earlier.iter().fold(None, |sum: Option<Gradients<_>>, next| {
                let loss = loss(next);
                Some(match sum {
                    Some(gradients) => gradients.accumulate(loss),
                    None => loss.accumulate(),
                })
            });
            let gradients = accumulated.expect("there are several").backward(loss(last));
            Ok((gradients, 0.0))
        })
    })?;
    Ok(times[0])
}

/// Runs training steps on the stages of a schedule on one rank, while another rank does the same: so both cores are as
/// busy as with two ranks, which matters where they share an execution unit or a memory channel. Returns the mean
/// times.
fn run_stages_twice(sizes: &Sizes, schedule: &Schedule) -> Result<StepTimes> {
    let both = std::thread::scope(|scope| {
        let start = || scope.spawn(|| run_stages("pp=1", sizes, schedule));
        [start(), start()].map(|thread| thread.join().expect("a rank reports its errors"))
    });
    let [first, second] = both;
    let StepTimes { cpu, busy } = first?.plus(second?);
    Ok(StepTimes { cpu: cpu / 2.0, busy: busy / 2.0 })
}

/// Runs training steps on the stages of a schedule.
fn run_stages(mesh: &str, sizes: &Sizes, schedule: &Schedule) -> Result<StepTimes> {
    let verified = verify(schedule).map_err(|faults| Error::Input(format!("{faults:?}")))?;
    let verified = Arc::new(verified);
    let times = run_ranks(mesh, |rank| {
        let placement = &verified.lowered().placement;
        let request = StageRequest { placement, cut: &StageCut::Auto, seq: SHAPE[1] };
        let plan = plan_stages::<Llama>(rank, sizes, &request)?;
        let built = build_stages::<Llama>(rank, sizes, &plan)?;
        let pipeline = Pipeline::new(rank, &built, sizes, &plan, &verified)?;
        let (tokens, targets): (Vec<_>, Vec<_>) = micro_batches(rank).into_iter().unzip();
        measure(|| {
            let step = pipeline.run_step(&built.model, &tokens, |model, output, index| {
                model.loss_of_output(output, &targets[index])
            })?;
            Ok((step.gradients, step.wait.total().as_secs_f64()))
        })
    })?;
    Ok(times.into_iter().reduce(StepTimes::plus).expect("a mesh has ranks"))
}
