//! Pipeline schedules as CUDA graphs, with their messages, compared with eager runs.

use std::sync::Arc;

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::train::Machine;
use meshwright_cuda::{CallKind, DriverError};
use meshwright_gpu_sim::not_checked_on_gpu;
use serde_json::Value;

use super::graphs::{Left, run_of_size};
use super::nccl::{Cluster, ranks_of};

/// Schedules with two stages on each of two ranks, and one with four ranks; others have a layer per rank with two
/// layers.
const FOUR_STAGES: [&str; 4] = ["interleaved", "zb-v", "dualpipev", "pp=4"];
const STEPS: usize = 4;

/// Devices with messages in rounds.
fn cluster_of(words: &str) -> Cluster {
    let mesh = words.split("--mesh ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    Cluster::new(ranks_of(mesh)).grouped()
}

/// Runs a short training by a schedule.
fn run(words: &str, cluster: Cluster) -> Left {
    let layers = if FOUR_STAGES.iter().any(|name| words.contains(name)) { 4 } else { 2 };
    let sizes = format!("--batch 8 --seq 4 --hidden 16 --layers {layers}");
    let words = format!("--steps {STEPS} --micro-batches 4 {words}");
    let machine: Box<dyn Machine> = Box::new(cluster);
    if words.contains("--documents") {
        run_of_size::<Gpt2>(&sizes, &words, machine)
    } else {
        run_of_size::<Llama>(&sizes, &words, machine)
    }
}

/// Checks that losses, gradient norms, parameters, optimizer state and traffic are the same to the bit. Peaks of memory
/// differ: an eager send is released when the host sees its end.
#[track_caller]
fn assert_same_training(words: &str, got: &Left, expected: &Left) {
    let (of, from) = (&got.summary, &expected.summary);
    assert_eq!(of.losses, from.losses, "{words}: losses");
    assert_eq!(of.grad_norms, from.grad_norms, "{words}: gradient norms");
    assert_eq!(of.sample, from.sample, "{words}: continuation");
    assert!(got.saved == expected.saved, "{words}: parameters and optimizer state");
    let without = |left: &Left, names: &[&str]| -> Vec<Value> {
        let mut lines = left.metrics.clone();
        for object in lines.iter_mut().filter_map(Value::as_object_mut) {
            names.iter().for_each(|name| drop(object.remove(*name)));
        }
        lines
    };
    // They depend on measured times, and on when the host sees the end of a send.
    let varying = ["bubble", "peak_bytes"];
    assert_eq!(without(got, &varying), without(expected, &varying), "{words}: metrics");
    for line in &got.metrics {
        let bubble = line["bubble"].as_f64().expect("a share of the step");
        assert!((0.0..1.0).contains(&bubble), "{words}: {bubble}");
    }
}

/// Devices of a captured run: with independent streams, or those on which a message or collective that waits holds up
/// all other work of its device.
type Devices = fn(Cluster) -> Cluster;
const INDEPENDENT: &[Devices] = &[|cluster| cluster];
const BOTH: &[Devices] = &[|cluster| cluster, Cluster::with_one_queue];

/// Each step after the warm-up is one graph on each rank, and makes the transfers of an eager step, on all these
/// devices.
#[track_caller]
fn check(words: &str, devices: &[Devices]) {
    let eager = cluster_of(words);
    let (ranks, hub) = (eager.drivers.len(), Arc::clone(&eager.hub));
    let expected = run(&format!("{words} --no-graphs"), eager);
    let transfers: Vec<_> = (0..ranks).map(|rank| hub.take_log(rank)).collect();
    for prepare in devices {
        check_captured_run(words, prepare(cluster_of(words)), &expected, &transfers);
    }
}

/// Checks a captured run on `cluster` against the results and transfers of an eager one.
#[track_caller]
fn check_captured_run(words: &str, cluster: Cluster, expected: &Left, transfers: &[Vec<String>]) {
    let (drivers, hub) = (cluster.drivers.clone(), Arc::clone(&cluster.hub));
    let got = run(words, cluster);
    assert_same_training(words, &got, expected);
    for (rank, driver) in drivers.iter().enumerate() {
        let log = driver.device().log();
        let count = |kind| log.iter().filter(|entry| entry.kind == kind).count();
        assert_eq!(count(CallKind::BeginCapture), 1, "{words}: rank {rank}");
        assert_eq!(count(CallKind::LaunchGraph), STEPS - 2, "{words}: rank {rank}");
        assert_eq!(driver.device().live().1, 0, "{words}: all memory is freed");
        // Ranks agree twice before the capture, once after it, and once after the first step.
        let (mut made, mut expected) = (hub.take_log(rank), transfers[rank].clone());
        expected.extend(vec!["all_reduce 1".to_owned(); 4]);
        let is_transfer = |text: &String| !text.contains("register");
        made.retain(is_transfer);
        expected.retain(is_transfer);
        made.sort();
        expected.sort();
        assert_eq!(made, expected, "{words}: rank {rank}");
    }
}

#[test]
fn captured_schedules_are_the_same() {
    if not_checked_on_gpu() {
        return;
    }
    for (words, devices) in [
        ("--mesh pp=2 --schedule gpipe --dtype f32", INDEPENDENT),
        ("--mesh pp=2 --schedule 1f1b --recompute full", BOTH),
        ("--mesh pp=2 --schedule interleaved --tied --dtype f32", INDEPENDENT),
        ("--mesh pp=2 --schedule zb-h1 --ema 0.9", INDEPENDENT),
        ("--mesh pp=2 --schedule zb-v --optimizer muon --dtype f32", BOTH),
        ("--mesh pp=2 --schedule dualpipev --dtype f32", INDEPENDENT),
        ("--mesh pp=4 --schedule 1f1b --dtype f32", INDEPENDENT),
        ("--mesh pp=2 --schedule 1f1b --documents 32 --dtype f32", INDEPENDENT),
    ] {
        check(words, devices);
    }
}

/// One rank may reduce gradients before it receives a message, and another one receive first.
#[test]
fn captured_schedules_over_several_axes_are_the_same() {
    if not_checked_on_gpu() {
        return;
    }
    for (words, devices) in [
        ("--mesh fsdp=2,pp=2 --zero 3 --schedule interleaved --dtype f32", BOTH),
        ("--mesh fsdp=2,pp=2 --zero 2 --schedule 1f1b --dtype f32", BOTH),
        ("--mesh fsdp=2,pp=2 --zero 1 --schedule zb-v --dtype f32", BOTH),
        ("--mesh pp=2,cp=2 --schedule 1f1b --dtype f32", INDEPENDENT),
        ("--mesh tp=2,pp=2 --schedule zb-h1 --dtype f32", BOTH),
        ("--mesh dp=2,pp=2 --schedule 1f1b --clip 0.1", INDEPENDENT),
    ] {
        check(words, devices);
    }
}

/// A graph does not keep its branches independent, as messages of channels have to be.
#[test]
fn pairwise_messages_are_not_captured() {
    if not_checked_on_gpu() {
        return;
    }
    let cluster = Cluster::new(2);
    let driver = Arc::clone(&cluster.drivers[0]);
    run("--mesh pp=2 --schedule 1f1b --dtype f32", cluster);
    let log = driver.device().log();
    assert!(log.iter().all(|entry| entry.kind != CallKind::BeginCapture));
}

#[test]
fn failed_capture_of_one_stage_disables_all() {
    if not_checked_on_gpu() {
        return;
    }
    let words = "--mesh pp=2 --schedule 1f1b --dtype f32";
    let expected = run(&format!("{words} --no-graphs"), cluster_of(words));
    for kind in [CallKind::BeginCapture, CallKind::EndCapture] {
        let cluster = cluster_of(words);
        let drivers = cluster.drivers.clone();
        let reason = "not today".to_owned();
        drivers[1].device().fail(kind, 0, DriverError::Call { call: "capture", reason });
        let got = run(words, cluster);
        assert_eq!(got.summary.losses, expected.summary.losses, "{kind:?}");
        assert_eq!(got.summary.grad_norms, expected.summary.grad_norms, "{kind:?}");
        assert!(got.saved == expected.saved, "{kind:?}");
        for driver in drivers {
            let log = driver.device().log();
            let launched = log.iter().filter(|entry| entry.kind == CallKind::LaunchGraph);
            assert_eq!(launched.count(), 0, "{kind:?}");
        }
    }
}
