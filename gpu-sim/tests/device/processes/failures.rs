//! Ranks that fail during a run: all others exit soon, with the reason.

use std::time::{Duration, Instant};

use meshwright_gpu_sim::{not_checked_on_gpu, on_gpu};

use super::environment::FAULT;
use super::job::{End, Job};
use super::training::{losses, words};

/// Time limit for the other ranks.
const SOON: Duration = Duration::from_secs(15);

/// Exit status of a killed process.
const SIGKILL: i32 = 9;

/// CUDA graphs are disabled on simulated devices, which cannot be called while captured work waits for another rank, as
/// a GPU can.
fn recorded() -> &'static str {
    if on_gpu() { "" } else { " --no-graphs" }
}

/// Kills `rank` of a run on `mesh` after two steps, and returns the outcome of all processes.
fn after_the_end_of(rank: usize, mesh: &str, ranks: usize) -> Vec<End> {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("run");
    let (save, recorded) = (save.display(), recorded());
    let more = format!("--mesh {mesh} --steps 100000 --save {save} --save-every 50{recorded}");
    let mut job = Job::start(ranks, "train", &words(folder.path(), &more), |_, _| {});
    let start = Instant::now();
    while losses(folder.path()).len() < 2 {
        if job.has_lost_one() || start.elapsed() > Duration::from_secs(120) {
            panic!("it does not begin: {:#?}", job.ends());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    job.kill(rank);
    let ends = job.ends();
    assert_eq!(ends[rank].signal, Some(SIGKILL), "{ends:#?}");
    ends
}

/// Checks that every other rank reports that `lost` was lost, and the waiting call.
fn assert_told(ends: &[End], lost: usize) {
    assert_exit_is_announced(ends, lost, 3, "was lost (its process has ended");
}

/// Checks that every other rank reports the exit of `failed`, with the waiting call, and exits with the same code.
fn assert_exit_is_announced(ends: &[End], failed: usize, code: i32, exit: &str) {
    for (rank, end) in ends.iter().enumerate().filter(|(rank, _)| *rank != failed) {
        assert_eq!(end.code, Some(code), "rank {rank}: {end:#?}");
        assert!(end.after < SOON, "rank {rank}: {end:#?}");
        let expected = format!("error: rank {failed} {exit}");
        let short = end.stderr.replace(&format!("rank {rank} failed: "), "");
        assert!(short.contains(&expected), "rank {rank}: {}", end.stderr);
        assert!(end.stderr.contains("; this rank's "), "rank {rank}: {}", end.stderr);
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_others() {
    assert_told(&after_the_end_of(2, "dp=2,tp=2", 4), 2);
}

#[test]
fn rank_0_is_missed_too() {
    assert_told(&after_the_end_of(0, "fsdp=2", 2), 0);
}

#[test]
fn failure_reason_reaches_the_other_ranks() {
    // A GPU cannot be made to fail.
    if not_checked_on_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let words = words(folder.path(), &format!("--mesh dp=2 --steps 100000{}", recorded()));
    let fault = |rank, command: &mut std::process::Command| {
        if rank == 1 {
            command.env(FAULT, "1000");
        }
    };
    let ends = Job::start(2, "train", &words, fault).ends();
    assert!(ends.iter().all(|end| end.code == Some(3)), "{ends:#?}");
    let [other, failed] = [&ends[0], &ends[1]];
    assert!(failed.stderr.contains("an illegal memory access"), "{}", failed.stderr);
    let expected =
        "rank 1 has failed (device failure: cuLaunchKernel failed: an illegal memory access";
    assert!(other.stderr.contains(expected), "{}", other.stderr);
    assert!(other.after < failed.after + SOON, "{ends:#?}");
}

#[test]
fn ranks_with_other_data_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let words = words(folder.path(), "--mesh dp=2 --steps 2");
    let change = |rank, command: &mut std::process::Command| {
        if rank == 1 {
            command.env(super::environment::WORDS, words.replace("text.txt", "missing.txt"));
        }
    };
    for end in Job::start(2, "train", &words, change).ends() {
        assert_eq!(end.code, Some(2), "{end:#?}");
        assert!(
            end.stderr.contains("error: the processes of this run differ: `--data` is "),
            "{}",
            end.stderr
        );
        assert!(end.stderr.contains("missing.txt on rank 1"), "{}", end.stderr);
    }
}

/// Rank 0 writes the export, after which the others sample a continuation.
#[test]
fn a_failed_export_reaches_the_other_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("hf");
    // The last file to be written.
    std::fs::create_dir_all(export.join(".tmp-config.json")).unwrap();
    let more = format!("--mesh dp=2 --steps 2 --export-hf {}{}", export.display(), recorded());
    let ends = Job::start(2, "train", &words(folder.path(), &more), |_, _| {}).ends();
    for (rank, end) in ends.iter().enumerate() {
        assert_eq!(end.code, Some(2), "rank {rank}: {end:#?}");
        assert!(end.stderr.contains("--export-hf: cannot create "), "rank {rank}: {}", end.stderr);
        assert!(!end.stderr.contains("the run is complete"), "rank {rank}: {}", end.stderr);
    }
}
