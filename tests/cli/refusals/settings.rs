//! Settings without a meaning, and those that do not fit together.

use super::assert_refused;
use crate::Workspace;

#[test]
fn settings() {
    let workspace = Workspace::new();
    workspace.write("run.toml", b"steps = 3\nbacth = 4\n");
    assert_refused(
        &workspace,
        &[
            ("--bacth 3", &["error: unknown flag `--bacth`; did you mean `--batch`?"]),
            ("--config run.toml", &["run.toml:2: unknown key `bacth`; did you mean `batch`?"]),
            ("--config none.toml", &["--config: cannot read none.toml: No such file"]),
            (
                "--schedule 1f1b",
                &["--schedule: needs a pp axis, such as --mesh pp=2", "leave it out"],
            ),
            ("--capacity 2", &["error: unknown flag `--capacity`; --help lists them all"]),
            ("--device meta", &["--device: must be one of cpu, cuda, not `meta`"]),
            (
                "--nondeterministic",
                &["--nondeterministic: the CPU has no nondeterministic algorithms"],
            ),
            ("--no-graphs", &["--no-graphs: the CPU has no CUDA graphs"]),
            ("--threads 0", &["--threads: must be a whole number of at least 1, not `0`"]),
            ("--batch 0 --lr -1", &["the settings have 2 problems", "\n  - --batch", "\n  - --lr"]),
        ],
    );
}

#[test]
fn sharding_and_precision() {
    let workspace = Workspace::new();
    assert_refused(
        &workspace,
        &[
            (
                "--zero 1 --mesh dp=2",
                &[
                    "error: --zero: 1 shards over fsdp, ep and cp, whose degrees are 1 in --mesh dp=2; use --mesh \
                     fsdp=2, or --zero 0",
                ],
            ),
            (
                "--zero 3",
                &["whose degrees are 1 in --mesh dp=2,tp=2; use --mesh fsdp=2,tp=2, or --zero 0"],
            ),
            ("--zero 4", &["error: --zero: must be a whole number from 0 to 3, not `4`"]),
            (
                "--recompute some",
                &[
                    "error: --recompute: `some` is not a recomputation policy: expected none, full, every=N (with N at \
                     least 1), sqrt or attn",
                ],
            ),
            (
                "--recompute every=0",
                &[
                    "error: --recompute: `every=0` is not a recomputation policy: expected none, full, ",
                ],
            ),
            (
                "--micro-batches 0",
                &["error: --micro-batches: must be a whole number of at least 1, not `0`"],
            ),
            (
                "--memory-limit lots",
                &[
                    "error: --memory-limit: must be a number of bytes such as 2GB or 512MiB, not `lots`",
                ],
            ),
            ("--dtype f16", &["error: --dtype: must be one of f32, bf16, not `f16`"]),
            (
                "--reduce-dtype bf16",
                &[
                    "error: --reduce-dtype: bf16 would discard the precision of --dtype f32; use --dtype bf16, or \
                     leave it out",
                ],
            ),
        ],
    );
}

#[test]
fn optimizers() {
    let workspace = Workspace::new();
    assert_refused(
        &workspace,
        &[
            (
                "--optimizer adam",
                &[
                    "error: --optimizer: must be one of adamw, sgd, muon, not `adam`; did you mean adamw?",
                ],
            ),
            (
                "--optimizer sgd --betas 0.9,0.99",
                &[
                    "error: --betas: is not a setting of --optimizer sgd; adamw and muon have it, so leave it out",
                ],
            ),
            (
                "--momentum 0.9",
                &[
                    "error: --momentum: is not a setting of --optimizer adamw; sgd and muon have it, so leave it out",
                ],
            ),
            (
                "--optimizer sgd --momentum 1",
                &["error: --momentum: must be a number of at least 0 and below 1, not `1`"],
            ),
            (
                "--optimizer sgd --momentum 0 --state-dtype bf16",
                &[
                    "error: --state-dtype: sgd without momentum keeps no state; use another --optimizer, or leave it \
                     out",
                ],
            ),
            ("--state-dtype f16", &["error: --state-dtype: must be one of f32, bf16, not `f16`"]),
            ("--grad-dtype 16", &["error: --grad-dtype: must be one of f32, bf16, not `16`"]),
            ("--ema 1", &["error: --ema: must be a number of at least 0 and below 1, not `1`"]),
            ("--steps 5 --warmup 6", &["error: --warmup: 6 is more than --steps 5"]),
        ],
    );
}
