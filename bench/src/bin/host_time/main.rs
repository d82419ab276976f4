//! What the host does for a training step on a GPU: calls and time, on a device that does nothing.
//!
//! `host_time [NAME]` prints a Markdown table for each model whose name contains NAME. Times are processor time of the
//! rank's thread, so that a busy machine does not count, and of the quickest of several steps. What the driver itself takes
//! for a call is not among them: `DRIVER_US` is added for each, as CUDA's documentation and measurements elsewhere say.

use std::sync::{Arc, Mutex};

use meshwright::backend::DType;
use meshwright::backend::cuda::Driver;
use meshwright::checkpoint::hf::{Gpt2Config, Gpt2Dropout, LlamaConfig};
use meshwright::comm::{CommError, launch};
use meshwright::mesh::MeshShape;
use meshwright::nn::{Built, Sizes, build};
use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::tensor::{Rank, Settings, Targets, Tokens, ZeroLevel};
use meshwright::train::{Gpus, LanguageModel, Machine};
use meshwright_bench::null::{Call, Counts, NullDriver};
use meshwright_bench::thread_time;
use meshwright_examples::{gpt2::Gpt2, llama::Llama};

/// Steps that are not measured, and those of which the quickest is.
const WARM: u64 = 3;
const STEPS: u64 = 30;

/// Microseconds that the driver takes to submit one kernel, product, copy or event.
const DRIVER_US: f64 = 2.5;
/// Dense bf16 FLOP/s of an H200, and the share of it that a step is assumed to use.
const PEAK: f64 = 989e12;
const MFU: f64 = 0.5;

const PHASES: [&str; 4] = ["forward", "backward", "norm", "optimizer"];

/// A step: calls and seconds by phase.
type Step = [(Counts, f64); PHASES.len()];

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let llama = Llama::sizes(&LlamaConfig {
        hidden: 2048,
        ffn: 8192,
        layers: 16,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        vocab: 32000,
        norm_eps: 1e-5,
        rope_theta: 500_000.0,
        tied: false,
        max_positions: 4096,
        bos: serde_json::Value::Null,
        eos: serde_json::Value::Null,
    });
    let gpt2 = Gpt2::sizes(&Gpt2Config {
        hidden: 768,
        ffn: 3072,
        layers: 12,
        heads: 12,
        vocab: 50304,
        positions: 1024,
        norm_eps: 1e-5,
        dropout: Gpt2Dropout::default(),
        bos: serde_json::Value::Null,
        eos: serde_json::Value::Null,
    });
    let llama = |name: &str, mesh, batch| {
        let case = Case { name, mesh, batch, seq: 4096, looked_up: 32000 * 2048, mixed: 16 * 2048 };
        if name.contains(&filter) {
            case.measure::<Llama>(&llama);
        }
    };
    llama("Llama 1.2B, 4 x 4096 tokens", "1", 4);
    llama("Llama 1.2B, 4 x 4096 tokens a rank, fsdp=2 at level 3", "fsdp=2", 8);
    let name = "GPT-2 124M, 16 x 1024 tokens";
    let case =
        Case { name, mesh: "1", batch: 16, seq: 1024, looked_up: 1024 * 768, mixed: 12 * 768 };
    if name.contains(&filter) {
        case.measure::<Gpt2>(&gpt2);
    }
}

/// What is trained, and how.
struct Case<'a> {
    name: &'a str,
    mesh: &'a str,
    batch: usize,
    seq: usize,
    /// Elements of tables with which no product is computed.
    looked_up: usize,
    /// Elements of a token's heads, of all layers together.
    mixed: usize,
}

impl Case<'_> {
    /// FLOPs of a rank's step: `6 N + 12 L H Q T` for each token, as the trainer counts them.
    fn flops(&self, params: usize, ranks: usize) -> f64 {
        let of_token = 6 * (params - self.looked_up) + 12 * self.mixed * self.seq;
        of_token as f64 * (self.batch * self.seq / ranks) as f64
    }

    /// Trains on the null device and prints what the quickest step of rank 0 took.
    fn measure<M: LanguageModel>(&self, sizes: &Sizes) {
        let mesh: MeshShape = self.mesh.parse().expect("a mesh");
        let ranks = mesh.world_size();
        let drivers: Vec<_> = (0..ranks).map(|_| Arc::new(NullDriver::new())).collect();
        let of_ranks = drivers.iter().map(|driver| Arc::clone(driver) as Arc<dyn Driver>);
        let gpus = Gpus::new(of_ranks.collect(), 1);
        let best: Mutex<Option<(Step, f64)>> = Mutex::default();
        launch(&mesh, |comms| {
            let driver = &drivers[comms.rank()];
            let backend = gpus.backend(comms.rank()).expect("a null device starts");
            let (compute, zero) = (DType::Bf16, ZeroLevel::Parameters);
            let settings = Settings { compute, zero, ..Settings::new(0) };
            let rank = Rank::with_settings(comms, backend, settings);
            let built = build::<M>(&rank, sizes).expect("the sizes fit");
            let mut optimizer = AdamW::new(&rank, &built.units, AdamWOptions::default());
            for number in 0..WARM + STEPS {
                rank.set_step(number);
                let sizes = [self.batch, self.seq];
                let done = step(&rank, &built, &mut optimizer, driver, sizes);
                let mut best = best.lock().expect("no rank fails");
                let is_better =
                    best.as_ref().is_none_or(|(so_far, _)| seconds(&done) < seconds(so_far));
                if rank.index() == 0 && number >= WARM && is_better {
                    *best = Some((done, self.flops(built.global_len(), ranks)));
                }
            }
            Ok::<(), CommError>(())
        })
        .expect("a null device does not fail");
        let best = best.into_inner().expect("no rank fails");
        let (step, flops) = best.expect("steps were measured");
        report(self.name, &step, flops);
        println!("Launches of a step:\n");
        for (kernel, count) in drivers[0].kernels() {
            let of_step = count as f64 / (WARM + STEPS) as f64;
            // What was launched only to make the model is less.
            if of_step >= 1.0 {
                println!("- {of_step:.0} {kernel}");
            }
        }
        println!();
    }
}

fn step<M: LanguageModel>(
    rank: &Rank,
    built: &Built<M>,
    optimizer: &mut AdamW,
    driver: &NullDriver,
    sizes: [usize; 2],
) -> Step {
    let ids = vec![7; sizes[0] * sizes[1] / rank.comms().shape().world_size()];
    let mut phases = Step::default();
    let mut open = (driver.counts(), thread_time());
    let mut ends = |phase: usize| {
        let now = (driver.counts(), thread_time());
        let calls = std::array::from_fn(|call| now.0[call] - open.0[call]);
        phases[phase] = (calls, now.1 - open.1);
        open = now;
    };
    let tokens = Tokens::from_rows(rank, &sizes, 0, &ids);
    let targets = Targets::from_rows(rank, &sizes, 0, &ids);
    let loss = built.model.loss(&tokens, &targets);
    ends(0);
    let mut gradients = loss.backward().reduce();
    ends(1);
    gradients.clip(1.0);
    ends(2);
    optimizer.step(1e-4, gradients);
    ends(3);
    phases
}

fn seconds(step: &Step) -> f64 {
    step.iter().map(|(_, seconds)| seconds).sum()
}

fn report(name: &str, step: &Step, flops: f64) {
    let all = |call: usize| step.iter().map(|(counts, _)| counts[call]).sum::<u64>();
    println!("## {name}\n");
    println!("| a step | {} | all |", PHASES.join(" | "));
    println!("|---{}|", "|---".repeat(PHASES.len() + 1));
    for (call, label) in Call::ALL {
        let cells = step.iter().map(|(counts, _)| counts[call as usize].to_string());
        row(label, cells.chain([all(call as usize).to_string()]));
    }
    let micros = step.iter().map(|(_, seconds)| seconds * 1e6);
    row("host, µs", micros.chain([seconds(step) * 1e6]).map(|micros| format!("{micros:.0}")));
    let submitted: u64 =
        [Call::Launch, Call::Product, Call::Attention, Call::Copy, Call::Record, Call::Wait]
            .map(|call| all(call as usize))
            .iter()
            .sum();
    let (own, driver) = (seconds(step) * 1e3, submitted as f64 * DRIVER_US * 1e-3);
    let gpu = flops / (MFU * PEAK) * 1e3;
    println!(
        "\n{submitted} calls at {:.2} µs of the host each; {own:.2} ms and {driver:.2} ms of the driver are {:.1} % of \
         {gpu:.0} ms on the GPU ({:.1} % without the driver).\n",
        own * 1e3 / submitted as f64,
        100.0 * (own + driver) / gpu,
        100.0 * own / gpu
    );
}

fn row(label: &str, cells: impl Iterator<Item = String>) {
    println!("| {label} | {} |", cells.collect::<Vec<_>>().join(" | "));
}
