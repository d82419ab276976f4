//! Records: `--record`, and predictions of the clusters that they calibrate.

use std::collections::BTreeMap;

use meshwright::models::llama::Llama;
use meshwright::sim::EventKind;
use meshwright::sim::calibrate::{StepRecord, calibrate};
use meshwright::train::{Config, Trainer};
use serde_json::Value;

use crate::{SMALL, Workspace, assert_contains};

/// Returns the names, dims and counts of the kernels of a step, by its dry run.
fn planned_kernels(workspace: &Workspace, flags: &str) -> BTreeMap<String, u64> {
    let text = workspace.path("text.txt");
    let words = format!("train {SMALL} {flags}").replace("text.txt", text.to_str().unwrap());
    let config = Config::parse(words.split_whitespace()).unwrap();
    let mut kernels = BTreeMap::new();
    for log in Trainer::<Llama>::new(config).unwrap().step_logs().unwrap() {
        for event in log.events.iter() {
            if let EventKind::Kernel(kernel) = event.kind {
                let key =
                    format!("{} {:?} {} {}", kernel.op, kernel.dims, kernel.flops, kernel.bytes());
                *kernels.entry(key).or_default() += 1;
            }
        }
    }
    kernels
}

/// A record has every kernel of the step, and the cluster of records predicts a step on the CPU.
#[test]
fn records_calibrate_this_machine() {
    let workspace = Workspace::new();
    let mut records = Vec::new();
    for (mesh, name) in
        [("1", "r1.json"), ("dp=2", "r2.json"), ("pp=2 --micro-batches 2", "p2.json")]
    {
        let flags = format!("--mesh {mesh} --steps 6");
        let finished = workspace.run(&format!("{SMALL} {flags} --record {name}"));
        assert_eq!(finished.code, Some(0), "{mesh}\n{}", finished.stderr);
        let record = StepRecord::read(&workspace.path(name)).unwrap();
        let mut kernels = BTreeMap::new();
        for kernel in &record.kernels {
            let bytes = kernel.read + kernel.written;
            let key = format!("{} {:?} {} {bytes}", kernel.op, kernel.dims, kernel.flops);
            *kernels.entry(key).or_default() += kernel.count;
            assert!(kernel.seconds > 0.0, "{kernel:?}");
        }
        assert_eq!(kernels, planned_kernels(&workspace, &flags), "{mesh}");
        assert_eq!(record.measured_steps, 2);
        assert!(record.step_seconds > 0.0 && record.recorded_seconds > record.host_seconds);
        assert_eq!(
            record.calls.iter().any(|call| call.op == "all_reduce" && call.group == 2),
            name != "r1.json"
        );
        assert_eq!(
            record.calls.iter().any(|call| call.op == "recv" && call.bytes > 0),
            name == "p2.json"
        );
        records.push((workspace.path(name), record));
    }
    let calibration = calibrate(&records, "this").unwrap();
    workspace.write("this.toml", calibration.cluster.to_toml().as_bytes());
    for (mesh, ranks) in [("tp=2", 2), ("pp=2,dp=2 --micro-batches 2", 4)] {
        let finished = workspace
            .run(&format!("{SMALL} --mesh {mesh} --simulate this.tomlx{ranks} --out json"));
        assert_eq!(finished.code, Some(0), "{mesh}\n{}", finished.stderr);
        let run: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert!(run["step_s"].as_f64().unwrap() > 0.0, "{run}");
        assert_eq!(run["uncertainty"].as_f64(), Some(0.08), "{run}");
        assert!(run["mfu"].as_f64().unwrap() < 1.0, "{run}");
    }
    for (flags, message) in [
        (
            "--simulate this.tomlx2 --device cuda",
            "--simulate: simulates ranks on a CPU; leave out --device cuda",
        ),
        ("--plan this.tomlx2", "--plan: --plan plans runs on GPUs, and this cluster is a CPU"),
    ] {
        assert_contains(workspace.run(&format!("{SMALL} {flags}")).error(), message);
    }
}

#[test]
fn failed_runs_leave_no_record() {
    let workspace = Workspace::new();
    let finished =
        workspace.run(&format!("{SMALL} --steps 9 --mesh dp=2 --lr 1e30 --record r.json"));
    assert_ne!(finished.code, Some(0));
    assert_contains(&finished.stderr, "error");
    let names = std::fs::read_dir(workspace.path(".")).unwrap();
    let names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with("r.json")), "{names:?}");
}

#[test]
fn records_are_refused_before_the_run() {
    let workspace = Workspace::new();
    workspace.write("notes.json", b"{}");
    for (flags, message) in [
        (
            "--steps 2 --record r.json",
            "--record: the third step of a run is the first that can be recorded, but this",
        ),
        ("--steps 4 --record none/r.json", "--record: cannot write none/r.json"),
        ("--steps 4 --record notes.json", "it was written by another program, and would be lost"),
        ("--steps 4 --record .", "--record: cannot write ."),
        ("--steps 4 --trace r.json --record r.json", "--record: is also the file of --trace"),
        (
            "--explain --record r.json",
            "--record: a dry run has no times to record; leave one of them out",
        ),
        (
            "--preflight 2 --record r.json",
            "--record: a --preflight compares steps from the beginning",
        ),
        ("--plan h100x8 --record r.json", "--record: --plan runs nothing; leave one of them out"),
    ] {
        let finished = workspace.run(&format!("{SMALL} {flags}"));
        assert_contains(finished.error(), message);
        assert!(!workspace.path("r.json").exists(), "{flags}");
    }
    // An earlier record is kept.
    for _ in 0..2 {
        let finished = workspace.run(&format!("{SMALL} --steps 3 --record r.json"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    assert!(workspace.path("r.json").is_file() && workspace.path("r.json.1").is_file());
}
