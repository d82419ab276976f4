//! Budgets of a step.

use std::panic::catch_unwind;

use meshwright::models::llama::Llama;
use meshwright::testing::{StepBudget, budget};
use meshwright::train::Trainer;
use meshwright::train::config::Config;
use meshwright_tests::models::plain_llama;

const SIZES: &str = "--hidden 32 --layers 2 --heads 4 --ffn 48 --seq 16 --batch 4";

fn llama(mesh: &str) -> StepBudget {
    budget::<Llama>(mesh, SIZES).unwrap()
}

/// Returns the message of an assertion that fails.
fn message_of(check: impl Fn()) -> String {
    let panic = catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

/// Four calls of 4 x 16 tokens of width 32 in f32, half of which a rank sends, for the forward pass of each of two
/// layers, six for its backward, and four for embedding and head.
#[test]
fn numbers_are_those_of_a_rank() {
    let step = llama("tp=2");
    let gathered = 4 * 16 * 32 * 4 / 2;
    let bytes = step.bytes("tp");
    let expected = (2 * (4 + 6) + 4) * gathered;
    assert!((expected..expected + 6000).contains(&bytes), "{bytes}, {expected}");
    step.bytes_at_most("tp", bytes)
        .collectives_at_most(step.collectives())
        .memory_at_most(step.memory())
        .flops_at_most(step.flops());
    let logs = Trainer::<Llama>::new(config("tp=2")).unwrap().step_logs().unwrap();
    assert_eq!(step.flops(), logs[0].flops(|_| true));
    assert_eq!(step.memory(), logs[0].memory_peak(|_| true).bytes);
    // Nothing is recomputed or sent by one rank.
    let alone = llama("1");
    assert_eq!(alone.collectives(), 0);
    assert!(alone.flops() > step.flops() && alone.memory() > step.memory());
}

fn config(mesh: &str) -> Config {
    Config::parse(format!("budget --mesh {mesh} {SIZES}").split_whitespace()).unwrap()
}

#[test]
fn each_limit_fails_by_one() {
    let step = llama("fsdp=2,tp=2");
    let text = message_of(|| {
        step.bytes_at_most("tp", step.bytes("tp") - 1);
    });
    let begin = "a step on rank 3 of fsdp=2,tp=2 sends over tp ";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains(": 1 B above the limit of "), "{text}");
    let largest = text.lines().nth(1).unwrap();
    let words: Vec<&str> = largest.split_whitespace().collect();
    assert!(words[0].starts_with("blocks.0-1."), "{text}");
    assert!(words.last().unwrap().contains("decoder/model.rs:"), "{text}");

    let text = message_of(|| {
        step.collectives_at_most(step.collectives() - 1);
    });
    assert!(text.contains(" collectives: 1 collective above the limit of "), "{text}");
    assert!(text.contains("\n  blocks.0-1."), "{text}");

    let text = message_of(|| {
        step.memory_at_most(step.memory() - 1);
    });
    assert!(text.contains(" takes, in the forward pass, LmHead::loss, "), "{text}");
    assert!(text.contains("\n  activations  blocks.0-1  Mlp::forward "), "{text}");

    let text = message_of(|| {
        step.flops_at_most(step.flops() - 1);
    });
    assert!(text.contains(" computes "), "{text}");
    assert_eq!(text.lines().nth(1).unwrap().split_whitespace().next(), Some("blocks.0-1"));
}

/// A model of a program is named by its own file.
#[test]
fn models_of_programs_have_budgets() {
    let step = budget::<plain_llama::Llama>("tp=2", SIZES).unwrap();
    let text = message_of(|| {
        step.bytes_at_most("tp", 0);
    });
    assert!(text.contains("plain_llama.rs:"), "{text}");
}

/// The stage with most messages and the stage with the head are different ranks.
#[test]
fn each_number_is_of_the_position_that_needs_most() {
    let step = budget::<Llama>("pp=2", &format!("{SIZES} --micro-batches 2")).unwrap();
    let logs =
        Trainer::<Llama>::new(config("pp=2 --micro-batches 2")).unwrap().step_logs().unwrap();
    let flops: Vec<u64> = logs.iter().map(|log| log.flops(|_| true)).collect();
    assert!(flops[0] < flops[1]);
    assert_eq!(step.flops(), flops[1]);
    let sent = logs.iter().map(|log| log.sent().iter().map(|(_, bytes, _)| bytes).sum::<u64>());
    assert_eq!(step.bytes("pp"), sent.max().unwrap());
}

#[test]
fn times_are_those_of_a_cluster() {
    let flags =
        "--hidden 1024 --layers 4 --heads 8 --seq 1024 --batch 8 --device cuda --dtype bf16";
    let step = budget::<Llama>("tp=8", flags).unwrap();
    let [fast, slow] = ["h100-dgx", "k40-box"].map(|cluster| step.on(cluster));
    // A K40 has no bf16.
    assert!(slow.map(drop).unwrap_err().to_string().contains("bf16"));
    let fast = fast.unwrap();
    let (seconds, exposed) = (fast.seconds(), fast.exposed("tp"));
    assert!(0.0 < exposed && exposed < seconds, "{exposed}, {seconds}");
    fast.exposed_at_most("tp", exposed).seconds_at_most(seconds);
    let text = message_of(|| {
        fast.exposed_at_most("tp", exposed / 2.0);
    });
    assert!(text.contains(" waits on h100-dgx for "), "{text}");
    assert!(text.contains("Most bytes over tp:\n  blocks.0-3."), "{text}");
    let text = message_of(|| {
        fast.seconds_at_most(seconds / 2.0);
    });
    assert!(text.starts_with("a step on h100-dgx takes "), "{text}");
}

#[test]
fn wrong_budgets_are_refused() {
    let error = |mesh: &str, flags: &str| budget::<Llama>(mesh, flags).map(drop).unwrap_err();
    assert!(error("tp=3", SIZES).to_string().contains("tp"), "three ranks for four heads");
    let error = error("tp=2", "--hiden 32").to_string();
    assert!(error.contains("--hiden") && error.contains("--hidden"), "{error}");
    let step = llama("tp=2");
    let text = message_of(|| {
        step.bytes_at_most("fsdp", 1);
    });
    assert_eq!(text, "`fsdp`: the mesh tp=2 has no ranks along `fsdp`");
    let error = step.on("h10").map(drop).unwrap_err().to_string();
    assert!(error.contains("unknown cluster `h10`; did you mean `h100`?"), "{error}");
}
