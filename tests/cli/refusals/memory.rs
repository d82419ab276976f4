//! Runs that need more memory than there is, or than a limit.

use super::assert_refused;
use crate::{SMALL, Workspace, assert_contains};

#[test]
fn sizes_beyond_memory() {
    let workspace = Workspace::new();
    for flag in ["hidden", "ffn", "vocab", "batch", "seq"] {
        let line = format!("--{flag} 4000000000");
        let parts = ["not enough memory: the run needs at least ", " are available. Each of "];
        assert_refused(&workspace, &[(&line, &parts)]);
    }
    let parts = ["error: --layers is 4000000000; at most 10000 layers are supported"];
    assert_refused(&workspace, &[("--layers 4000000000", &parts)]);
    // Small micro-batches of a batch that is read as a whole.
    let line = "--batch 4000000000 --micro-batches 4000000000 --mesh 1";
    let parts = ["not enough memory: the tokens of a step take 4.10 TB, and ", "a smaller --batch"];
    assert_refused(&workspace, &[(line, &parts)]);
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

/// The logits of a continuation are gathered over `tp`, and need more than a training step.
#[test]
fn memory_limits_below_the_continuation() {
    let workspace = Workspace::new();
    let line = |limit: u64, tokens: usize| {
        format!(
            "--hidden 16 --layers 2 --heads 2 --ffn 16 --vocab 4096 --data text.txt --seq 128 --batch 1 --threads 1 \
             --recompute full --mesh tp=2 --steps 2 --save out --memory-limit {limit}kB --sample-tokens {tokens}"
        )
    };
    let refused = workspace.run(&line(2000, 100));
    let error = refused.error();
    assert_contains(error, "error: --memory-limit: 2.00 MB is too low: each rank needs at least ");
    let kilobytes = |start: &str, end: &str| -> u64 {
        let (_, after) = error.split_once(start).unwrap();
        let number = after.split_once(end).unwrap().0;
        (number.parse::<f64>().unwrap() * 1000.0).round() as u64
    };
    let needed = kilobytes(" needs at least ", " MB:");
    let without = kilobytes(
        "\nwithout a sampled continuation, --sample-tokens 0, it is ",
        " MB\nto use less",
    );
    assert!(without + 1000 < needed, "{error}");
    let rounding = 10;
    for (limit, tokens, fits) in [
        (needed + rounding, 100, true),
        (needed - rounding, 100, false),
        (without + rounding, 0, true),
        (without - rounding, 0, false),
    ] {
        let finished = workspace.run(&line(limit, tokens));
        if fits {
            assert_eq!(finished.code, Some(0), "{limit}: {}", finished.stderr);
            assert_eq!(finished.stdout.contains("--- continuation ---"), tokens > 0);
        } else {
            assert_contains(finished.error(), "error: --memory-limit: ");
        }
    }
}
