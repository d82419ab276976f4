//! Runs that need more memory than there is, or than a limit.

use super::assert_refused;
use crate::{SMALL, Workspace};

#[test]
fn sizes_beyond_memory() {
    let workspace = Workspace::new();
    for flag in ["hidden", "layers", "ffn", "vocab", "batch", "seq"] {
        let line = format!("--{flag} 4000000000");
        let parts = ["not enough memory: the run needs at least ", " are available. Each of "];
        assert_refused(&workspace, &[(&line, &parts)]);
    }
}

#[test]
fn memory_limits_below_the_plan() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2 --save out --metrics m.jsonl");
    assert_refused(
        &workspace,
        &[
            (
                &format!("{line} --memory-limit 100kB"),
                &[
                    "error: --memory-limit: 100 kB is too low: each rank needs at least ",
                    "\n  parameters ",
                    "\n  gradients ",
                    "\n  optimizer ",
                    "\n  activations ",
                    "\n  workspace ",
                    "\nto use less memory: more --micro-batches, --recompute full, more fsdp or tp ranks, ",
                ],
            ),
            // Refused by the sizes alone, before the model is declared.
            (&format!("{line} --memory-limit 1"), &["--memory-limit: 1 B is too low"]),
        ],
    );
}

/// The limit of a pipeline is checked against the rank that needs most, before any file is written.
#[test]
fn memory_limits_of_pipelines() {
    let workspace = Workspace::new();
    let line = |limit: &str| {
        format!("{SMALL} --mesh pp=2 --micro-batches 4 --steps 1 --memory-limit {limit}")
    };
    let small = format!("{} --save out", line("100kB"));
    // The second rank has the head, and one of the two layers: half the matrices, and two norms and a last one.
    let parameters = (256 * 32 + 3072 + 4608 + 3 * 32) * 4;
    let parameters = format!("\n  parameters       {:.1} kB\n", f64::from(parameters) / 1e3);
    let parts = [
        "error: --memory-limit: 100 kB is too low: each rank at position 1 of pp (stage 1) needs at least ",
        &parameters,
        "\n  activations ",
        "\n  communication ",
        "\nto use less memory: ",
    ];
    assert_refused(&workspace, &[(&small, &parts)]);

    let refused = workspace.run(&small);
    let (_, needed) = refused.error().split_once(" needs at least ").unwrap();
    let needed: u64 = needed.split_once(" kB:").unwrap().0.parse().unwrap();
    let below = line(&format!("{}kB", needed - 1));
    assert_refused(&workspace, &[(&below, &["--memory-limit: ", " needs at least "])]);
    let enough = workspace.run(&line(&format!("{}kB", needed + 1)));
    assert_eq!(enough.code, Some(0), "{}", enough.stderr);
}
