//! Runs with CUDA graphs, compared with eager runs: bitwise equal reports, and few calls. On a GPU, counted calls and
//! injected faults are left out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::nn::{Layer, Sizes};
use meshwright::tensor::{Loss, Tensor, Tokens};
use meshwright::train::{
    Config, Gpus, HfName, LanguageModel, Machine, MemoryUse, Summary, Trainer,
};
use meshwright::{forward, model};
use meshwright_cuda::{CallKind, Driver, DriverError};
use meshwright_gpu_sim::{SimDevice, drivers, not_checked_on_gpu, on_gpu};
use meshwright_tests::models::gpt::{self, Gpt};
use meshwright_tests::models::nested_llama;
use serde_json::Value;

/// Results of a run.
pub struct Left {
    pub summary: Summary,
    /// One object per step, without times.
    pub metrics: Vec<Value>,
    /// Every file of the last checkpoint.
    pub saved: Vec<(String, Vec<u8>)>,
}

/// Runs a short training on one rank; also returns the device if it is simulated.
fn run<M: LanguageModel>(words: &str) -> (Left, Option<SimDevice>) {
    if on_gpu() {
        return (run_on::<M>(words, Box::new(Gpus::new(drivers(11, 1), 1))), None);
    }
    let device = SimDevice::new(11);
    (run_with::<M>(words, &device), Some(device))
}

fn run_with<M: LanguageModel>(words: &str, device: &SimDevice) -> Left {
    let driver: Arc<dyn Driver> = Arc::new(device.driver());
    run_on::<M>(words, Box::new(Gpus::new(vec![driver], 1)))
}

/// Runs a short training with this command line.
fn run_on<M: LanguageModel>(words: &str, machine: Box<dyn Machine>) -> Left {
    run_of_size::<M>("--batch 12 --seq 8 --hidden 32 --layers 2", words, machine)
}

/// Runs a short training of a model with two heads; `sizes` and `words` are parts of its command line, in which `@` is
/// the folder of `text.txt` and `code.txt`.
pub fn run_of_size<M: LanguageModel>(sizes: &str, words: &str, machine: Box<dyn Machine>) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("text.txt"), "the quick brown fox jumps over the lazy dog. ".repeat(40))
        .unwrap();
    std::fs::write(at("code.txt"), "let x = (1 + 2) * 3;\n".repeat(30)).unwrap();
    let data = if words.contains("--data ") { "" } else { "--data @/text.txt" };
    let words = format!("{data} {words}").replace('@', &folder.path().display().to_string());
    let common = format!(
        "train --device cuda {sizes} --heads 2 --sample-tokens 3 --save {} --metrics {} {words}",
        at("run").display(),
        at("steps.jsonl").display()
    );
    let mut config = Config::parse(common.split_whitespace()).unwrap();
    // Also for pipelines that reduce gradients, whose steps are eager by default.
    config.graphs = !words.contains("--no-graphs");
    let summary = Trainer::<M>::on(config, machine).unwrap().train().unwrap();
    let lines = std::fs::read_to_string(at("steps.jsonl")).unwrap();
    Left {
        summary,
        metrics: lines.lines().map(without_times).collect(),
        saved: files(&at("run/latest")),
    }
}

fn without_times(line: &str) -> Value {
    let mut line: Value = serde_json::from_str(line).unwrap();
    let object = line.as_object_mut().unwrap();
    let took = object["step_ms"].as_f64().unwrap();
    for name in ["mfu", "hfu"] {
        // Counted FLOP/s depend on the measured time.
        let share = object[name].as_f64().unwrap() * took;
        object.insert(name.to_owned(), Value::from(format!("{share:.6e}")));
    }
    for name in ["step_ms", "time", "tokens_per_s", "goodput", "save_ms"] {
        object.remove(name);
    }
    line
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let tensors = |path: &Path| path.extension().is_some_and(|kind| kind == "safetensors");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| tensors(path))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "a checkpoint has tensors");
    files
}

/// Checks that everything except times is bitwise equal.
#[track_caller]
pub fn assert_same(what: &str, got: &Left, expected: &Left) {
    let (of, from) = (&got.summary, &expected.summary);
    assert_eq!(of.losses, from.losses, "{what}: losses");
    assert_eq!(of.grad_norms, from.grad_norms, "{what}: gradient norms");
    assert_eq!(of.sample, from.sample, "{what}: continuation");
    assert_same_metrics_and_memory(what, got, expected);
    assert_eq!(of.report.recomputed, from.report.recomputed, "{what}: recomputed FLOPs");
    let sent = |summary: &Summary| {
        let used = summary.report.communication.iter();
        used.map(|used| (used.axes.clone(), used.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(sent(of), sent(from), "{what}: communication");
    assert!(got.saved == expected.saved, "{what}: parameters and optimizer state");
}

/// Returns a peak of communication without the block that a run with graphs may need in addition: graphs keep the
/// buffers of gradients, also while ranks sum the numbers of a step.
fn without_block(peak: u64, eager: u64) -> u64 {
    const BLOCK: u64 = 64;
    if peak == eager + BLOCK { eager } else { peak }
}

#[track_caller]
fn assert_same_metrics_and_memory(what: &str, got: &Left, expected: &Left) {
    let (of, from) = (&got.summary.report.memory, &expected.summary.report.memory);
    assert_eq!(of.len(), from.len(), "{what}: memory");
    for (of, from) in of.iter().zip(from) {
        let peak = match of.category {
            "communication" => without_block(of.peak, from.peak),
            _ => of.peak,
        };
        assert_eq!(MemoryUse { peak, ..of.clone() }, *from, "{what}: memory");
    }
    const PEAK: &str = "/peak_bytes/communication";
    assert_eq!(got.metrics.len(), expected.metrics.len(), "{what}: metrics");
    for (of, from) in got.metrics.iter().zip(&expected.metrics) {
        let [peak, eager] = [of, from].map(|line| line.pointer(PEAK).unwrap().as_u64().unwrap());
        let mut of = of.clone();
        *of.pointer_mut(PEAK).unwrap() = without_block(peak, eager).into();
        assert_eq!(of, *from, "{what}: metrics");
    }
}

fn count(device: &SimDevice, kind: CallKind) -> usize {
    device.log().iter().filter(|entry| entry.kind == kind).count()
}

/// Runs with and without CUDA graphs and compares. Each step has `passes` micro-batch passes, which are graph launches
/// from the third step on.
#[track_caller]
fn check<M: LanguageModel>(words: &str, passes: usize) {
    let (expected, asked) = run::<M>(&format!("{words} --no-graphs"));
    let (got, device) = run::<M>(words);
    assert_same(words, &got, &expected);
    let (Some(asked), Some(device)) = (asked, device) else { return };
    assert_eq!(count(&asked, CallKind::BeginCapture), 0, "{words}");
    let steps = got.summary.losses.len();
    assert_eq!(count(&device, CallKind::LaunchGraph), passes * (steps - 2), "{words}");
    let graphs = count(&device, CallKind::BeginCapture);
    assert!((1..=passes).contains(&graphs), "{words}: {graphs} graph launches");
    assert_eq!(count(&device, CallKind::FreeGraph), graphs, "{words}");
    assert_eq!(device.live().1, 0, "{words}: all memory is freed");
}

#[test]
fn a_recorded_llama_is_the_same() {
    for (words, passes) in [
        ("--dtype f32 --steps 6", 1),
        ("--dtype f32 --steps 5 --micro-batches 3 --ema 0.9", 3),
        ("--steps 6 --recompute full --save-every 2 --keep 3 --clip 0", 1),
        ("--steps 5 --micro-batches 4 --optimizer muon --tied", 4),
        ("--steps 5 --micro-batches 2 --state-dtype bf16", 2),
        ("--dtype f32 --steps 6 --documents 46", 1),
        ("--steps 5 --micro-batches 3 --recompute full --documents 32 --order shuffled", 3),
    ] {
        check::<Llama>(words, passes);
    }
}

#[test]
fn a_recorded_gpt2_is_the_same() {
    check::<Gpt2>("--dtype f32 --steps 5", 1);
    check::<Gpt2>("--steps 5 --micro-batches 3 --recompute every=2", 3);
    check::<Gpt2>("--dtype f32 --steps 6 --micro-batches 2 --documents 32", 2);
}

#[test]
fn cuda_graphs_with_offloading_match_eager() {
    check::<nested_llama::Llama>("--dtype f32 --steps 5", 1);
    check::<nested_llama::Llama>("--steps 5 --micro-batches 2", 2);
}

/// A profile needs individual calls, and does not change results.
#[test]
fn profiled_run_is_not_captured() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(11);
    let (expected, _) = run::<Llama>("--steps 4 --no-graphs");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.csv");
    let driver: Arc<dyn Driver> = Arc::new(device.driver());
    let machine = Gpus::new(vec![driver], 1).profiled(file.clone());
    let got = run_on::<Llama>("--steps 4", Box::new(machine));
    assert_same("profiled", &got, &expected);
    assert_eq!(count(&device, CallKind::BeginCapture), 0);
    let profile = std::fs::read_to_string(&file).unwrap();
    for name in ["matmul", "rms_norm_bf16", "adamw", "copy", "upload"] {
        assert!(profile.lines().any(|line| line.starts_with(name)), "{name} in {profile}");
    }
}

#[test]
fn captured_step_takes_few_calls() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(11);
    run_with::<Llama>("--steps 6", &device);
    let log = device.log();
    let launches: Vec<usize> =
        (0..log.len()).filter(|&at| log[at].kind == CallKind::LaunchGraph).collect();
    // Between two steps: one optimizer launch per FSDP unit and group, the gradient norm, and the values that the host
    // reads.
    for step in launches[1..].windows(2) {
        let calls = &log[step[0]..step[1]];
        let of = |kind| calls.iter().filter(|call| call.kind == kind).count();
        assert!(calls.len() < 120, "{}: {calls:?}", calls.len());
        assert_eq!((of(CallKind::MatMul), of(CallKind::Alloc)), (0, 0), "{calls:?}");
        assert_eq!(of(CallKind::Upload), 2, "tokens and targets");
    }
}

#[test]
fn failed_capture_falls_back_to_eager() {
    if not_checked_on_gpu() {
        return;
    }
    let words = "--steps 5 --micro-batches 3";
    let (expected, _) = run::<Llama>(&format!("{words} --no-graphs"));
    // Immediately, in the middle of a step, and at the end of a capture.
    for (kind, succeed) in
        [(CallKind::BeginCapture, 0), (CallKind::BeginCapture, 2), (CallKind::EndCapture, 1)]
    {
        let device = SimDevice::new(5);
        let reason = "not today".to_owned();
        device.fail(kind, succeed, DriverError::Call { call: "capture", reason });
        let got = run_with::<Llama>(words, &device);
        // Aborted captures are counted, but do not change results.
        assert_eq!(got.summary.losses, expected.summary.losses, "{kind:?} {succeed}");
        assert_eq!(got.summary.grad_norms, expected.summary.grad_norms, "{kind:?} {succeed}");
        assert!(got.saved == expected.saved, "{kind:?} {succeed}");
        assert_eq!(count(&device, CallKind::LaunchGraph), succeed, "{kind:?}: recorded before");
        assert_eq!(device.live().1, 0, "{kind:?} {succeed}: all memory is freed");
    }
}

#[test]
fn failed_graph_launch_names_no_graphs() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(5);
    let reason = "not today".to_owned();
    device.fail(CallKind::LaunchGraph, 1, DriverError::Call { call: "launch_graph", reason });
    let failed = catch_unwind(AssertUnwindSafe(|| run_with::<Llama>("--steps 5", &device)));
    let told = failed.err().and_then(|payload| payload.downcast::<String>().ok()).expect("a text");
    assert!(told.contains("launch_graph failed: not today"), "{told}");
    assert!(told.contains("--no-graphs runs without"), "{told}");
}

/// A model with an auxiliary loss and this probability of dropout, whose masks depend on the step.
macro_rules! model_with_auxiliary_loss {
    ($name:ident, dropout: $dropout:literal) => {
        #[model]
        struct $name {
            gpt: Gpt,
        }

        #[forward]
        impl $name {
            fn forward(&self, tokens: &Tokens<(gpt::Batch, gpt::Seq)>) -> gpt::Stream {
                let x = Layer::forward(&self.gpt, tokens);
                let terms = x.square() * 0.5;
                x.with_auxiliary_loss(&terms)
            }
        }

        impl LanguageModel for $name {
            type Batch = gpt::Batch;
            type Seq = gpt::Seq;
            type Vocab = gpt::Vocab;
            type Config = Gpt2Config;

            const HF_NAMES: &'static [HfName] = &[];

            fn sizes(config: &Gpt2Config) -> Sizes {
                let mut sizes = Gpt::sizes(config);
                sizes.dropout = $dropout;
                sizes
            }

            fn loss_of_output(
                &self,
                x: &gpt::Stream,
                targets: &Tokens<(gpt::Batch, gpt::Seq)>,
            ) -> Loss<(gpt::Batch, gpt::Seq)> {
                self.gpt.loss_of_output(x, targets)
            }

            fn logits_of_output(
                &self,
                x: &gpt::Stream,
            ) -> Tensor<(gpt::Batch, gpt::Seq, gpt::Vocab)> {
                self.gpt.logits_of_output(x)
            }
        }
    };
}

model_with_auxiliary_loss!(Dropping, dropout: 0.25);
model_with_auxiliary_loss!(Decaying, dropout: 0.0);

#[test]
fn auxiliary_losses_are_captured() {
    let words = "--dtype f32 --steps 5 --micro-batches 2";
    check::<Decaying>(words, 2);
    let (with, _) = run::<Decaying>(words);
    let (without, _) = run::<Gpt>(words);
    assert_ne!(with.summary.grad_norms, without.summary.grad_norms);
}

#[test]
fn step_dependent_models_are_not_captured() {
    let words = "--dtype f32 --steps 4 --micro-batches 2";
    let (expected, _) = run::<Dropping>(&format!("{words} --no-graphs"));
    let (got, device) = run::<Dropping>(words);
    assert_same(words, &got, &expected);
    assert!(device.is_none_or(|device| count(&device, CallKind::BeginCapture) == 0));
}

/// A captured sum would be rounded by the same bits in every step.
#[test]
fn sums_of_gradients_in_bf16_are_not_captured() {
    let words = "--steps 4 --micro-batches 2 --grad-dtype bf16";
    let (expected, _) = run::<Llama>(&format!("{words} --no-graphs"));
    let (got, device) = run::<Llama>(words);
    assert_same(words, &got, &expected);
    assert!(device.is_none_or(|device| count(&device, CallKind::BeginCapture) == 0));
}

#[test]
fn memory_pressure_drops_cuda_graphs() {
    let words = "--dtype f32 --steps 5";
    let (expected, _) = run::<Llama>(&format!("{words} --no-graphs"));
    // The minimum memory of the run, which leaves nothing for private pools.
    let total = expected.summary.report.memory.iter().find(|used| used.category == "total");
    let words = format!("{words} --memory-limit {}", total.unwrap().peak);
    let (got, _) = run::<Llama>(&words);
    assert_same(&words, &got, &expected);
}
