//! Validation: its numbers, what stops and resumes, the best checkpoint, and data that cannot be used.

use std::time::Duration;

use serde_json::Value;

use crate::stops::Running;
use crate::{SMALL, Workspace, assert_close, assert_contains, numbers};

/// Creates a workspace with a `val.txt` of 400 bytes: 25 rows, the last one of 15 targets.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    let text: String = (500..600).map(|n| format!("{n} times {n} is {}\n", n * n)).collect();
    workspace.write("val.txt", &text.as_bytes()[..400]);
    workspace
}

/// Returns the steps of the lines with an evaluation, and a number of each.
fn evaluated(lines: &[Value], key: &str) -> (Vec<u64>, Vec<f64>) {
    let lines = lines.iter().filter(|line| line.get("eval_loss").is_some());
    lines.map(|line| (line["step"].as_u64().unwrap(), line[key].as_f64().unwrap())).unzip()
}

#[test]
fn evaluations_are_in_progress_metrics_and_summary() {
    let workspace = workspace();
    let line = "--steps 7 --mesh dp=2,tp=2 --eval-data val.txt --eval-every 3 --metrics m.jsonl";
    let finished = workspace.train(line);
    assert_contains(
        &finished.stderr,
        "\nvalidation every 3 steps: 7 batches of the 400 tokens of val.txt\n",
    );
    let lines = workspace.metrics("m.jsonl");
    let (steps, losses) = evaluated(&lines, "eval_loss");
    assert_eq!(steps, [3, 6, 7]);
    assert!(losses.is_sorted_by(|a, b| a > b), "{losses:?}");
    let of_losses = |of: fn(f64) -> f64| losses.iter().map(|loss| of(*loss)).collect::<Vec<_>>();
    let perplexities = of_losses(f64::exp);
    assert_close(&evaluated(&lines, "eval_perplexity").1, &perplexities, 1e-12);
    let bits = of_losses(|loss| loss / 2f64.ln());
    assert_close(&evaluated(&lines, "eval_bits_per_byte").1, &bits, 1e-12);
    for (step, ((loss, perplexity), bits)) in
        steps.into_iter().zip(losses.into_iter().zip(perplexities).zip(bits))
    {
        let numbers = format!("{loss:.4}  perplexity {perplexity:.3}  {bits:.3} bits per byte");
        assert_contains(
            &finished.stderr,
            &format!("\nstep {step}/7  eval loss {numbers}  lowest so far\n"),
        );
        let summary = format!(
            "\nvalidation: loss {loss:.4} after step 7 (perplexity {perplexity:.3}, {bits:.3} bits per byte; 399 \
             targets)\n"
        );
        assert_eq!(finished.stdout.contains(&summary), step == 7, "{}", finished.stdout);
    }
    let without = workspace.train("--steps 7 --mesh dp=2,tp=2 --metrics m.jsonl");
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "loss"), numbers(&lines, "loss"));
    let text = String::from_utf8(workspace.read("m.jsonl")).unwrap();
    assert!(!text.contains("eval"), "{text}");
    assert!(!without.stdout.contains("validation"), "{}", without.stdout);
}

/// The end of the data is evaluated, and not trained on.
#[test]
fn a_fraction_of_the_data_is_held_out() {
    let workspace = Workspace::new();
    let text = workspace.read("text.txt");
    let at = text.len() - (text.len() as f64 * 0.1).round() as usize;
    workspace.write("first.txt", &text[..at]);
    workspace.write("last.txt", &text[at..]);
    let line = "--steps 4 --order shuffled --eval-every 2 --metrics m.jsonl";
    let finished = workspace.train(&format!("{line} --eval-fraction 0.1 --save out"));
    assert_contains(&finished.stderr, "batches of the last ");
    let lines = workspace.metrics("m.jsonl");
    let of_files = SMALL.replace("text.txt", "first.txt");
    let finished = workspace.run(&format!("{of_files} {line} --eval-data last.txt"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let expected = workspace.metrics("m.jsonl");
    assert_eq!(numbers(&lines, "loss"), numbers(&expected, "loss"));
    assert_eq!(evaluated(&lines, "eval_loss"), evaluated(&expected, "eval_loss"));

    // The samples of a resumed run follow from the fraction.
    let resumed = workspace.train("--steps 5 --resume out --metrics m.jsonl");
    assert_contains(&resumed.stderr, "batches of the last ");
    let other = workspace.run(&format!("{SMALL} --steps 5 --resume out --eval-fraction 0.2"));
    assert_contains(other.error(), "--eval-fraction: 0.2, but 0.1 was saved");
}

#[test]
fn a_resumed_run_has_the_evaluations_of_an_uninterrupted_one() {
    let workspace = workspace();
    let line = "--mesh fsdp=2 --order shuffled --eval-data val.txt --eval-every 2 --lr 0.02";
    workspace.train(&format!("{line} --steps 8 --save whole --metrics whole.jsonl"));
    workspace.train(&format!("{line} --steps 4 --save parts --metrics parts.jsonl"));
    // The settings of evaluations are in the checkpoint.
    workspace.train("--steps 8 --save parts --metrics parts.jsonl --resume auto");
    let [whole, parts] = ["whole", "parts"].map(|name| {
        let lines = workspace.metrics(&format!("{name}.jsonl"));
        let manifest = workspace.read(&format!("{name}/latest/manifest.json"));
        let mut manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let mut evaluation = manifest["evaluation"].take();
        evaluation["data"]["file"].take();
        (numbers(&lines, "loss"), evaluated(&lines, "eval_loss"), evaluation)
    });
    assert_eq!(parts, whole);
    assert_eq!(parts.1.0, [2, 4, 6, 8]);
    assert!(workspace.tensors("parts/step-00000008") == workspace.tensors("whole/step-00000008"));
    // A complete run evaluates again, also other data.
    let again = workspace.train("--steps 8 --resume parts");
    let last = format!("step 8/8  eval loss {:.4}  ", whole.1.1[3]);
    assert_contains(&again.stderr, &last);
    assert!(!again.stderr.contains("warning"), "{}", again.stderr);
    let other = workspace.train("--steps 8 --resume parts --eval-data text.txt");
    assert!(!other.stderr.contains(&last), "{}", other.stderr);
    assert_contains(
        &other.stderr,
        "warning: --resume: other rows are evaluated than in the saved run",
    );
}

/// An evaluation of a minute or so stops at its next batch; the run that goes on repeats it before its next step.
#[test]
fn a_signal_stops_an_evaluation() {
    let workspace = workspace();
    workspace.write("long.txt", &b"one and one is two\n".repeat(100_000));
    for (mesh, steps) in [("dp=2", 9), ("tp=2", 5)] {
        let line = format!(
            "{SMALL} --mesh {mesh} --steps {steps} --eval-data long.txt --eval-every 5 --save {mesh} --metrics m.jsonl"
        );
        let mut run = Running::start(&workspace, &line);
        run.wait_for_steps(4);
        std::thread::sleep(Duration::from_millis(300));
        run.signal("TERM");
        let stopped = run.finish();
        assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
        assert_contains(
            &stopped.stderr,
            &format!("\nstopped by SIGTERM after step 5 of {steps}; "),
        );
        let lines = workspace.metrics("m.jsonl");
        assert_eq!((lines.len(), evaluated(&lines, "eval_loss").0.len()), (5, 0));
        let line =
            format!("--steps {steps} --save {mesh} --resume auto --metrics m.jsonl --eval-steps 3");
        let resumed = workspace.train(&line);
        assert_contains(&resumed.stderr, &format!("\nstep 5/{steps}  eval loss "));
        let lines = workspace.metrics("m.jsonl");
        let expected: &[u64] = if steps == 5 { &[] } else { &[9] };
        assert_eq!(evaluated(&lines, "eval_loss").0, expected);
        std::fs::remove_file(workspace.path("m.jsonl")).unwrap();
    }
    let line = format!("{SMALL} --eval-data long.txt --eval-every 1 --save out --stop-after 1s");
    let stopped = workspace.run(&line);
    assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
    assert_contains(&stopped.stderr, "\nstopped by --stop-after 1s after step 1 of 600; ");
}

/// Without a step that learns, no evaluation is better than the first.
#[test]
fn a_run_stops_early_and_keeps_its_best_checkpoint() {
    let workspace = workspace();
    let line = "--steps 50 --lr 0 --eval-data val.txt --eval-every 4 --early-stop 2 --keep-best --save out";
    for (mesh, flags, expected) in [
        ("dp=2", "", vec!["step-00000004", "step-00000012"]),
        (
            "1",
            "--save-every 3",
            vec![
                "step-00000003",
                "step-00000004",
                "step-00000006",
                "step-00000009",
                "step-00000012",
            ],
        ),
        ("tp=2", "--save-every 3 --save-async --keep 1", vec!["step-00000004", "step-00000012"]),
    ] {
        let finished = workspace.train(&format!("{line} --mesh {mesh} {flags}"));
        assert_contains(&finished.stdout, "12 steps on ");
        assert_contains(&finished.stdout, "; the lowest is ");
        let export = "--resume out/best --steps 4 --export-hf ";
        let best = format!(", after step 4, in out/best; to export it: {export}OUT");
        assert_contains(&finished.stdout, &best);
        let exported = workspace.run(&format!("{export}exported-{mesh}"));
        assert_eq!(exported.code, Some(0), "{}", exported.stderr);
        assert_contains(
            &finished.stdout,
            "\nstopped early: 2 evaluations in a row had no lower loss (--early-stop 2; a larger number continues the \
             run)\n",
        );
        let mut found = workspace.folder_entries();
        found.retain(|name| name.starts_with("out/step-"));
        assert_eq!(found, expected.iter().map(|name| format!("out/{name}")).collect::<Vec<_>>());
        let best = std::fs::read_link(workspace.path("out/best")).unwrap();
        assert_eq!(best.to_str(), Some("step-00000004"));
        // The same command has nothing left to do.
        let again = workspace.train(&format!("{line} --mesh {mesh} {flags} --resume auto"));
        assert_contains(&again.stdout, "no step was left to train on ");
        assert_contains(&again.stdout, "\nstopped early: 2 evaluations");
        let more = workspace.train("--resume out --early-stop 3");
        assert_contains(&more.stdout, "4 steps on ");
        let best = workspace.train("--resume out/best --steps 5");
        assert_contains(&best.stderr, "resuming out/step-00000004: ");
        std::fs::remove_dir_all(workspace.path("out")).unwrap();
    }
}

/// Each lower loss is saved, and the one before removed, unless it was saved anyway.
#[test]
fn only_the_best_checkpoint_is_kept_for_its_loss() {
    let workspace = workspace();
    let line =
        "--eval-data val.txt --eval-every 2 --keep-best --save out --save-every 4 --mesh dp=2";
    workspace.train(&format!("{line} --steps 7"));
    let mut found = workspace.folder_entries();
    found.retain(|name| name.starts_with("out/") && !name.starts_with("out/."));
    assert_eq!(found, ["out/best", "out/latest", "out/step-00000004", "out/step-00000007"]);
    let link = |name: &str| std::fs::read_link(workspace.path(name)).unwrap();
    assert_eq!(link("out/best"), link("out/latest"));
    // A folder in the place of the link is found before the first step.
    std::fs::remove_file(workspace.path("out/best")).unwrap();
    std::fs::create_dir(workspace.path("out/best")).unwrap();
    let refused = workspace.run(&format!("{SMALL} {line} --steps 9 --resume auto"));
    assert_contains(
        refused.error(),
        "out/best is a folder, not the link to the checkpoint of the lowest",
    );
    workspace.train("--save out --steps 9 --resume auto");
}

/// All ranks learn that one cannot read its rows, and the state is saved.
#[test]
fn validation_data_that_is_cut_off_stops_the_run() {
    let workspace = workspace();
    let whole = workspace.read("val.txt");
    let line = format!(
        "{SMALL} --mesh dp=2,tp=2 --steps 2000 --eval-data val.txt --eval-every 1000 --save out --metrics m.jsonl"
    );
    let mut run = Running::start(&workspace, &line);
    run.wait_for_steps(1);
    let file = std::fs::File::options().write(true).open(workspace.path("val.txt")).unwrap();
    file.set_len(100).unwrap();
    let stopped = run.finish();
    for part in [
        "--eval-data: val.txt had 400 bytes when the run began and has 100 now",
        "; training stopped before step 1001, the state before this step is in out. Restore the data, ",
    ] {
        assert_contains(stopped.error(), part);
    }
    workspace.write("val.txt", &whole);
    let resumed = workspace.train("--save out --resume auto --steps 1002 --metrics m.jsonl");
    assert_contains(&resumed.stderr, "\nstep 1000/1002  eval loss ");
}

#[test]
fn validation_data_that_cannot_be_used_is_refused() {
    let workspace = workspace();
    workspace.write("row.txt", b"seventeen letters");
    workspace.write("short.txt", b"sixteen letters.");
    workspace.write("empty.txt", b"");
    let ids = |ids: &[u16]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
    workspace.write("wide.bin", &ids(&[1, 2, 300].repeat(20)));
    workspace.write("ids.bin", &ids(&[1, 2, 3].repeat(100)));
    let of_ids = SMALL.replace("--data text.txt", "--data ids.bin");
    for (flags, part) in [
        (
            "--eval-data short.txt",
            "error: --eval-data: short.txt has 16 tokens, but one sample of --seq 16 needs 17 ",
        ),
        ("--eval-data empty.txt", "error: --eval-data: empty.txt is empty"),
        ("--eval-data none.txt", "error: --eval-data: cannot read none.txt: No such file"),
        ("--eval-data none*", "error: --eval-data: no file matches none*"),
        ("--eval-data /dev/zero", "error: --eval-data: /dev/zero is a character device"),
        (
            "--eval-data wide.bin",
            "error: --eval-data: wide.bin has token id 300 at position 2, beyond the vocabulary of 256",
        ),
        (
            "--eval-data val.txt --documents 255",
            "error: --eval-data: --documents: token 255 does not occur in the first 400 tokens of val.txt",
        ),
        (
            "--eval-data val.txt --eval-fraction 0.1",
            "error: --eval-data: cannot be combined with --eval-fraction, ",
        ),
        (
            "--eval-fraction 0",
            "error: --eval-fraction: must be a number above 0 and below 1, not `0`",
        ),
        (
            "--eval-fraction 1",
            "error: --eval-fraction: must be a number above 0 and below 1, not `1`",
        ),
        (
            "--eval-fraction NaN",
            "error: --eval-fraction: must be a number above 0 and below 1, not `NaN`",
        ),
        (
            "--eval-fraction -0.1",
            "error: --eval-fraction: must be a number above 0 and below 1, not `-0.1`",
        ),
        ("--eval-fraction 1e-9", " leaves 1 for validation and "),
        ("--eval-fraction 0.9999999", " leaves "),
        (
            "--eval-fraction 1e-9 --documents 10",
            ", in whole documents, leaves 0 for validation and ",
        ),
        (
            "--eval-data val.txt --eval-every 0",
            "error: --eval-every: must be a whole number of at least 1, not `0`",
        ),
        (
            "--eval-data val.txt --eval-steps 0",
            "error: --eval-steps: must be a whole number of at least 1, not `0`",
        ),
        (
            "--eval-data val.txt --early-stop 0",
            "error: --early-stop: must be a whole number of at least 1, not `0`",
        ),
        (
            "--eval-every 5",
            "error: --eval-every: needs validation data: --eval-data FILE, or --eval-fraction X of --data",
        ),
        ("--early-stop 5", "error: --early-stop: needs validation data: "),
        ("--keep-best --save out", "error: --keep-best: needs validation data: "),
        ("--keep-best --eval-data val.txt", "error: --keep-best: needs --save DIR"),
        (
            "--eval-data val.txt --metrics val.txt",
            "error: --metrics: is also the file of --eval-data; ",
        ),
        (
            "--eval-data val.txt --preflight --mesh dp=2",
            "error: --eval-data: a --preflight compares steps ",
        ),
    ] {
        assert_contains(workspace.run(&format!("{SMALL} {flags}")).error(), part);
    }
    let refused = workspace.run(&format!("{of_ids} --eval-data val.txt"));
    let part = "error: --eval-data: val.txt is text, read by bytes, but --data has token ids of an unknown tokenizer; ";
    assert_contains(refused.error(), part);
    let named = workspace.run(&format!("{of_ids} --eval-data val.txt --tokenizer bytes --steps 1"));
    assert_eq!(named.code, Some(0), "{}", named.stderr);

    for (flags, part) in [
        ("--eval-data row.txt", "validation: loss "),
        ("--eval-data text.txt", "warning: --eval-data: it is also the file of --data, "),
        (
            "--eval-data ids.bin",
            "warning: --eval-data: the token ids of ids.bin have to be of the tokenizer of --data, bytes; ",
        ),
    ] {
        let finished = workspace.train(&format!("{flags} --steps 1"));
        assert_contains(&(finished.stderr + &finished.stdout), part);
    }
}
