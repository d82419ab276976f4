//! Failures during a run: it ends with one message, and checkpoints stay intact.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{PATIENCE, SMALL, Workspace, assert_contains, fixture, numbers, program};

#[test]
fn divergence_names_the_step_and_keeps_checkpoints() {
    let workspace = Workspace::new();
    let finished =
        workspace.run(&format!("{SMALL} --mesh dp=2,tp=2 --steps 9 --lr 1e30 --save out"));
    let error = finished.error();
    assert_contains(error, "error: step 2: the ");
    assert_contains(error, " is NaN on rank");
    assert_contains(error, "training stopped, the state before this step is in out. A lower --lr");
    assert!(workspace.path("out/step-00000001/manifest.json").is_file());
    assert!(!workspace.listing().iter().any(|name| name.contains(".tmp")));
    // The checkpoint loads, and the resumed run diverges at the same step.
    let finished =
        workspace.run(&format!("{SMALL} --mesh dp=2,tp=2 --steps 9 --resume out/latest"));
    assert_contains(finished.error(), "error: step 2: the ");
    assert_contains(finished.error(), "nothing was saved (--save DIR");
}

#[test]
fn nan_weights_are_reported_at_the_first_step() {
    let workspace = Workspace::new();
    workspace.copy_fixture("untied_mha", "hf");
    let mut content = workspace.read("hf/model.safetensors");
    let end = content.len();
    content[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    workspace.write("hf/model.safetensors", &content);
    let finished = workspace.run(
        "--init-from hf --data hf/tokens.bin --batch 4 --seq 16 --mesh dp=2 --steps 3 --save out",
    );
    assert_contains(finished.error(), "error: step 1: the loss is NaN on ranks 0, 1;");
    assert!(workspace.path("out/step-00000000/manifest.json").is_file());
}

/// Updates are left out until as many steps in a row are such.
#[test]
fn updates_that_are_not_finite_are_left_out() {
    for mesh in ["dp=2,tp=2", "pp=2 --micro-batches 2"] {
        let workspace = Workspace::new();
        let line =
            format!("{SMALL} --mesh {mesh} --steps 9 --lr 1e30 --save out --metrics m.jsonl");
        let finished = workspace.run(&format!("{line} --on-nan skip=2 --check-replicas 1"));
        assert_eq!(finished.code, Some(4), "{mesh}");
        let warning = "its update is left out (in a row: 1 of the 2 that end the run; in all: 1)";
        assert_eq!(finished.stderr.matches(warning).count(), 1, "{}", finished.stderr);
        assert_contains(finished.error(), "error: step 3: the ");
        let end = "Such steps in a row: 2, which --on-nan skip=2 takes for the end of the run";
        assert_contains(finished.error(), end);
        let skipped: Vec<_> =
            workspace.metrics("m.jsonl").iter().map(|step| step["skipped"].as_u64()).collect();
        assert_eq!(skipped, [Some(0), Some(1)], "{mesh}");
        assert!(workspace.path("out/step-00000002/manifest.json").is_file());
    }
    let workspace = Workspace::new();
    for (flags, problem) in [
        ("--on-nan skip=0", "--on-nan: must be `stop`, or `skip=N` with the number of steps"),
        ("--on-nan ignore", "--on-nan: must be `stop`, or `skip=N` with the number of steps"),
        ("--check-replicas 0", "--check-replicas: must be a whole number of at least 1, not `0`"),
    ] {
        let finished = workspace.run(&format!("{SMALL} {flags}"));
        assert_eq!(finished.code, Some(2), "{flags}");
        assert_contains(finished.error(), problem);
    }
}

/// The last stage, which computes the loss, is named.
#[test]
fn nan_on_the_last_stage_names_its_rank() {
    let workspace = Workspace::new();
    workspace.copy_fixture("untied_mha", "hf");
    let mut content = workspace.read("hf/model.safetensors");
    let end = content.len();
    // The last norm.
    content[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    workspace.write("hf/model.safetensors", &content);
    let finished = workspace.run(
        "--init-from hf --data hf/tokens.bin --batch 4 --seq 16 --mesh pp=2 --micro-batches 2 --steps 3 --save out",
    );
    assert_contains(finished.error(), "error: step 1: the loss is NaN on rank 1;");
    assert!(workspace.path("out/step-00000000/manifest.json").is_file());
}

#[test]
fn a_full_disk_ends_the_run_with_one_message() {
    let workspace = Workspace::new();
    let finished =
        workspace.run(&format!("{SMALL} --mesh dp=2,tp=2 --steps 3 --metrics /dev/full"));
    assert_contains(finished.error(), "error: --metrics: cannot write /dev/full: No space left");
}

/// The training itself is not lost.
#[test]
fn a_report_that_cannot_be_written_fails_the_run_after_its_results_are_saved() {
    let workspace = Workspace::new();
    let stage_times = workspace.path("full.json");
    std::os::unix::fs::symlink("/dev/full", stage_times).unwrap();
    for (index, (reports, message)) in [
        ("--mesh dp=2 --metrics /dev/full", "error: --metrics: cannot write /dev/full: No space"),
        (
            "--mesh pp=2 --stage-times full.json",
            "error: --stage-times: cannot write full.json: No space",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let [save, hf] = ["save", "hf"].map(|name| format!("{name}-{index}"));
        let small = SMALL.replace("--sample-tokens 0", "--sample-tokens 2");
        let line =
            format!("{small} --micro-batches 2 --steps 3 --save {save} --export-hf {hf} {reports}");
        let finished = workspace.run(&line);
        assert_contains(finished.error(), message);
        assert_contains(&finished.stderr, "step 3/3");
        assert!(workspace.path(&save).join("step-00000003/manifest.json").is_file());
        assert!(workspace.path(&hf).join("model.safetensors").is_file());
    }
}

/// Loss and gradient are finite in the step whose update is not.
#[test]
fn parameters_that_are_not_finite_are_not_saved() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --lr 1e39 --optimizer sgd --momentum 0 --clip 0 --weight-decay 0");
    let update = "error: step 1: its update has made elements of `embed.weight` infinite or NaN;";
    for mesh in ["1", "tp=2", "fsdp=2", "pp=2"] {
        let finished = workspace.run(&format!("{line} --mesh {mesh} --steps 1 --export-hf hf"));
        assert_contains(finished.error(), update);
        assert_contains(finished.error(), "no state was saved");
        assert_eq!(workspace.listing(), ["hf", "text.txt"], "{mesh}");
    }
    // A checkpoint from before it is kept.
    workspace.train("--steps 2 --save out");
    let line = format!("{line} --resume out --save out --keep 1 --save-every 1 --steps 9");
    let finished =
        workspace.run(&line.replace("--optimizer sgd --momentum 0", "--optimizer adamw"));
    assert_contains(finished.error(), "error: step 3: its update has made elements of");
    assert!(workspace.path("out/step-00000002/manifest.json").is_file());
    assert!(!workspace.path("out/step-00000003").exists());
}

/// Starts the program, cuts `text.txt` off to 100 bytes in one of the first steps, and returns the result of the run.
fn run_until_data_are_cut(workspace: &Workspace, line: &str) -> crate::Finished {
    let metrics = workspace.path("m.jsonl");
    let _ = std::fs::remove_file(&metrics);
    let line = format!("{SMALL} {line} --steps 1000000000 --metrics m.jsonl");
    let mut run = program();
    run.args(line.split_whitespace()).current_dir(workspace.path("."));
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let wait = |run: &mut std::process::Child| {
        if start.elapsed() > PATIENCE {
            run.kill().unwrap();
            panic!("still running: {line}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    while std::fs::read(&metrics).unwrap_or_default().is_empty() {
        wait(&mut run);
    }
    let data = std::fs::File::options().write(true).open(workspace.path("text.txt")).unwrap();
    data.set_len(100).unwrap();
    while run.try_wait().unwrap().is_none() {
        wait(&mut run);
    }
    crate::Finished::new(&line, run.wait_with_output().unwrap())
}

/// All steps that were trained are in a checkpoint, from which the run continues when the file is complete again.
#[test]
fn truncated_data_end_the_run_with_a_checkpoint() {
    let workspace = Workspace::new();
    let text = workspace.read("text.txt");
    let cut = format!(
        "error: --data: text.txt had {} bytes when the run began and has 100 now; leave the file as it is while it is \
         trained on; training stopped before step ",
        text.len()
    );
    for mesh in ["1", "dp=2,tp=2", "fsdp=2", "pp=2 --micro-batches 2"] {
        let line = format!("--mesh {mesh} --order shuffled");
        let _ = std::fs::remove_dir_all(workspace.path("out"));
        let finished = run_until_data_are_cut(&workspace, &format!("{line} --save out"));
        let trained = workspace.metrics("m.jsonl").len();
        let message = format!(
            "{cut}{}, the state before this step is in out. Restore the data, and continue the run with --resume \
             out/latest",
            trained + 1
        );
        assert_eq!(finished.error(), message, "{mesh}");
        assert!(workspace.path(&format!("out/step-{trained:08}/manifest.json")).is_file());

        workspace.write("text.txt", &text);
        let line = format!("{line} --steps {}", trained + 2);
        workspace.train(&format!("{line} --resume out/latest --metrics m.jsonl"));
        let losses = numbers(&workspace.metrics("m.jsonl"), "loss");
        assert_eq!(losses, workspace.losses(&line), "{mesh}");
    }
    let finished = run_until_data_are_cut(&workspace, "--mesh dp=2");
    assert_contains(finished.error(), &cut);
    assert_contains(finished.error(), ", nothing was saved (--save DIR keeps the state");
}

/// Runs the program with a file size limit of `blocks` blocks of 512 bytes.
fn with_file_limit(workspace: &Workspace, blocks: u32, line: &str) -> crate::Finished {
    let mut command = Command::new("sh");
    let script = format!("ulimit -f {blocks}; exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(program().get_program());
    command.env("RUST_BACKTRACE", "1").args(line.split_whitespace());
    workspace.finish(command, line)
}

#[test]
fn a_failed_metrics_write_leaves_complete_lines() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2,tp=2 --steps 50 --metrics m.jsonl");
    let finished = with_file_limit(&workspace, 4, &line);
    assert_contains(finished.error(), "error: --metrics: cannot write m.jsonl: File too large");
    assert!(!workspace.metrics("m.jsonl").is_empty());
}

#[test]
fn a_failed_checkpoint_keeps_the_previous_one() {
    let workspace = Workspace::new();
    workspace.train("--mesh dp=2,tp=2 --steps 2 --save out");
    let before = workspace.listing();
    let line = format!("{SMALL} --mesh dp=2,tp=2 --steps 4 --save out --resume out/latest");
    let finished = with_file_limit(&workspace, 100, &line);
    assert_contains(
        finished.error(),
        "error: --save: cannot write out/.tmp-step-00000004/rank-0000",
    );
    assert_contains(finished.error(), "File too large");
    assert_eq!(workspace.listing(), before);
    workspace.train("--mesh dp=2,tp=2 --steps 4 --save out --resume out/latest");
    assert!(workspace.path("out/step-00000004").is_dir());
}

/// All ranks end long before the last step.
#[test]
fn a_checkpoint_that_fails_while_training_goes_on_keeps_the_previous_one() {
    let workspace = Workspace::new();
    for mesh in ["1", "dp=2,tp=2", "pp=2 --micro-batches 2"] {
        let line = format!("--mesh {mesh} --save out");
        workspace.train(&format!("{line} --steps 2"));
        let before = workspace.listing();
        let finished = with_file_limit(
            &workspace,
            100,
            &format!(
                "{SMALL} {line} --resume out/latest --steps 1000000000 --save-every 3 --save-async"
            ),
        );
        assert_contains(
            finished.error(),
            "error: --save: cannot write out/.tmp-step-00000009/rank-0000",
        );
        assert_contains(finished.error(), "File too large");
        assert_eq!(workspace.listing(), before, "{mesh}");
        std::fs::remove_dir_all(workspace.path("out")).unwrap();
    }
}

/// Starts a run with the words `first`, and as soon as it has its folder, another one with the words `second`. Returns
/// the end of the second run, and the process number of the first, which is killed.
fn beside_a_first_run(
    workspace: &Workspace,
    first: &str,
    has_folder: impl Fn(u32) -> bool,
    second: &str,
) -> (crate::Finished, u32) {
    let mut running = program();
    running.args(format!("{first} --steps 1000000000").split_whitespace());
    running.current_dir(workspace.path(".")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = running.spawn().unwrap();
    let start = Instant::now();
    while !has_folder(running.id()) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let finished = workspace.run(second);
    running.kill().unwrap();
    running.wait().unwrap();
    (finished, running.id())
}

/// The folder is free again as soon as the first run is killed.
#[test]
fn two_runs_do_not_save_in_one_folder() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2 --save out --save-every 1");
    let (second, first) = beside_a_first_run(
        &workspace,
        &format!("{line} --keep 1"),
        |_| workspace.path("out/latest").exists(),
        &format!("{line} --steps 2 --trace t.json --metrics m.jsonl"),
    );
    let holder = format!("error: --save: another run saves in out (process {first} on ");
    assert_contains(second.error(), &holder);
    assert_contains(second.error(), "); wait for its end, or name another folder");
    assert!(!workspace.path("t.json").exists() && !workspace.path("m.jsonl").exists());
    workspace.train("--mesh dp=2 --save out --steps 2");
    assert!(!workspace.path("out/.lock").exists());
}

/// The models would be written over each other. Checkpoints of the same run may be in the folder.
#[test]
fn two_runs_do_not_export_to_one_folder() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --export-hf hf");
    let lock = workspace.path("hf/.export.lock");
    let holder = |first: u32| format!("process {first} on ");
    let is_locked =
        |first| std::fs::read_to_string(&lock).is_ok_and(|text| text.starts_with(&holder(first)));
    let second = format!("{line} --steps 2 --trace t.json");
    let (second, first) = beside_a_first_run(&workspace, &line, is_locked, &second);
    let message = format!("error: --export-hf: another run saves in hf ({}", holder(first));
    assert_contains(second.error(), &message);
    assert!(!workspace.path("t.json").exists());
    workspace.train("--export-hf hf --save hf --steps 2");
    assert!(workspace.path("hf/model.safetensors").is_file());
    assert!(!lock.exists());
}

#[test]
fn a_failed_export_leaves_no_partial_files() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh tp=2 --steps 1 --export-hf hf");
    let finished = with_file_limit(&workspace, 100, &line);
    assert_contains(finished.error(), "error: --export-hf: cannot write hf/.tmp-model.safetensors");
    assert_eq!(workspace.listing(), ["hf", "text.txt"]);
}

/// The message names the checkpoint, and the flags that repeat the export.
#[test]
fn a_failed_export_is_repeated_from_the_last_checkpoint() {
    let workspace = Workspace::new();
    // A checkpoint of two ranks fits the limit, the model in one file does not.
    let line = format!("{SMALL} --mesh fsdp=2 --optimizer sgd --momentum 0");
    let trained = format!("{line} --steps 2 --save out --export-hf hf");
    let size = |line: String| {
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        workspace.read("hf/model.safetensors")
    };
    let expected = size(trained.clone());
    for folder in ["out", "hf"] {
        std::fs::remove_dir_all(workspace.path(folder)).unwrap();
    }
    let blocks = expected.len() as u32 / 512 - 1;
    let finished = with_file_limit(&workspace, blocks, &trained);
    assert_contains(finished.error(), "error: --export-hf: cannot write hf/.tmp-model.safetensors");
    let flags = "--resume out/step-00000002 --steps 2 --export-hf hf --threads 1";
    let repeat = format!(
        "\nthe trained model is in the checkpoint out/step-00000002: remove the cause, such as a full disk, and export \
         it by `{flags}`; nothing is trained again"
    );
    assert_contains(finished.error(), &repeat);

    let finished = with_file_limit(&workspace, blocks, flags);
    assert_contains(finished.error(), &repeat);
    assert!(size(flags.to_owned()) == expected);

    let finished = with_file_limit(&workspace, blocks, &format!("{line} --steps 2 --export-hf hf"));
    let lost =
        "\nthe trained model is lost, as the run has saved no checkpoint (--save DIR keeps one";
    assert_contains(finished.error(), lost);
}

#[test]
fn an_export_over_an_index_replaces_it() {
    let workspace = Workspace::new();
    workspace.copy_fixture("sharded_files", "hf");
    let line = format!(
        "--init-from hf --data {}/tokens.bin --batch 4 --seq 16 --steps 1 --sample-tokens 0 --export-hf hf",
        fixture("sharded_files").display()
    );
    let finished = workspace.run(&line);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let again = workspace.run(&line);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

#[test]
fn the_memory_limit_is_that_of_the_run() {
    let workspace = Workspace::new();
    for flags in ["--mesh dp=2", "--mesh fsdp=2,tp=2 --zero 2", "--recompute full"] {
        workspace.train(&format!("{flags} --steps 2 --metrics m.jsonl"));
        let peak = workspace.metrics("m.jsonl")[1]["peak_bytes"]["total"].as_u64().unwrap();
        // The caching allocator releases its pool, so a limit of exactly the peak is enough.
        workspace.train(&format!("{flags} --steps 2 --memory-limit {peak}"));
        // The plan knows the peak, except for memory that transfers hold longer. (At ZeRO stage 3 it keeps fewer
        // units.)
        for share in [990, 900, 600] {
            let limit = peak * share / 1000;
            let line = format!("{SMALL} {flags} --steps 2 --memory-limit {limit} --save out");
            let finished = workspace.run(&line);
            let error = finished.error();
            assert_contains(error, "\nto use less memory: ");
            let is_planned = error.starts_with("error: --memory-limit: ");
            assert!(is_planned || share > 900, "{flags}: {error}");
            if !is_planned {
                assert!(error.starts_with("error: rank "), "{error}");
                assert_contains(error, ": out of memory: ");
            }
        }
    }
}
