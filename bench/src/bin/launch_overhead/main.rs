//! Launch overhead of a training step on a GPU: driver calls and CPU time, measured on a null driver.
//!
//! `launch_overhead [NAME]` prints a Markdown table for each model whose name contains NAME. Times are CPU time of the
//! rank's thread, which does not depend on the machine's load, and of the fastest of several steps. The time inside the
//! CUDA driver is not measured: `DRIVER_US` is added for each call, from CUDA's documentation and published
//! measurements.

use std::sync::{Arc, Mutex};

use meshwright::backend::DType;
use meshwright::checkpoint::hf::{Gpt2Config, Gpt2Dropout, LlamaConfig};
use meshwright::comm::{CommError, launch};
use meshwright::mesh::MeshShape;
use meshwright::models::{Gpt2, Llama};
use meshwright::nn::{Built, Sizes, build};
use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::rotary::RopeParameters;
use meshwright::tensor::{Rank, Settings, Targets, Tokens, ZeroStage};
use meshwright::train::{Gpus, LanguageModel, Machine};
use meshwright_bench::call_counter::{CallCounter, CallCounts};
use meshwright_bench::thread_time;
use meshwright_cuda::{CallKind, Driver};

/// Steps that are not measured, and measured steps; the fastest is reported.
const WARM: u64 = 3;
const STEPS: u64 = 30;

/// Time in the CUDA driver to submit one kernel, matmul, copy or event, in microseconds.
const DRIVER_US: f64 = 2.5;
/// Dense bf16 FLOP/s of an H200, and the assumed utilization.
const PEAK: f64 = 989e12;
const MFU: f64 = 0.5;

const PHASES: [&str; 4] = ["forward", "backward", "norm", "optimizer"];

/// Calls that submit work to a stream: label, and kinds that are counted together.
const SUBMITTED: [(&str, &[CallKind]); 6] = [
    ("kernel launches", &[CallKind::Launch]),
    ("matmuls", &[CallKind::MatMul]),
    ("attention", &[CallKind::Attention, CallKind::AttentionBackward]),
    ("copies", &[CallKind::Upload, CallKind::Download, CallKind::Copy, CallKind::Zero]),
    ("event records", &[CallKind::Record, CallKind::RecordInGraph]),
    ("event waits", &[CallKind::Wait]),
];

/// Other calls.
const OTHERS: [(&str, &[CallKind]); 3] = [
    ("event creations", &[CallKind::NewEvent]),
    ("synchronizations", &[CallKind::Synchronize]),
    ("allocations", &[CallKind::Alloc]),
];

/// Call counts and seconds of a step, by phase.
type Step = [Phase; PHASES.len()];

/// Call counts and seconds.
type Phase = (CallCounts, f64);

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
        rope: RopeParameters::with_theta(500_000.0),
        tied: false,
        max_positions: 4096,
        ..LlamaConfig::default()
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
    llama("Llama 1.2B, 4 x 4096 tokens a rank, fsdp=2 at ZeRO stage 3", "fsdp=2", 8);
    let name = "GPT-2 124M, 16 x 1024 tokens";
    let case =
        Case { name, mesh: "1", batch: 16, seq: 1024, looked_up: 1024 * 768, mixed: 12 * 768 };
    if name.contains(&filter) {
        case.measure::<Gpt2>(&gpt2);
    }
}

/// A model with its batch and mesh.
struct Case<'a> {
    name: &'a str,
    mesh: &'a str,
    batch: usize,
    seq: usize,
    /// Elements of embedding tables that are not used in a matmul.
    looked_up: usize,
    /// Elements of a token's heads, over all layers.
    mixed: usize,
}

impl Case<'_> {
    /// Returns the FLOPs of a rank's step: `6 N + 12 L H Q T` per token, as the trainer counts them.
    fn flops(&self, params: usize, ranks: usize) -> f64 {
        let of_token = 6 * (params - self.looked_up) + 12 * self.mixed * self.seq;
        of_token as f64 * (self.batch * self.seq / ranks) as f64
    }

    /// Trains on null drivers and prints the fastest step of rank 0.
    fn measure<M: LanguageModel>(&self, sizes: &Sizes) {
        let mesh: MeshShape = self.mesh.parse().expect("a mesh");
        let ranks = mesh.world_size();
        let (drivers, counters): (Vec<_>, Vec<_>) =
            (0..ranks).map(|_| CallCounter::driver()).unzip();
        let drivers = drivers.into_iter().map(|driver| Arc::new(driver) as Arc<dyn Driver>);
        let gpus = Gpus::new(drivers.collect(), 1);
        let best: Mutex<Option<(Step, f64)>> = Mutex::default();
        launch(&mesh, |comms| {
            let counter = &counters[comms.rank()];
            let backend = gpus.backend(comms.rank()).expect("a null device starts");
            let (compute, zero) = (DType::Bf16, ZeroStage::Parameters);
            let settings = Settings { compute, zero, ..Settings::new(0) };
            let rank = Rank::with_settings(comms, backend, settings);
            let built = build::<M>(&rank, sizes).expect("the sizes fit");
            let mut optimizer = AdamW::new(&rank, &built.units, AdamWOptions::default());
            for number in 0..WARM + STEPS {
                rank.set_step(number);
                let sizes = [self.batch, self.seq];
                let done = step(&rank, &built, &mut optimizer, counter, sizes);
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
        for (kernel, count) in counters[0].kernel_launches() {
            let of_step = count as f64 / (WARM + STEPS) as f64;
            // Kernels that were launched only to make the model are fewer.
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
    counter: &CallCounter,
    sizes: [usize; 2],
) -> Step {
    let ids = vec![7; sizes[0] * sizes[1] / rank.comms().shape().world_size()];
    let mut phases = Vec::new();
    let mut open = (counter.counts(), thread_time());
    let mut ends = || {
        let now = (counter.counts(), thread_time());
        let calls = std::array::from_fn(|call| now.0[call] - open.0[call]);
        phases.push((calls, now.1 - open.1));
        open = now;
    };
    let tokens = Tokens::from_rows(rank, &sizes, 0, &ids);
    let targets = Targets::from_rows(rank, &sizes, 0, &ids);
    let loss = built.model.loss(&tokens, &targets);
    ends();
    let mut gradients = loss.backward().reduce();
    ends();
    gradients.clip(1.0);
    ends();
    optimizer.step(1e-4, gradients);
    ends();
    phases.try_into().expect("all phases")
}

fn seconds(step: &Step) -> f64 {
    step.iter().map(|(_, seconds)| seconds).sum()
}

fn report(name: &str, step: &Step, flops: f64) {
    let count = |(counts, _): &Phase, kinds: &[CallKind]| {
        kinds.iter().map(|kind| counts[*kind as usize]).sum::<u64>()
    };
    let all = |kinds| step.iter().map(|phase| count(phase, kinds)).sum::<u64>();
    println!("## {name}\n");
    println!("| a step | {} | all |", PHASES.join(" | "));
    println!("|---{}|", "|---".repeat(PHASES.len() + 1));
    for (label, kinds) in SUBMITTED.into_iter().chain(OTHERS) {
        let cells = step.iter().map(|phase| count(phase, kinds));
        row(label, cells.chain([all(kinds)]).map(|count| count.to_string()));
    }
    let micros = step.iter().map(|(_, seconds)| seconds * 1e6);
    row(
        "launch overhead, µs",
        micros.chain([seconds(step) * 1e6]).map(|micros| format!("{micros:.0}")),
    );
    let submitted: u64 = SUBMITTED.iter().map(|(_, kinds)| all(kinds)).sum();
    let (own, driver) = (seconds(step) * 1e3, submitted as f64 * DRIVER_US * 1e-3);
    let gpu = flops / (MFU * PEAK) * 1e3;
    println!(
        "\n{submitted} calls at {:.2} µs of launch overhead each; {own:.2} ms and {driver:.2} ms in the CUDA driver \
         are {:.1} % of {gpu:.0} ms of GPU time ({:.1} % without the CUDA driver).\n",
        own * 1e3 / submitted as f64,
        100.0 * (own + driver) / gpu,
        100.0 * own / gpu
    );
}

fn row(label: &str, cells: impl Iterator<Item = String>) {
    println!("| {label} | {} |", cells.collect::<Vec<_>>().join(" | "));
}
