//! Steps with collectives as CUDA graphs, compared with eager ones, on ranks with a GPU each.

use std::sync::Arc;

use meshwright::models::llama::Llama;
use meshwright_cuda::{CallKind, DriverError};
use meshwright_gpu_sim::{Entry, not_checked_on_gpu};

use super::graphs::{Left, assert_same, run_of_size};
use super::nccl::{Cluster, ranks_of};

/// Sizes of runs of up to 8 ranks, each on a simulated GPU: the calls of the ranks do not depend on them.
const SMALL: &str = "--batch 4 --seq 4 --hidden 16 --layers 2";
/// Sizes of sequences that up to 4 ranks share, in rows of about two words.
const LONGER: &str = "--batch 4 --seq 8 --hidden 16 --layers 2";

#[test]
fn captured_collectives_are_the_same() {
    if not_checked_on_gpu() {
        return;
    }
    for words in [
        "--mesh dp=2 --micro-batches 2 --dtype f32",
        "--mesh tp=2 --dtype f32",
        "--mesh fsdp=2 --zero 0 --reduce-dtype bf16 --dtype bf16",
        "--mesh fsdp=2 --zero 1 --dtype f32",
        "--mesh fsdp=2 --zero 2 --micro-batches 2 --dtype f32",
        "--mesh fsdp=2 --zero 3 --micro-batches 2 --dtype bf16",
        "--mesh dp=2,fsdp=2,tp=2 --zero 3 --recompute full --dtype f32",
    ] {
        check_captured(SMALL, words);
    }
}

/// A ring of messages with recomputation and with another axis, and an exchange of heads in bf16. The runs without
/// documents of the next test have the other styles.
#[test]
fn captured_context_parallel_steps_are_the_same() {
    if not_checked_on_gpu() {
        return;
    }
    for words in [
        "--mesh cp=2 --cp ring --recompute full --dtype f32",
        "--mesh cp=2 --cp ulysses --dtype bf16",
        "--mesh cp=2,tp=2 --cp ring --micro-batches 2 --dtype bf16",
    ] {
        check_captured(LONGER, words);
    }
}

/// The documents of each step belong to its rows, also in steps that replay a graph of others; and no launch depends on
/// them, nor does the host wait for the device more often.
#[test]
fn captured_documents_over_cp_are_the_same() {
    if not_checked_on_gpu() {
        return;
    }
    for words in [
        "--mesh cp=2 --cp ring --micro-batches 2 --dtype f32",
        "--mesh cp=2 --cp gather --dtype f32",
        "--mesh cp=2 --cp ulysses --recompute full --dtype f32",
        "--mesh cp=4 --cp hybrid=2 --dtype f32",
    ] {
        let (with, log) = check_captured(LONGER, &format!("{words} --documents 32"));
        let (without, plain_log) = check_captured(LONGER, words);
        assert_ne!(with.summary.losses, without.summary.losses, "{words}: documents matter");
        let count = |log: &[Entry], kind| log.iter().filter(|e| e.kind == kind).count();
        // The check that a layer reads documents is one download, and the balance of attention one per step; each layer
        // and pass would be one more.
        let more = count(&log, CallKind::Download) - count(&plain_log, CallKind::Download);
        assert!(more <= 6, "{words}: {more} more downloads than without documents");
    }
}

/// Compares a run with CUDA graphs with an eager one: equal to the bit, one graph launch for each micro-batch after two
/// steps, and the same transfers. Returns what it left, and the calls of rank 0.
#[track_caller]
fn check_captured(sizes: &str, words: &str) -> (Left, Vec<Entry>) {
    let mesh = words.split("--mesh ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let words = format!("--steps 5 {words}");
    let run = |words: &str| {
        let cluster = Cluster::new(ranks_of(mesh));
        let (drivers, hub) = (cluster.drivers.clone(), Arc::clone(&cluster.hub));
        (run_of_size::<Llama>(sizes, words, Box::new(cluster)), drivers, hub)
    };
    let (expected, _, eager) = run(&format!("{words} --no-graphs"));
    let (got, drivers, captured) = run(&words);
    assert_same(&words, &got, &expected);
    let passes = if words.contains("--micro-batches 2") { 2 } else { 1 };
    for (rank, driver) in drivers.iter().enumerate() {
        let log = driver.device().log();
        let launched = log.iter().filter(|entry| entry.kind == CallKind::LaunchGraph);
        assert_eq!(launched.count(), 3 * passes, "{words}: rank {rank}");
        // The transfers are the same, though not at the same time; ranks agree twice before the captures, after each of
        // them, and once after the first step.
        let [mut got, mut expected] = [&captured, &eager].map(|hub| hub.take_log(rank));
        expected.extend(vec!["all_reduce 1".to_owned(); passes + 3]);
        got.sort();
        expected.sort();
        assert_eq!(got, expected, "{words}: rank {rank}");
    }
    (got, drivers[0].device().log())
}

/// A graph may run its branches one after the other, in any order: so do these devices, on which a collective that
/// waits for other ranks holds up all others. Ranks that ran collectives of different process groups in different
/// orders would wait for each other.
#[test]
fn captured_process_groups_keep_their_order() {
    if not_checked_on_gpu() {
        return;
    }
    for words in [
        "--mesh dp=2,tp=2 --dtype f32",
        "--mesh fsdp=2,tp=2 --zero 3 --micro-batches 2 --dtype f32",
        "--mesh cp=2,fsdp=2 --cp gather --zero 2 --dtype f32",
    ] {
        let mesh = words.split(' ').nth(1).unwrap();
        let words = format!("--steps 5 {words}");
        let eager = Box::new(Cluster::new(ranks_of(mesh)));
        let expected = run_of_size::<Llama>(LONGER, &format!("{words} --no-graphs"), eager);
        let cluster = Cluster::new(ranks_of(mesh)).with_one_queue();
        let drivers = cluster.drivers.clone();
        assert_same(&words, &run_of_size::<Llama>(LONGER, &words, Box::new(cluster)), &expected);
        let log = drivers[0].device().log();
        assert!(log.iter().any(|entry| entry.kind == CallKind::LaunchGraph), "{words}");
    }
}

#[test]
fn failed_capture_of_one_rank_disables_all() {
    if not_checked_on_gpu() {
        return;
    }
    let words = "--dtype f32 --steps 5 --mesh fsdp=2 --micro-batches 2";
    let without = Box::new(Cluster::new(2));
    let expected = run_of_size::<Llama>(SMALL, &format!("{words} --no-graphs"), without);
    for succeed in 0..2 {
        let cluster = Cluster::new(2);
        let drivers = cluster.drivers.clone();
        let reason = "not today".to_owned();
        let error = DriverError::Call { call: "capture", reason };
        drivers[1].device().fail(CallKind::EndCapture, succeed, error);
        let got = run_of_size::<Llama>(SMALL, words, Box::new(cluster));
        assert_eq!(got.summary.losses, expected.summary.losses);
        assert_eq!(got.summary.grad_norms, expected.summary.grad_norms);
        for driver in drivers {
            let log = driver.device().log();
            let launched = log.iter().filter(|entry| entry.kind == CallKind::LaunchGraph);
            assert_eq!(launched.count(), succeed);
        }
    }
}
