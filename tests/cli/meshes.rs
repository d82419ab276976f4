//! The mesh from the command line: the order of its axes, and its choice for a number of ranks.

use crate::{SMALL, Workspace, assert_contains, numbers};

#[test]
fn the_order_of_axes_keeps_all_bits() {
    let workspace = Workspace::new();
    let run = |flags: &str| {
        let line = format!("{SMALL} --steps 3 --metrics m.jsonl --export-hf model {flags}");
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{flags}\n{}", finished.stderr);
        let losses = numbers(&workspace.metrics("m.jsonl"), "loss");
        let weights = workspace.read("model/model.safetensors");
        std::fs::remove_dir_all(workspace.path("model")).unwrap();
        (losses, weights, finished.stderr)
    };
    for (mesh, order) in [
        ("dp=2,tp=2", "tp,dp"),
        ("fsdp=2,tp=2", "tp,fsdp"),
        ("pp=2,dp=2", "dp,pp"),
        ("cp=2,tp=2", "tp,cp"),
        ("dp=2,cp=2", "cp,dp"),
        ("pp=2,fsdp=2,tp=2", "fsdp,tp,pp"),
    ] {
        let flags = format!("--mesh {mesh} --micro-batches 2");
        let (losses, weights, _) = run(&flags);
        let (other_losses, other_weights, said) = run(&format!("{flags} --mesh-order {order}"));
        assert_eq!(losses, other_losses, "{mesh} in the order {order}");
        assert!(weights == other_weights, "{mesh} in the order {order}: other weights");
        assert_contains(&said, &format!("({mesh} in the order {order})"));
    }
    let refused = workspace.run(&format!("{SMALL} --mesh dp=2,tp=2 --mesh-order tp"));
    assert_eq!(refused.code, Some(2));
    assert_contains(
        &refused.stderr,
        "--mesh-order: the mesh has dp=2, but the order does not name `dp`; add `dp`",
    );
}

#[test]
fn a_mesh_is_chosen_for_a_number_of_ranks() {
    let workspace = Workspace::new();
    let run = |flags: &str| {
        let small =
            if flags.contains("--batch") { SMALL.replace("--batch 4", "") } else { SMALL.into() };
        let finished = workspace.run(&format!("{small} --steps 1 --mesh auto=4 {flags}"));
        assert_eq!(finished.code, Some(0), "{flags}\n{}", finished.stderr);
        finished.stderr
    };
    assert_contains(&run(""), "--mesh auto: dp=4, the cheapest mesh of 4 ranks");
    assert_contains(
        &run("--batch 2"),
        "--mesh auto: dp=2,tp=2; cheaper ones do not fit:\n  dp=4: --batch 2 does not divide into 4 equal parts",
    );
    let pipeline = run("--schedule 1f1b --micro-batches 2");
    assert_contains(
        &pipeline,
        "--mesh auto: pp=2,dp=2; cheaper ones do not fit:\n  dp=4: --schedule",
    );
    let sharded = run("--zero 3");
    assert_contains(
        &sharded,
        "--mesh auto: dp=2,fsdp=2; cheaper ones do not fit:\n  dp=4: --zero: 3",
    );
    assert_contains(
        &run("--cp gather"),
        "--mesh auto: dp=2,cp=2; cheaper ones do not fit:\n  dp=4: --cp: gather needs context-parallel ranks",
    );
}

#[test]
fn a_choice_that_is_impossible_names_the_reasons() {
    let workspace = Workspace::new();
    let refuse = |flags: &str, message: &str| {
        let finished = workspace.run(&format!("{SMALL} --steps 1 {flags}"));
        assert_eq!(finished.code, Some(2), "{flags}\n{}", finished.stderr);
        assert_contains(&finished.stderr, message);
    };
    refuse(
        "--mesh auto",
        "--mesh: `auto` counts GPUs or processes; in one process on the CPU name the ranks, such as `auto=4`",
    );
    refuse("--mesh auto=4.5", "--mesh: `auto=4.5` is not a number of ranks");
    refuse(
        "--mesh auto=4 --memory-limit 1kB",
        "--mesh: no mesh of 4 ranks fits:\n  dp=4: --memory-limit",
    );
    refuse("--mesh auto=4 --lr fast", "error: --lr: ");
}
