//! Output of a run: metrics, summary, progress, help.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::{Finished, SMALL, Workspace, assert_contains, program};

#[test]
fn metrics_have_the_documented_fields() {
    let workspace = Workspace::new();
    workspace.train("--mesh dp=2,tp=2 --steps 4 --metrics m.jsonl");
    let steps = workspace.metrics("m.jsonl");
    assert_eq!(steps.len(), 4);
    for (index, step) in steps.iter().enumerate() {
        let mut keys: Vec<_> = step.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let contract = "comm_bytes epoch goodput grad_norm hfu loss lr mfu peak_bytes peak_flops step step_ms time \
                        tokens tokens_per_s";
        assert_eq!(keys.join(" "), contract);
        assert_eq!(step["step"], index + 1);
        assert_eq!(step["tokens"], 4 * 16);
        let [epoch, time] = ["epoch", "time"].map(|key| step[key].as_f64().unwrap());
        assert!((epoch / steps[0]["epoch"].as_f64().unwrap() - (index + 1) as f64).abs() < 1e-9);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(now - 100.0 < time && time <= now, "{time}");
        assert_eq!(step["lr"], 1e-3);
        let [ms, rate] = ["step_ms", "tokens_per_s"].map(|key| step[key].as_f64().unwrap());
        assert!((rate * ms / 64e3 - 1.0).abs() < 1e-9, "{step}");
        for key in ["mfu", "hfu"] {
            let share = step[key].as_f64().unwrap();
            assert!(share > 0.0 && share <= 1.0, "{key} {share}");
        }
        let peak = step["peak_bytes"].as_object().unwrap();
        let mut categories: Vec<_> = peak.keys().map(String::as_str).collect();
        categories.sort_unstable();
        assert_eq!(
            categories,
            [
                "activations",
                "communication",
                "gradients",
                "offloaded",
                "optimizer",
                "parameters",
                "total",
                "workspace"
            ]
        );
        let bytes = |key: &str| peak[key].as_u64().unwrap();
        // 2 x 256 x 32 at the ends, 2 layers of 3,072 + 4,608 in matrices, all halved by tp; norms 5 x 32 whole.
        let parameters = ((2 * 256 * 32 + 2 * (3072 + 4608)) / 2 + 5 * 32) * 4;
        assert_eq!(bytes("parameters"), parameters);
        assert_eq!(bytes("gradients"), parameters);
        assert_eq!(bytes("optimizer"), 2 * parameters);
        assert!(bytes("activations") > 0);
        assert!(bytes("total") >= 4 * parameters + bytes("activations"));
        let sent = step["comm_bytes"].as_object().unwrap();
        assert_eq!(sent.keys().collect::<Vec<_>>(), ["dp", "tp"]);
        // The gradient all-reduce over two ranks sends each element once, in addition to a few scalars.
        let dp = sent["dp"].as_u64().unwrap();
        assert!((parameters..parameters + 200).contains(&dp), "{dp} for {parameters}");
        assert!(sent["tp"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_single_rank_does_not_communicate() {
    let workspace = Workspace::new();
    workspace.train("--mesh 1 --steps 1 --metrics m.jsonl");
    assert_eq!(workspace.metrics("m.jsonl")[0]["comm_bytes"], serde_json::json!({}));
}

#[test]
fn the_summary_reports_memory() {
    let workspace = Workspace::new();
    let stdout = workspace.train("--mesh fsdp=2,tp=2 --recompute full --steps 2").stdout;
    let row = |name: &str| {
        let mut rows = stdout.lines().filter(|line| line.split_whitespace().next() == Some(name));
        let row = rows.next().unwrap_or_else(|| panic!("no `{name}` in:\n{stdout}"));
        row.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_contains(&stdout, "\nmemory of the fullest rank  at least      peak\n");
    for category in ["parameters", "gradients", "optimizer"] {
        let row = row(category);
        assert_eq!(row[..2], row[2..], "{category}");
    }
    for category in ["activations", "communication", "workspace", "total"] {
        assert_eq!(row(category).len(), 4, "{category}");
    }
    assert_contains(
        &stdout,
        "\ncommunication of a step      planned     bytes  overlapped   exposed\n",
    );
    for axis in ["fsdp", "tp"] {
        let row = row(axis);
        assert_eq!((row.len(), row[5].as_str(), row[7].as_str()), (8, "ms", "ms"), "{axis}");
    }
    // The first step gathers parameters that others keep, and communicates as much over other axes.
    let sent = row("tp");
    assert_eq!(sent[..2], sent[2..4]);
    let share =
        stdout.lines().find_map(|line| line.strip_suffix(" % of all FLOPs were recomputation"));
    let share: f64 = share.unwrap().parse().unwrap();
    assert!((10.0..30.0).contains(&share), "{share}");
}

#[test]
fn hfu_is_mfu_without_recomputation_and_more_with() {
    let workspace = Workspace::new();
    let shares = |flags: &str| {
        workspace.train(&format!("{flags} --steps 2 --metrics m.jsonl"));
        let step = &workspace.metrics("m.jsonl")[1];
        [&step["mfu"], &step["hfu"]].map(|share| share.as_f64().unwrap())
    };
    let [mfu, hfu] = shares("--recompute none");
    assert_eq!(mfu, hfu);
    let [mfu, hfu] = shares("--recompute full");
    // Less than a third of the model's FLOPs: the embedding and the head are not recomputed.
    assert!(hfu > 1.05 * mfu && hfu < 1.34 * mfu, "{mfu} {hfu}");
}

#[test]
fn progress_is_plain_lines_without_a_terminal() {
    let workspace = Workspace::new();
    let finished = workspace.train("--steps 5");
    assert_contains(&finished.stderr, "step 1/5  loss 5.");
    assert_contains(&finished.stderr, "step 5/5  loss ");
    assert_contains(&finished.stderr, "tokens/s  0:00, 0:00 left\n");
    assert!(!finished.stderr.contains(['\r', '\x1b']), "{:?}", finished.stderr);
}

#[test]
fn progress_is_a_bar_on_a_terminal() {
    let workspace = Workspace::new();
    let line = format!("{} {} --steps 5", env!("CARGO_BIN_EXE_train_llama"), SMALL);
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("no `script` on this machine to stand in for a terminal");
        return;
    }
    let finished = workspace.finish(command, &line);
    assert_eq!(finished.code, Some(0), "{}", finished.stdout);
    assert_contains(&finished.stdout, "█");
    assert_contains(&finished.stdout, "step 5/5  loss ");
    assert_contains(&finished.stdout, "5 steps on 1 rank in ");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let workspace = Workspace::new();
    let mut command = program();
    command.args(SMALL.split_whitespace()).args(["--steps", "2"]);
    command.current_dir(workspace.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panic"), "{stderr}");
}

/// Runs the program with a standard output that is always full.
fn run_on_full_stdout(workspace: &Workspace, line: &str) -> Finished {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = program();
    command.args(line.split_whitespace()).current_dir(workspace.path(""));
    let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    Finished::new(line, child.wait_with_output().unwrap())
}

/// The results themselves are saved.
#[test]
fn a_full_standard_output_is_an_error() {
    let workspace = Workspace::new();
    for asked in ["--help", "--version"] {
        let finished = run_on_full_stdout(&workspace, asked);
        let message = "error: cannot write to standard output: No space left on device";
        assert_contains(finished.error(), message);
    }
    let finished = run_on_full_stdout(&workspace, &format!("{SMALL} --steps 1 --save out"));
    assert_contains(
        finished.error(),
        "error: the run is complete, but its summary is lost: cannot write to standard output: No space left on device",
    );
    assert_contains(finished.error(), "\nsaved out/latest; to continue: --resume out/latest");
    assert!(workspace.path("out/step-00000001/manifest.json").is_file());
    assert!(!workspace.path("out/.lock").exists());
}

#[test]
fn help_into_a_closed_pipe_is_no_error() {
    let mut command = program();
    let mut child =
        command.arg("--help").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// The summary would be written over the metrics.
#[test]
fn the_file_of_stdout_is_no_other_output() {
    let workspace = Workspace::new();
    for metrics in ["/dev/stdout", "out.txt"] {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" > out.txt", "sh"]).arg(program().get_program());
        command.args(SMALL.split_whitespace()).args(["--steps", "2", "--metrics", metrics]);
        let finished = workspace.finish(command, metrics);
        let error = "error: --metrics: is also the file of stdout; name another file to write to";
        assert_eq!(finished.error(), error);
    }
    let piped = workspace.train("--steps 2 --metrics /dev/stdout").stdout;
    assert_eq!(piped.lines().filter(|line| line.starts_with("{\"step\"")).count(), 2);
}

#[test]
fn help_goes_to_stdout() {
    let finished = Workspace::new().run("--help");
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert_contains(&finished.stdout, "--resume <DIR/latest>");
}
