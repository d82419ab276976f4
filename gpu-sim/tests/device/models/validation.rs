//! Evaluations between steps that are replayed as CUDA graphs: nothing of training changes.

use meshwright::models::llama::Llama;
use meshwright::train::Evaluation;
use meshwright_cuda::CallKind;
use meshwright_gpu_sim::not_checked_on_gpu;

use super::graphs::{Left, run_of_size};
use super::nccl::{Cluster, ranks_of};

/// Sizes of runs of up to 4 ranks, each on a simulated GPU.
const SMALL: &str = "--batch 4 --seq 8 --hidden 16 --layers 2 --steps 6";
/// The last batch is not full, and its last row ends early.
const VALIDATION: &str = "--eval-fraction 0.06 --eval-every 1";

/// Trains, and returns the results with the numbers of captures and of graph launches of each rank.
fn run(words: &str) -> (Left, Vec<[usize; 2]>) {
    let cluster = Cluster::new(ranks_of(words.split(' ').nth(1).unwrap())).grouped();
    let drivers = cluster.drivers.clone();
    let left = run_of_size::<Llama>(SMALL, words, Box::new(cluster));
    let calls = drivers.iter().map(|driver| {
        let log = driver.device().log();
        let count = |kind| log.iter().filter(|entry| entry.kind == kind).count();
        [count(CallKind::BeginCapture), count(CallKind::LaunchGraph)]
    });
    (left, calls.collect())
}

/// The losses of the rows of each source are computed in the graphs.
#[test]
fn losses_of_sources_come_from_graphs() {
    if not_checked_on_gpu() {
        return;
    }
    let mixture = "--data @/text.txt:3,@/code.txt:1";
    for words in [
        "--mesh 1 --micro-batches 2",
        "--mesh fsdp=2 --zero 3 --dtype f32",
        "--mesh dp=2,tp=2 --dtype f32",
        "--mesh pp=2 --micro-batches 2 --dtype f32",
    ] {
        let (captured, calls) = run(&format!("{words} {mixture}"));
        assert!(calls.iter().all(|[captures, _]| *captures > 0), "{words}: {calls:?}");
        let (eager, _) = run(&format!("{words} {mixture} --no-graphs"));
        for key in ["loss", "loss.text", "loss.code", "epoch.code", "grad_norm"] {
            let of =
                |left: &Left| left.metrics.iter().map(|line| line[key].clone()).collect::<Vec<_>>();
            assert_eq!(of(&captured), of(&eager), "{words}: {key}");
        }
        for line in &captured.metrics {
            let [loss, text, code] =
                ["loss", "loss.text", "loss.code"].map(|key| line[key].as_f64());
            let (loss, text) = (loss.unwrap(), text.unwrap());
            let (low, high) = code.map_or((text, text), |code| (text.min(code), text.max(code)));
            assert!(low - 1e-5 < loss && loss < high + 1e-5, "{words}: {line}");
        }
        assert!(captured.metrics.iter().any(|line| line["loss.code"].is_f64()), "{words}");
    }
}

/// Returns the losses of evaluations, and the targets that they count.
fn losses(left: &Left) -> Vec<(f64, u64)> {
    let of = |evaluation: &Evaluation| (evaluation.loss, evaluation.targets);
    left.summary.evaluations.iter().map(of).collect()
}

#[test]
fn evaluations_leave_graphs_and_training_as_they_are() {
    if not_checked_on_gpu() {
        return;
    }
    for words in [
        "--mesh 1 --micro-batches 2",
        "--mesh fsdp=2 --zero 3 --dtype f32",
        "--mesh fsdp=2 --zero 3 --micro-batches 2 --recompute full",
        "--mesh fsdp=2 --zero 1",
        "--mesh dp=2,tp=2 --dtype f32",
        "--mesh pp=2 --micro-batches 2",
        "--mesh pp=2,fsdp=2 --zero 3 --micro-batches 2 --dtype f32",
    ] {
        // The same rows are trained on.
        let (plain, calls) = run(&format!("{words} --eval-fraction 0.06 --eval-every 1000"));
        let (got, with_evaluations) = run(&format!("{words} {VALIDATION}"));
        let of_training = |left: &Left| {
            let summary = &left.summary;
            (summary.losses.clone(), summary.grad_norms.clone(), summary.sample.clone())
        };
        assert_eq!(of_training(&got), of_training(&plain), "{words}");
        assert!(got.saved == plain.saved, "{words}: parameters and optimizer state");
        assert_eq!(with_evaluations, calls, "{words}: captures and launches");
        assert!(calls.iter().all(|[captures, _]| *captures > 0), "{words}: {calls:?}");
        let evaluations = losses(&got);
        assert_eq!((evaluations.len(), evaluations.last()), (6, losses(&plain).last()), "{words}");
        let (eager, _) = run(&format!("{words} {VALIDATION} --no-graphs"));
        assert_eq!(losses(&eager), evaluations, "{words}");
    }
}
