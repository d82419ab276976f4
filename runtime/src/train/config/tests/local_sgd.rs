//! `--local-steps`, and what it cannot be combined with.

use super::*;

/// Flags of a run whose replicas are synchronized three times.
const LOCAL: &str = "--mesh dp=2 --steps 24 --local-steps 8";

#[test]
fn the_outer_optimizer_is_that_of_diloco() {
    let local = |line: &str| parse(line).unwrap().local_sgd;
    assert_eq!(local("--steps 24"), None);
    let diloco = LocalSgdConfig {
        steps: 8,
        outer_lr: 0.7,
        outer_momentum: 0.9,
        fragments: 1,
        delay: 0,
        alpha: None,
    };
    assert_eq!(local(LOCAL), Some(diloco));
    let expected = LocalSgdConfig { steps: 1, outer_lr: 1.0, outer_momentum: 0.0, ..diloco };
    let line = "--steps 3 --local-steps 1 --outer-lr 1 --outer-momentum 0";
    assert_eq!(local(line), Some(expected));
    let streaming = LocalSgdConfig { fragments: 2, delay: 1, ..diloco };
    assert_eq!(local(&format!("{LOCAL} --fragments 2 --fragment-delay 1")), Some(streaming));
    assert_eq!((diloco.alpha(), streaming.alpha()), (0.0, 0.5));
}

#[test]
fn fragments_take_turns() {
    let line = format!("{LOCAL} --fragments 4");
    let local = parse(&line).unwrap().local_sgd.unwrap();
    let found: Vec<Option<usize>> = (0..=12).map(|steps| local.fragment_after(steps)).collect();
    let expected: Vec<Option<usize>> = (0..=12)
        .map(|steps| match steps {
            2 | 10 => Some(0),
            4 | 12 => Some(1),
            6 => Some(2),
            8 => Some(3),
            _ => None,
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn replicas_share_the_batch() {
    let batch = |line: &str| parse(line).unwrap().replica_batch();
    assert_eq!(batch(&format!("{LOCAL} --batch 8")), 4);
    assert_eq!(batch("--mesh dp=2 --batch 8"), 8);
}

#[test]
fn wrong_local_steps_are_refused() {
    for (line, message) in [
        ("--local-steps 0", "--local-steps: must be a whole number of at least 1"),
        ("--local-steps -1", "--local-steps"),
        ("--outer-lr 1", "--outer-lr: needs --local-steps H"),
        ("--outer-momentum 0.9", "--outer-momentum: needs --local-steps H"),
        ("--fragments 2", "--fragments: needs --local-steps H"),
        ("--fragment-delay 0", "--fragment-delay: needs --local-steps H"),
        ("--fragment-alpha 0.5", "--fragment-alpha: needs --local-steps H"),
        ("--num-fragments 2", "--fragments P"),
        (
            "--mesh dp=2 --steps 24 --local-steps 25",
            "--local-steps: 25 is more than --steps 24, so the replicas would never be synchronized; use at most 24",
        ),
        (
            "--mesh dp=2 --steps 24 --local-steps 7",
            "--steps: 24 is no multiple of --local-steps 7: the model of the last step is the result of the run, and \
             the replicas differ until they are synchronized; use 21 or 28",
        ),
        (
            "--mesh fsdp=4 --steps 24 --local-steps 8",
            "--local-steps: 8 lets replicas along dp train apart, but the degree of dp is 1 in --mesh fsdp=4 (the \
             ranks of fsdp share one replica); use --mesh dp=2,fsdp=4, or leave it out",
        ),
        ("--mesh 1 --steps 24 --local-steps 8", "use --mesh dp=2, or leave it out"),
    ] {
        assert_contains(&refusal(line), message);
    }
}

#[test]
fn what_meets_no_synchronization_is_refused() {
    for (flags, message) in [
        (
            "--save c --save-every 4",
            "--save-every: 4 is no multiple of --local-steps 8: checkpoints hold one model, and the replicas differ \
             until they are synchronized; use 8",
        ),
        ("--save c --save-every 12", "use 8 or 16"),
        ("--check-replicas 10", "--check-replicas: 10 is no multiple of --local-steps 8"),
        ("--eval-fraction 0.1 --eval-every 12", "--eval-every: 12 is no multiple"),
        (
            "--eval-fraction 0.1",
            "--eval-every: 100, its default, is no multiple of --local-steps 8",
        ),
        ("--outer-lr 0", "--outer-lr: 0 discards what the replicas have learned"),
        ("--outer-lr 1e39", "--outer-lr: "),
        ("--outer-momentum 1", "--outer-momentum: "),
        (
            "--outer-momentum 0.9999999999",
            "--outer-momentum: the momentum must be at least 0 and below 1",
        ),
        (
            "--fragments 3",
            "--fragments: 3 does not divide --local-steps 8, and each fragment has a turn of as many steps; use 2 \
             fragments, or --local-steps 9",
        ),
        ("--fragments 9", "use 8 fragments, or --local-steps 9"),
        ("--fragments 0", "--fragments: must be a whole number of at least 1"),
        (
            "--fragments 2 --fragment-delay 4",
            "--fragment-delay: 4 is not less than the 4 steps of --local-steps 8 in which it is the turn of a \
             fragment, and one is synchronized at a time; use at most 3",
        ),
        ("--fragments 8 --fragment-delay 1", "use 0, or a larger --local-steps"),
        ("--fragment-delay 8", "use at most 7"),
        ("--fragment-delay 1 --fragment-alpha 1", "--fragment-alpha: "),
        ("--ema 0.99", "--ema: averages the parameters of every step"),
        ("--noise-scale --metrics m.jsonl", "--noise-scale: compares parts of one batch"),
        ("--preflight", "--preflight: compares a run with one rank"),
        ("--record r.json", "--record: measures the communication of every step alike"),
        ("--simulate h100x2", "--simulate: simulates a step"),
    ] {
        assert_contains(&refusal(&format!("{LOCAL} {flags}")), message);
    }
    for flags in
        ["--save c --save-every 16", "--check-replicas 8", "--eval-fraction 0.1 --eval-every 8"]
    {
        assert!(parse(&format!("{LOCAL} {flags}")).is_ok(), "{flags}");
    }
}
