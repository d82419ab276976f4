//! The trainer on a device, with checkpoints, metrics and resuming.

use std::path::Path;
use std::time::Duration;

use meshwright::models::llama::Llama;
use meshwright::sim::calibrate::{StepRecord, calibrate};
use meshwright::train::{Config, Gpus, Summary, Trainer};
use meshwright_gpu_sim::{drivers, not_checked_on_gpu};
use meshwright_tests::lanes::{Span, lanes};
use serde_json::Value;

/// Runs a short training with this command line.
fn run(words: &str, folder: &Path) -> Summary {
    try_run(words, folder).unwrap()
}

fn try_run(words: &str, folder: &Path) -> meshwright::Result<Summary> {
    let (save, metrics) = (folder.join("run"), folder.join("steps.jsonl"));
    let text = folder.join("text.txt");
    std::fs::write(&text, "the quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
    let common = format!(
        "train --device cuda --data {} --batch 4 --seq 16 --layers 2 --sample-tokens 4 --save {} \
         --metrics {} {words}",
        text.display(),
        save.display(),
        metrics.display()
    );
    let sizes = if words.contains("--hidden") { "" } else { " --hidden 32 --heads 2" };
    let config = Config::parse((common + sizes).split_whitespace()).unwrap();
    let ranks = config.mesh.world_size();
    let machine = Box::new(Gpus::new(drivers(3, ranks), 1));
    Trainer::<Llama>::on(config, machine)?.train()
}

#[test]
fn the_summary_names_the_implementation_of_attention() {
    if not_checked_on_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for dtype in ["f32", "bf16"] {
        let summary = run(&format!("--mesh 1 --steps 1 --dtype {dtype}"), folder.path());
        assert_eq!(summary.report.attention.unwrap(), "own kernels (without cuDNN)");
        std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    }
}

/// The declaration of the model refuses them, before any of it is allocated.
#[test]
fn too_wide_heads_are_refused_with_their_field() {
    if not_checked_on_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for dtype in ["f32", "bf16"] {
        let words = format!("--mesh 1 --steps 1 --dtype {dtype} --hidden 1024 --heads 1 --ffn 32");
        let text = try_run(&words, folder.path()).unwrap_err().to_string();
        let expected = "`blocks.*.attn.core`: heads of 1024 elements, with values of 1024, need ";
        assert!(text.contains(expected) && text.contains("the model cannot be built"), "{text}");
    }
}

#[test]
fn a_run_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = "--mesh fsdp=2 --dtype bf16";
    let whole = run(&format!("{mesh} --steps 4"), folder.path());
    assert!(whole.losses[3] < whole.losses[0], "{:?}", whole.losses);
    assert_eq!(whole.sample.len() - whole.prompt_len, 4);

    let folder = tempfile::tempdir().unwrap();
    run(&format!("{mesh} --steps 2"), folder.path());
    let latest = folder.path().join("run/latest");
    let rest = run(&format!("{mesh} --steps 4 --resume {}", latest.display()), folder.path());
    assert_eq!(rest.losses, whole.losses[2..]);

    let lines = std::fs::read_to_string(folder.path().join("steps.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 4);
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert!(last["mfu"].as_f64().unwrap() > 0.0, "{last}");
    assert!(last["peak_bytes"]["parameters"].as_u64().unwrap() > 0, "{last}");
}

#[test]
fn a_head_takes_what_was_planned() {
    // 64 tokens and 256 columns of bf16, on a device with enough memory for all of them.
    let logits = 64 * 256 * 2;
    // The gradient of an embedding is accumulated in f32 before it is added to the gradients of other micro-batches.
    let table = 256 * 32 * 4;
    for (mesh, planned) in [("1", logits), ("dp=2", logits / 2)] {
        let folder = tempfile::tempdir().unwrap();
        let summary = run(&format!("--mesh {mesh} --dtype bf16 --steps 1"), folder.path());
        let used = &summary.report.memory;
        let workspace = used.iter().find(|used| used.category == "workspace").unwrap();
        assert_eq!(workspace.planned, planned.max(table), "{used:?}");
        assert!(used.iter().all(|used| used.planned <= used.peak), "{used:?}");
    }
}

/// The simulated device is none of the catalog, so that only a run that names its cluster has a predicted step.
#[test]
fn the_summary_predicts_the_step() {
    if not_checked_on_gpu() {
        return;
    }
    let predict = |words: &str| {
        let folder = tempfile::tempdir().unwrap();
        run(&format!("--mesh fsdp=2 --steps 1 {words}"), folder.path()).prediction
    };
    assert_eq!(predict(""), None);
    let prediction = predict("--cluster h100").unwrap();
    assert_eq!((&*prediction.cluster, prediction.uncertainty), ("h100-dgx", 0.08));
    assert!(prediction.step_s > 1e-5 && prediction.step_s < 1.0, "{prediction:?}");
    let text = prediction.beside(2.0 * prediction.step_s);
    assert!(text.contains(" predicted for h100-dgx (-50.0 %)"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let text = try_run("--mesh fsdp=3,tp=3 --cluster h100", folder.path()).unwrap_err().to_string();
    assert!(
        text.starts_with("--cluster: 9 of h100-dgx: nodes of 8 GPUs do not divide 9"),
        "{text}"
    );
}

#[test]
fn a_trace_shows_what_the_device_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let words = format!("--mesh fsdp=2,tp=2 --zero 3 --steps 2 --trace {}", path.display());
    let summary = run(&words, folder.path());
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let lanes = lanes(&trace);
    for rank in 0..4 {
        let lane = |name: &str| {
            let lane = lanes.get(&(rank, format!("device {name}")));
            lane.unwrap_or_else(|| panic!("rank {rank}: no `{name}` in {:?}", lanes.keys()))
        };
        let count = |lane: &[Span], name: &str| lane.iter().filter(|s| s.name == name).count();
        let compute = lane("compute");
        assert_eq!(count(compute, "optimizer"), 2);
        for (name, least) in [("forward Block", 4), ("backward Block", 2), ("forward Llama", 2)] {
            assert!(count(compute, name) >= least, "rank {rank}: {name}");
        }
        assert!(compute.iter().any(|span| span.category == "wait"));
        assert!(count(lane("comm fsdp"), "all_gather blocks.0 (parameters)") >= 2);
        assert!(count(lane("comm fsdp"), "reduce_scatter blocks.0 (gradient)") >= 2);
        for ((_, name), spans) in lanes.range((rank, String::new())..(rank + 1, String::new())) {
            if name.starts_with("device ") {
                check_lane(&format!("rank {rank}, {name}"), spans);
            }
        }
    }
    // Communication times are measured on the device.
    for axis in ["fsdp", "tp"] {
        let used = summary.report.communication.iter().find(|used| used.axes == axis);
        let used = used.unwrap_or_else(|| panic!("no {axis}: {:?}", summary.report));
        assert!(used.exposed > Duration::ZERO, "{used:?}");
    }
}

/// Kernels and calls are measured by events of the device, and the file calibrates a cluster.
#[test]
fn steps_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    for (mesh, name) in [("1", "one.json"), ("fsdp=2,tp=2 --zero 3", "four.json")] {
        let path = folder.path().join(name);
        run(&format!("--mesh {mesh} --steps 4 --record {}", path.display()), folder.path());
        let record = StepRecord::read(&path).unwrap();
        assert_eq!((record.device.kind.as_str(), record.measured_steps), ("cuda", 1));
        let device = &record.device;
        assert!(!device.name.is_empty() && device.units > 0 && device.memory > 0, "{device:?}");
        let has =
            |op: &str| record.kernels.iter().any(|kernel| kernel.op == op && kernel.count > 0);
        assert!(has("gemm") && has("attention_backward") && has("adamw"), "{record:?}");
        let sum: f64 = record.kernels.iter().map(|own| own.seconds * own.count as f64).sum();
        assert!(sum > 0.0 && sum < 10.0 * record.recorded_seconds, "{sum}");
        let calls = record.calls.iter().filter(|call| call.group == 2 && call.seconds > 0.0);
        assert_eq!(calls.count() > 3, name == "four.json", "{:?}", record.calls);
        let cluster = calibrate(&[(path, record)], "mine").unwrap().cluster;
        assert!(!cluster.gpu.is_shared() && cluster.uncertainty(false) == 0.08);
    }
}

/// Checks that spans are nested or disjoint, and that communication spans have their arguments and no children.
fn check_lane(place: &str, spans: &[Span]) {
    let mut open: Vec<&Span> = Vec::new();
    // A span shorter than the clock's resolution may start with the next one.
    for span in spans.iter().filter(|span| span.start < span.end) {
        while open.last().is_some_and(|outer| outer.end <= span.start) {
            open.pop();
        }
        if let Some(outer) = open.last() {
            assert!(span.end <= outer.end, "{place}: {span:?} leaves {outer:?}");
            assert_eq!(outer.category, "compute", "{place}: {span:?} during {outer:?}");
        }
        if span.category == "comm" {
            for key in ["op", "axes", "field"] {
                assert!(span.args[key].as_str().is_some_and(|text| !text.is_empty()), "{span:?}");
            }
            assert!(span.args["bytes"].is_u64(), "{span:?}");
        }
        open.push(span);
    }
}
