//! Reports of a running run: saves and goodput in the metrics, `--prometheus` and `--quiet`.

use std::time::SystemTime;

use serde_json::Value;

use crate::{SMALL, Workspace, assert_contains};

/// Steps whose lines have a key.
fn steps_with(steps: &[Value], key: &str) -> Vec<u64> {
    let with = steps.iter().filter(|step| step.get(key).is_some());
    with.map(|step| step["step"].as_u64().unwrap()).collect()
}

/// The line after a save has its cost.
#[test]
fn saves_are_in_the_metrics() {
    let workspace = Workspace::new();
    let line = "--mesh fsdp=2 --steps 8 --save-every 2 --metrics m.jsonl";
    workspace.train(&format!("{line} --save out"));
    let steps = workspace.metrics("m.jsonl");
    let expected = [3, 5, 7];
    assert_eq!(steps_with(&steps, "save_ms"), expected);
    assert_eq!(steps_with(&steps, "save_bytes"), expected);
    let files = workspace.tensors("out/step-00000008");
    let bytes: usize = files.iter().map(Vec::len).sum();
    assert_eq!(steps[2]["save_bytes"], bytes);
    assert!(steps[2]["save_ms"].as_f64().unwrap() > 0.0);
    assert!(workspace.tensors("out/step-00000002").len() == 2);
    // A checkpoint is known to be complete when the next one begins.
    std::fs::remove_file(workspace.path("m.jsonl")).unwrap();
    workspace.train(&format!("{line} --save later --save-async"));
    let steps = workspace.metrics("m.jsonl");
    assert_eq!(steps_with(&steps, "save_ms"), expected);
    assert_eq!(steps_with(&steps, "save_bytes"), [5, 7]);
    assert_eq!(steps[4]["save_bytes"], bytes);
}

/// The start is that of the first attempt in a log, if all steps are known.
#[test]
fn goodput_counts_from_the_start_of_the_run() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2 --save out --save-every 4 --resume auto --metrics m.jsonl";
    let goodput = |step: usize| workspace.metrics("m.jsonl")[step - 1]["goodput"].as_f64();
    workspace.train(&format!("{line} --steps 4"));
    assert!((0.0..1.0).contains(&goodput(4).unwrap()), "{:?}", goodput(4));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let event = |event: &str, ago: u64, rest: &str| {
        let time = now - ago;
        format!("{{\"time\":{time},\"date\":\"\",\"event\":\"{event}\",\"attempt\":1{rest}}}\n")
    };
    let log = event("start", 1_000_000, "") + &event("end", 900_000, ",\"code\":3");
    let from = event("start", 1, ",\"from\":\"out/step-00000004\"");
    workspace.write("out/run.log", (log.clone() + &from).as_bytes());
    workspace.train(&format!("{line} --steps 6"));
    let steps = workspace.metrics("m.jsonl");
    let seconds: f64 = steps.iter().map(|step| step["step_ms"].as_f64().unwrap() / 1e3).sum();
    let found = goodput(6).unwrap();
    assert!((found * 1_000_000.0 / seconds - 1.0).abs() < 1e-3, "{found} of {seconds} s");
    // Not supervised any more.
    workspace.write("out/run.log", log.as_bytes());
    workspace.train(&format!("{line} --steps 7"));
    assert!(goodput(7).unwrap() > 1e-4);
    // Earlier steps are not known.
    workspace.write("out/run.log", (log + &from).as_bytes());
    std::fs::remove_file(workspace.path("m.jsonl")).unwrap();
    workspace.train(&format!("{line} --steps 9"));
    assert_eq!(steps_with(&workspace.metrics("m.jsonl"), "goodput"), [0; 0]);
    workspace.write("out/run.log", b"mine\nmine\n");
    let run = workspace.train(&format!("{line} --steps 10"));
    assert_contains(&run.stderr, "warning: --save: cannot read out/run.log: line 1 is no event");
}

/// The file has the metrics of the last step, in another form.
#[test]
fn prometheus_files_have_the_last_metrics() {
    let workspace = Workspace::new();
    let line =
        "--mesh dp=2 --steps 5 --save out --save-every 2 --metrics m.jsonl --prometheus train.prom";
    workspace.train(line);
    let text = String::from_utf8(workspace.read("train.prom")).unwrap();
    let value = |series: &str| -> f64 {
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("meshwright_{series} ")));
        line.unwrap_or_else(|| panic!("no {series} in:\n{text}")).parse().unwrap()
    };
    let steps = workspace.metrics("m.jsonl");
    for key in ["step", "loss", "grad_norm", "goodput", "save_ms", "save_bytes"] {
        let last = steps.iter().rev().find_map(|step| step[key].as_f64()).unwrap();
        assert_eq!(value(&format!("{key}{{run=\"train\"}}")), last, "{key}");
    }
    let total = &steps[4]["peak_bytes"]["total"];
    assert_eq!(value("peak_bytes{run=\"train\",category=\"total\"}"), total.as_f64().unwrap());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("meshwright_") && line.split("} ").count() == 2, "{line}");
    }
    assert!(workspace.listing().iter().all(|name| !name.contains("partial")));
    // Without the other files, and again.
    workspace.train("--steps 2 --prometheus train.prom");
    assert_contains(
        &String::from_utf8(workspace.read("train.prom")).unwrap(),
        "_step{run=\"train\"} 2\n",
    );
}

#[test]
fn files_of_others_are_kept() {
    let workspace = Workspace::new();
    workspace.write("node.prom", b"node_load1 0.5\n");
    std::fs::create_dir(workspace.path("folder.prom")).unwrap();
    for (flags, error) in [
        (
            "--prometheus metrics.txt",
            "--prometheus: `metrics.txt` is not a .prom file: a node exporter reads only ",
        ),
        (
            "--prometheus node.prom",
            "--prometheus: cannot replace node.prom: it was written by another program",
        ),
        ("--prometheus none/a.prom", "--prometheus: cannot replace none/a.prom: No such file"),
        ("--prometheus folder.prom", "--prometheus: cannot replace folder.prom: Is a directory"),
        (
            "--save out --metrics out/run.log",
            "--metrics: out/run.log would be replaced by what --save writes to out",
        ),
        (
            "--quiet --log-every 3s",
            "--log-every: there are no lines of progress with --quiet; leave one",
        ),
    ] {
        let run = workspace.run(&format!("{SMALL} --steps 2 {flags}"));
        let start = format!("error: {error}");
        assert!(run.error().starts_with(&start), "no `{start}` in:\n{}", run.stderr);
    }
    assert_eq!(workspace.read("node.prom"), b"node_load1 0.5\n");
}

/// Warnings are printed, and nothing else but the summary.
#[test]
fn quiet_runs_print_their_summary() {
    let workspace = Workspace::new();
    let line = "--mesh auto=2 --quiet --save out --save-every 2 --eval-fraction 0.1 --eval-every 2 --eval-steps 1";
    let run = workspace.train(&format!("{line} --steps 4"));
    let lines: Vec<&str> =
        run.stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
    // Kernels of a test may be built without optimization.
    let is_of_build = |line: &&str| !line.starts_with("    ");
    assert_eq!(lines.into_iter().filter(is_of_build).count(), 0, "{}", run.stderr);
    assert_contains(&run.stdout, "4 steps on 2 ranks");
    workspace.write("out/step-00000004/rank-00000.safetensors", b"torn");
    let run = workspace.train(&format!("{line} --steps 6 --resume auto"));
    assert_contains(&run.stderr, "warning: out/step-00000004/rank-00000.safetensors is damaged");
    assert!(!run.stderr.contains("step 6/6"), "{}", run.stderr);
}
