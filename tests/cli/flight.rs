//! The flight recorder: the last calls of the ranks, after a failure and when a signal asks for them.

use std::time::Instant;

use serde_json::Value;

use crate::stops::Running;
use crate::{PATIENCE, SMALL, Workspace, assert_contains};

impl Workspace {
    fn record(&self, folder: &str, rank: usize) -> Value {
        let bytes = self.read(&format!("{folder}/rank-{rank:05}.json"));
        serde_json::from_slice(&bytes).unwrap()
    }
}

#[test]
fn failures_leave_the_last_calls() {
    let workspace = Workspace::new();
    let diverges = format!("{SMALL} --mesh dp=2 --steps 50 --lr 1e30 --flight calls");
    let failed = workspace.run(&diverges);
    assert_eq!(failed.code, Some(4), "{}", failed.stderr);
    assert_contains(&failed.stderr, "`meshwright flight calls` compares them\n");
    let records = [0, 1].map(|rank| workspace.record("calls", rank));
    assert_eq!(records[0]["run"], records[1]["run"]);
    for record in &records {
        assert_eq!((&record["end"], &record["world"]), (&"failed".into(), &2.into()));
        assert_contains(record["message"].as_str().unwrap(), "training stopped");
        assert!(record["calls"].as_array().unwrap().iter().any(|call| call["op"] == "all_reduce"));
    }
    // Settings that are refused, also by a rank, are no failure of the run.
    let refused = workspace.run(&format!("{SMALL} --mesh dp=2 --flight text.txt"));
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert_contains(refused.error(), "--flight: ");
}

/// The signal does not end a run that has no folder for them.
#[test]
fn a_signal_without_a_folder_is_explained() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2 --steps 100000000 --metrics m.jsonl");
    let mut running = Running::start(&workspace, &line);
    running.wait_for_steps(2);
    running.signal("USR2");
    running.wait_for_steps(workspace.metrics("m.jsonl").len() + 50);
    running.signal("TERM");
    let stopped = running.finish();
    assert_contains(&stopped.stderr, "SIGUSR2: the last calls of the ranks are not written");
    assert_contains(&stopped.stderr, "start it with --flight DIR");
}

#[test]
fn a_signal_asks_for_the_last_calls() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2 --steps 100000000 --save out --metrics m.jsonl");
    let mut running = Running::start(&workspace, &line);
    running.wait_for_steps(2);
    running.signal("USR2");
    let (start, last) = (Instant::now(), workspace.path("out/flight/rank-00001.json"));
    while !last.exists() {
        assert!(start.elapsed() < PATIENCE, "no file was written");
        std::thread::yield_now();
    }
    running.signal("TERM");
    let stopped = running.finish();
    assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
    assert!(!stopped.stderr.contains("flight"), "{}", stopped.stderr);
    let record = workspace.record("out/flight", 1);
    assert_eq!(record["end"], "running");
    assert!(record["step"].as_u64().unwrap() >= 2);
}
