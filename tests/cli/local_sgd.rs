//! `--local-steps`: replicas along `dp` that train apart between synchronizations.

use std::collections::BTreeSet;

use crate::stops::Running;
use crate::{SMALL, Workspace, assert_close, assert_contains, family_program, numbers};

/// Twelve steps with a synchronization after every third one.
const LOCAL: &str = "--mesh dp=2 --steps 12 --local-steps 3";

/// A mean of the replicas after each step of plain SGD is data parallelism: it is the movement by the mean gradient,
/// also with momentum, whose mean over the replicas is that of the mean gradient.
#[test]
fn a_mean_after_each_step_is_data_parallelism() {
    let workspace = Workspace::new();
    for optimizer in ["--momentum 0", "--momentum 0.9"] {
        let line = format!("--mesh dp=2 --steps 10 --optimizer sgd {optimizer} --lr 0.1 --clip 0");
        let expected = workspace.losses(&line);
        let local = format!("{line} --local-steps 1 --outer-lr 1 --outer-momentum 0");
        assert_close(&workspace.losses(&local), &expected, 1e-5);
        let later = format!("{line} --local-steps 5 --outer-lr 1 --outer-momentum 0");
        let losses = workspace.losses(&later);
        assert_close(&losses[..1], &expected[..1], 1e-6);
        assert!((losses[9] - expected[9]).abs() > 1e-4, "replicas never part: {losses:?}");
    }
}

/// Bytes over `dp`: none in a step, and in a synchronization those of one reduction of the gradients.
#[test]
fn replicas_communicate_in_synchronizations_only() {
    let workspace = Workspace::new();
    for (mesh, flags) in
        [("dp=2", ""), ("dp=2,fsdp=2", "--zero 3"), ("dp=2,tp=2", ""), ("dp=4", "")]
    {
        let line = format!("--mesh {mesh} --steps 6 {flags} --metrics m.jsonl");
        let bytes = |line: &str| -> Vec<f64> {
            workspace.train(line);
            let steps = workspace.metrics("m.jsonl");
            steps.iter().map(|step| step["comm_bytes"]["dp"].as_f64().unwrap()).collect()
        };
        let each = bytes(&line)[0];
        assert!(each > 0.0);
        let local = bytes(&format!("{line} --local-steps 3"));
        assert_eq!(local, [0.0, 0.0, each, 0.0, 0.0, each], "{mesh}");
        let turns = bytes(&format!("{line} --local-steps 6 --fragments 2 --fragment-delay 1"));
        let (first, second) = (turns[1], turns[4]);
        assert_eq!(turns, [0.0, first, 0.0, 0.0, second, 0.0], "{mesh}");
        assert!(first > 0.0 && second > 0.0 && first + second == each, "{mesh}: {turns:?}");
    }
}

/// A checkpoint has the optimizer state of each replica, and one outer momentum; a resumed run goes on bit for bit.
#[test]
fn replicas_are_resumed_bit_for_bit() {
    let workspace = Workspace::new();
    for (index, flags) in [
        "--mesh dp=2",
        "--mesh dp=2,fsdp=2 --zero 1",
        "--mesh dp=2,fsdp=2 --zero 3 --dtype bf16 --save-async",
        "--mesh dp=2,pp=2 --micro-batches 2 --tied",
        "--mesh dp=2 --optimizer muon",
        "--mesh dp=2 --optimizer sgd --momentum 0 --outer-momentum 0",
        "--mesh dp=2 --local-steps 2 --fragments 2",
        "--mesh dp=2,fsdp=2 --zero 3 --dtype bf16 --save-async --local-steps 6 --fragments 2 --fragment-delay 2",
        "--mesh dp=2,pp=2 --micro-batches 2 --tied --fragment-delay 1",
    ]
    .into_iter()
    .enumerate()
    {
        let every = if flags.contains("--local-steps") { "" } else { "--local-steps 3" };
        let line = format!("{flags} --steps 12 {every}");
        let [whole, half] = ["whole", "half"].map(|name| format!("{name}{index}"));
        workspace.train(&format!("{line} --save {whole} --save-every 6"));
        let resumed = workspace.train(&format!("--save {half} --resume {whole}/step-00000006"));
        assert_contains(&resumed.stderr, "2 replicas train apart");
        let last = |run: &str| workspace.tensors(&format!("{run}/step-00000012"));
        assert!(last(&whole) == last(&half), "{line}");
    }
    let kinds = |run: &str| -> BTreeSet<String> {
        let manifest = workspace.read(&format!("{run}/step-00000012/manifest.json"));
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let names = manifest["tensors"].as_object().unwrap().keys();
        names.map(|name| name.split('.').next().unwrap().to_owned()).collect()
    };
    let of_replicas = |kind: &str| [0, 1].map(|replica| format!("{kind}-replica{replica}"));
    let shared = ["outer_momentum", "params"].map(str::to_owned);
    let all = shared.into_iter().chain(["adam_m", "adam_v"].into_iter().flat_map(of_replicas));
    let mut expected: BTreeSet<String> = all.collect();
    assert_eq!(kinds("whole0"), expected);
    expected.extend(of_replicas("replica_params"));
    assert_eq!(kinds("whole6"), expected);
    assert_eq!(kinds("whole8"), expected);
}

#[test]
fn a_divergence_names_both_learning_rates() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2 --steps 8 --local-steps 2";
    let run = workspace.run(&format!("{SMALL} {line} --outer-lr 1e38"));
    assert_contains(run.error(), "A lower --lr or --outer-lr, a longer --warmup");
}

/// A run with fragments goes on from one without, as replicas are equal then; not the other way round.
#[test]
fn fragments_begin_in_a_run_without() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2 --steps 4 --local-steps 4";
    workspace.train(&format!("{line} --save plain"));
    workspace.train("--resume plain/latest --steps 8 --fragments 2 --save turns");
    let finished =
        workspace.run(&format!("{SMALL} --resume turns/latest --fragments 1 --steps 12"));
    assert_contains(
        finished.error(),
        "holds parameters of each replica, as it was saved with --fragments P or --fragment-alpha",
    );
    // Alpha follows from the delay, as no run has given it.
    let line = "--resume turns/latest --fragments 1 --fragment-delay 1 --steps 12 --save turns";
    assert_contains(&workspace.train(line).stderr, "in the step before (alpha 0.5)");
}

/// A stop waits for the synchronization, and the run continues bit for bit.
#[test]
fn a_stop_completes_the_round() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2 --steps 4000 --local-steps 20";
    let mut running =
        Running::start(&workspace, &format!("{SMALL} {line} --save out --metrics m.jsonl"));
    running.wait_for_steps(21);
    running.signal("TERM");
    let stopped = running.finish();
    assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
    assert_contains(&stopped.stderr, "SIGTERM: the run stops after the next synchronization");
    let steps = workspace.metrics("m.jsonl").len();
    assert!(steps.is_multiple_of(20), "stopped after step {steps}");
    let total = steps + 20;
    workspace.train(&format!("--save out --resume auto --steps {total}"));
    workspace.train(&format!("--mesh dp=2 --local-steps 20 --steps {total} --save whole"));
    let last = |run: &str| workspace.tensors(&format!("{run}/step-{total:08}"));
    assert!(last("out") == last("whole"));
}

/// Evaluations are of the model of all replicas, on all validation batches; replicas are equal then.
#[test]
fn evaluations_are_of_the_synchronized_model() {
    for fragments in ["", "--fragments 2", "--fragment-delay 2"] {
        evaluates_what_it_exports(fragments);
    }
}

fn evaluates_what_it_exports(fragments: &str) {
    let workspace = Workspace::new();
    let line = format!(
        "--mesh dp=2 --steps 12 --local-steps 4 {fragments} --eval-fraction 0.2 --eval-every 4 --check-replicas 4 \
         --save out --export-hf hf --metrics m.jsonl"
    );
    workspace.train(&line);
    let last = workspace.metrics("m.jsonl").pop().unwrap();
    let found = last["eval_loss"].as_f64().unwrap();
    // The exported model has the same loss on one rank.
    let one = "--mesh 1 --steps 1 --lr 0 --eval-fraction 0.2 --metrics m.jsonl";
    let flags =
        "--data text.txt --tokenizer bytes --seq 16 --batch 4 --threads 1 --sample-tokens 0";
    let finished = workspace.run(&format!("{flags} --init-from hf {one}"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let expected = numbers(&workspace.metrics("m.jsonl"), "eval_loss")[0];
    assert_close(&[found], &[expected], 1e-5);
}

/// Each replica balances its experts. The biases of the choice are equal after a synchronization, as all else is.
#[test]
fn experts_train_in_each_replica() {
    let workspace = Workspace::new();
    let sizes = "--hidden 16 --layers 2 --heads 2 --ffn 16 --experts 4 --data text.txt --seq 8 --batch 8 --threads 1 \
                 --sample-tokens 0 --steps 6 --local-steps 3 --check-replicas 3";
    for (family, balance) in [("mixtral", "batch=0.01"), ("deepseek_v3", "bias=0.01")] {
        for mesh in ["dp=2", "dp=2,ep=2"] {
            let line = format!(
                "{sizes} --mesh {mesh} --family {family} --balance {balance} --fragment-delay 2"
            );
            let finished = workspace.run_program(family_program(), &line);
            assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        }
    }
}

#[test]
fn other_replicas_cannot_continue() {
    let workspace = Workspace::new();
    workspace.train(&format!("{LOCAL} --save out --save-every 6"));
    workspace.train("--mesh dp=2 --steps 4 --save plain");
    for (line, message) in [
        ("--resume out/step-00000006 --mesh dp=4", "--mesh: dp=4 has 4 replicas along dp, and "),
        (
            "--resume out/step-00000006 --mesh fsdp=2",
            "as saved in out/step-00000006: --local-steps: 3 lets replicas along dp train apart, but the degree of dp \
             is 1 in --mesh fsdp=2 (the ranks of fsdp share one replica); keep the replicas that were saved, as in \
             --mesh dp=2,fsdp=2",
        ),
        (
            "--resume out/step-00000006 --ema 0.9",
            "so leave one of them out (--local-steps is as saved in out/step-00000006)",
        ),
        ("--resume out/step-00000006 --local-steps 4", "which is no multiple of 4"),
        (
            "--resume out/step-00000006 --fragments 3",
            "--fragments: 3 are more than the layers of the model, and some would be empty; use at most 2",
        ),
        (
            "--resume out/step-00000006 --outer-momentum 0",
            "holds an outer momentum, which 0 would drop; use a value above 0",
        ),
        (
            "--resume plain/latest --local-steps 3 --steps 6",
            "has 4 steps done, which is no multiple of 3",
        ),
    ] {
        let finished = workspace.run(&format!("{SMALL} {line}"));
        assert_contains(finished.error(), message);
    }
    let chosen = workspace.run(&format!("{SMALL} --mesh auto=2 --steps 4 --local-steps 2"));
    assert_contains(chosen.error(), "--mesh: auto chooses a mesh for gradients that are reduced");
    // Replicas go on from a run of data parallelism, each with its optimizer state.
    workspace.train("--resume plain/latest --local-steps 2 --steps 8 --save local");
}

/// An outer momentum that was 0 begins with 0, and is in the next checkpoint.
#[test]
fn an_outer_momentum_begins_in_a_resumed_run() {
    let workspace = Workspace::new();
    workspace.train(&format!("{LOCAL} --outer-momentum 0 --save out --save-every 6"));
    let [without, with] = ["0", "0.9"].map(|momentum| {
        let resume = format!("--resume out/step-00000006 --outer-momentum {momentum}");
        workspace.train(&format!("{resume} --save run{momentum} --metrics {momentum}.jsonl"));
        numbers(&workspace.metrics(&format!("{momentum}.jsonl")), "loss")
    });
    // Up to the first synchronization, and after it.
    assert_eq!(without[..3], with[..3]);
    assert_ne!(without[3..], with[3..]);
    let dropped = workspace.run(&format!("{SMALL} --resume run0.9/latest --outer-momentum 0"));
    assert_contains(dropped.error(), "holds an outer momentum");
}
