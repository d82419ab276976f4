//! Checkpoints and exports: resumed runs are identical to uninterrupted ones.

use crate::{Workspace, assert_contains, numbers};

const RANKS: [&str; 4] = ["00000", "00001", "00002", "00003"];

#[test]
fn a_resumed_run_has_the_bits_of_an_uninterrupted_one() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2,tp=2 --order shuffled --seed 3 --warmup 2 --lr 3e-3";
    workspace.train(&format!("{line} --steps 6 --save whole --metrics whole.jsonl"));
    workspace.train(&format!("{line} --steps 3 --save parts --metrics parts.jsonl"));
    let finished = workspace.train(&format!(
        "{line} --steps 6 --save parts --resume parts/latest --metrics parts.jsonl"
    ));
    assert_contains(&finished.stderr, "resuming parts/step-00000003: ");
    assert_contains(&finished.stderr, "step 4/6  loss ");
    assert_contains(&finished.stdout, "3 steps on 4 ranks");
    assert_contains(&finished.stdout, "saved parts/latest; to go on: --resume parts/latest");
    for rank in RANKS {
        let file =
            |dir: &str| workspace.read(&format!("{dir}/step-00000006/rank-{rank}.safetensors"));
        assert!(file("whole") == file("parts"), "rank {rank}");
    }
    let [whole, parts] = ["whole.jsonl", "parts.jsonl"].map(|name| workspace.metrics(name));
    assert_eq!(numbers(&whole, "step"), numbers(&parts, "step"));
    assert_eq!(numbers(&whole, "loss"), numbers(&parts, "loss"));
    assert_eq!(numbers(&whole, "grad_norm"), numbers(&parts, "grad_norm"));
}

#[test]
fn two_runs_save_identical_bytes() {
    let workspace = Workspace::new();
    for dir in ["a", "b"] {
        workspace.train(&format!("--mesh dp=2,tp=2 --steps 3 --save {dir}"));
    }
    for rank in RANKS {
        let file =
            |dir: &str| workspace.read(&format!("{dir}/step-00000003/rank-{rank}.safetensors"));
        assert!(file("a") == file("b"), "rank {rank}");
    }
}

#[test]
fn checkpoints_load_on_another_mesh() {
    let workspace = Workspace::new();
    workspace.train("--steps 4 --mesh dp=2,tp=2 --metrics whole.jsonl");
    workspace.train("--steps 2 --mesh tp=2 --save out --metrics parts.jsonl");
    workspace.train("--steps 4 --mesh dp=4 --resume out --metrics parts.jsonl");
    let [whole, parts] = ["whole.jsonl", "parts.jsonl"].map(|name| workspace.metrics(name));
    crate::assert_close(&numbers(&parts, "loss"), &numbers(&whole, "loss"), 1e-4);
}

#[test]
fn steps_and_learning_rate_may_change_on_resume() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --save out");
    workspace.train("--steps 3 --lr 1e-4 --resume out/step-00000002 --metrics m.jsonl");
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "lr"), [1e-4]);
}

#[test]
fn old_checkpoints_are_removed_by_keep() {
    let workspace = Workspace::new();
    workspace.train("--steps 7 --save out --save-every 2 --keep 2");
    let mut names: Vec<_> = workspace.listing();
    names.retain(|name| name.matches('/').count() == 1);
    assert_eq!(names, ["out/latest", "out/step-00000006", "out/step-00000007"]);
    let target = std::fs::read_link(workspace.path("out/latest")).unwrap();
    assert_eq!(target.to_str(), Some("step-00000007"));
}

#[test]
fn an_incomplete_checkpoint_is_skipped_with_a_warning() {
    let workspace = Workspace::new();
    workspace.train("--steps 4 --save out --save-every 2");
    let torn = "out/step-00000004/rank-00000.safetensors";
    let content = workspace.read(torn);
    workspace.write(torn, &content[..content.len() / 2]);
    let finished = workspace.train("--steps 3 --resume out/latest");
    assert_contains(&finished.stderr, &format!("warning: {torn} is damaged: it has "));
    assert_contains(&finished.stderr, "going on from out/step-00000002");
    assert_contains(&finished.stdout, "1 step on 1 rank");
}

#[test]
fn an_export_is_the_trained_model() {
    let workspace = Workspace::new();
    // One sample, so that every step has the same batch, and the loss identifies the model.
    workspace.write("one.txt", b"seventeen letters");
    let data = "--data one.txt --seq 16 --batch 2 --sample-tokens 0 --threads 1";
    let sizes = "--hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --lr 1e-2";
    for tied in ["", "--tied"] {
        let run = |line: &str| {
            let finished = workspace.run(&format!("{data} {line}"));
            assert_eq!(finished.code, Some(0), "{}", finished.stderr);
            finished
        };
        run(&format!("{sizes} {tied} --steps 3 --mesh dp=2,tp=2 --metrics m.jsonl"));
        let finished = run(&format!("{sizes} {tied} --steps 2 --mesh dp=2,tp=2 --export-hf hf"));
        assert_contains(&finished.stdout, "exported hf\n");
        run("--init-from hf --steps 1 --mesh dp=2,tp=2 --metrics from_hf.jsonl");
        let [trained, exported] = ["m.jsonl", "from_hf.jsonl"].map(|name| workspace.metrics(name));
        assert_eq!(trained[2]["loss"], exported[0]["loss"], "{tied}");
        assert_ne!(trained[0]["loss"], exported[0]["loss"], "{tied}");
        assert!(!workspace.listing().iter().any(|name| name.contains(".tmp")));
    }
}
