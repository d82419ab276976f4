//! Command lines that are refused.

use super::*;

#[test]
fn flags_of_no_version_are_unknown() {
    for line in ["--capacity", "--capacity 1"] {
        assert_contains(&refusal(line), "unknown flag `--capacity`; --help lists them all");
    }
    let text = with_file("capacity = 1", "").unwrap_err();
    assert_contains(&text, "run.toml:1: unknown key `capacity`");
    let text = with_file("max_steps = 1", "").unwrap_err();
    assert_contains(&text, "run.toml:1: unknown key `max_steps`; here it is `steps`");
    for device in ["tpu", "meta"] {
        let expected = format!("--device: must be one of cpu, cuda, not `{device}`");
        assert_contains(&refusal(&format!("--device {device}")), &expected);
    }
}

#[test]
fn malformed_command_lines() {
    for (line, message) in [
        ("--bacth 4", "unknown flag `--bacth`; did you mean `--batch`?"),
        ("--save-evry 4", "unknown flag `--save-evry`; did you mean `--save-every`?"),
        ("--batch_size 4", "unknown flag `--batch_size`; here it is `--batch B`: the sequences of"),
        ("--tp 2", "unknown flag `--tp`; here it is `--mesh tp=N`"),
        ("--max_lr=1", "unknown flag `--max_lr`; here it is `--lr X`"),
        ("--BF16", "unknown flag `--BF16`; here it is `--dtype bf16`"),
        (
            "--eval_steps 50",
            "unknown flag `--eval_steps`; here it is `--eval-every N`: --eval-steps is",
        ),
        ("--training.seq_len 8", "unknown flag `--training.seq_len`; here it is `--seq T`"),
        ("--optimizer.lr 1", "unknown flag `--optimizer.lr`; here it is `--lr`"),
        ("--compile true", "unknown flag `--compile`; the model is compiled with the program"),
        ("--quux 1", "unknown flag `--quux`; --help lists them all"),
        ("--lr_schedule wsd", "unknown flag `--lr_schedule`; did you mean `--lr-schedule`?"),
        ("-b 4", "`-b` is not a flag; every setting is written as --name value"),
        ("train.txt", "`train.txt` is not a flag"),
        ("--batch 4 --batch 5", "--batch was given twice"),
        ("--batch", "--batch needs a value, written as --batch <B>"),
        ("--batch --seq 4", "--batch needs a value"),
        ("--tied=yes", "--tied takes no value, but `yes` was given"),
    ] {
        assert_contains(&refusal(line), message);
    }
}

#[test]
fn all_unknown_flags_are_listed() {
    let text = refusal("--max-steps 4 --batch 8 --bf16 --lr=1 --tensor-parallel-size=2");
    for part in ["3 problems", "`--steps N`", "`--dtype bf16`", "`--mesh tp=N`"] {
        assert_contains(&text, part);
    }
}

#[test]
fn values_out_of_range() {
    for (line, message) in [
        ("--batch 0", "--batch: must be a whole number of at least 1, not `0`"),
        ("--seq -3", "--seq: must be a whole number of at least 1, not `-3`"),
        ("--steps 1.5", "--steps: must be a whole number of at least 1, not `1.5`"),
        ("--seed x", "--seed: must be a whole number, not `x`"),
        ("--steps 99999999999999999999", "--steps: must be at most 4294967295, not `9999"),
        ("--seed 18446744073709551616", "--seed: must be at most 18446744073709551615, not"),
        (
            "--hidden 9223372036854775808",
            "--hidden: must be at most 4294967295, not `9223372036854775808`",
        ),
        ("--zero 4", "--zero: must be a whole number from 0 to 3, not `4`"),
        ("--zero -1", "--zero: must be a whole number from 0 to 3, not `-1`"),
        (
            "--recompute every",
            "--recompute: `every` is not a recomputation policy: expected none, full",
        ),
        (
            "--recompute every=x",
            "--recompute: `every=x` is not a recomputation policy: expected none",
        ),
        ("--ema 1.0", "--ema: must be a number of at least 0 and below 1, not `1.0`"),
        (
            "--momentum nan --optimizer sgd",
            "--momentum: must be a number of at least 0 and below 1",
        ),
        ("--threads 0", "--threads: must be a whole number of at least 1"),
        ("--lr -1e-3", "--lr: must be a number of at least 0, not `-1e-3`"),
        ("--z-loss 1e39", "--z-loss: `1e39` is too large"),
        ("--balance batch=1e300", "--balance: `batch=1e300` is too large"),
        ("--lr nan", "--lr: must be a number of at least 0, not `nan`"),
        ("--clip inf", "--clip: must be a number of at least 0, not `inf`"),
        ("--betas 0.9", "--betas: must be two numbers in [0, 1) separated by a comma, not `0.9`"),
        ("--betas 0.9,1.0", "--betas: must be two numbers in [0, 1)"),
        ("--betas -0.1,0.9", "--betas: must be two numbers in [0, 1)"),
        ("--order random", "--order: must be one of sequential, shuffled, not `random`"),
        ("--documents end", "--documents: must be a whole number, not `end`"),
        ("--pack", "--pack: needs --documents ID"),
        ("--mask-borders", "--mask-borders: needs --documents ID"),
        ("--lr-schedule cosin", "not `cosin`; did you mean cosine?"),
        ("--device tpu", "--device: must be one of cpu, cuda, not `tpu`"),
        ("--mesh dp=0", "--mesh: entry `dp=0`: a degree is at least 1"),
        ("--mesh pt=2", "--mesh: entry `pt=2`: unknown axis `pt`"),
        ("--data=", "--data: needs a path, but the value is empty"),
    ] {
        assert_contains(&refusal(line), message);
    }
}

#[test]
fn values_that_do_not_go_together() {
    for (line, message) in [
        ("--lr-schedule wsd --lr 1e-4 --min-lr 1e-3", "--min-lr: 0.001 is above --lr 0.0001"),
        (
            "--min-lr 1e-4",
            "--min-lr: is the end of a decay, and --lr-schedule constant has none; use cosine",
        ),
        ("--steps 5 --warmup 6", "--warmup: 6 is more than --steps 5"),
        ("--zero 1 --mesh 1", "in --mesh 1; use --mesh fsdp=2, or --zero 0"),
        ("--zero 2 --mesh dp=4,tp=2", "in --mesh dp=4,tp=2; use --mesh fsdp=4,tp=2, or --zero 0"),
        ("--reduce-dtype bf16", "--reduce-dtype: bf16 would discard the precision of --dtype f32"),
        ("--keep 2", "--keep: needs --save DIR"),
        ("--save-every 2", "--save-every: needs --save DIR"),
        ("--save-every 2 --save-async", "--save-every: needs --save DIR"),
        (
            "--save out --save-async",
            "--save-async: needs --save-every N: a run waits for the checkpoint after its last step",
        ),
        ("--init-from x --hidden 4", "--hidden: cannot be combined with --init-from"),
        ("--init-from x --tied", "--tied: cannot be combined with --init-from"),
        ("--architecture x --top-k 4", "--top-k: cannot be combined with --architecture"),
        ("--init-from x --architecture y", "--architecture: cannot be combined with --init-from"),
        ("--hidden 100 --heads 3", "--heads: 3 does not divide --hidden 100"),
        ("--heads 4 --kv-heads 3", "--kv-heads: 3 does not divide --heads 4"),
    ] {
        assert_contains(&refusal(line), message);
    }
}

#[test]
fn problems_are_reported_together() {
    let text = refusal("--batch 0 --lr -1 --keep 3 --schedule 1f1b");
    assert_contains(&text, "the settings have 4 problems\n  - --schedule");
    assert_eq!(text.lines().count(), 5, "{text}");
}

/// An address of another scheme would become a folder of that name.
#[test]
fn addresses_of_other_schemes_are_refused() {
    for flag in ["--save", "--resume", "--export-hf", "--metrics", "--flight"] {
        for address in ["http://bucket/run", "S3://bucket/run", "file:///tmp/run"] {
            let message =
                format!("{flag}: {address} is no path and no address that is known; use a path");
            assert_contains(&refusal(&format!("{flag} {address}")), &message);
        }
    }
}
