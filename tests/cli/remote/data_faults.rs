//! Faults of object storage while its data are trained on.

use std::time::Duration;

use crate::stops::Running;
use crate::{PATIENCE, SMALL, assert_contains};

use super::data::ids;
use super::http::Request;
use super::server::ServerFault;
use super::{Finished, Remote};

/// Steps of 16 KiB, of a model that trains on each in milliseconds.
const LINE: &str = "--hidden 8 --layers 1 --heads 1 --kv-heads 1 --ffn 8 --vocab 257 --threads 1 --sample-tokens 0 \
                    --data s3://bucket/data/long.npy --data-cache cache --seq 128 --batch 16";

/// The bytes that are fetched before the first step, and some more.
const FETCHED: usize = 4 << 20;

/// An array of ids of 64 bits, for 340 steps.
fn long() -> Vec<u8> {
    let header = "{'descr': '<u8', 'fortran_order': False, 'shape': (696321,), }";
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    let narrow = ids(696_321);
    bytes.extend(narrow.chunks(2).flat_map(|id| [id[0], id[1], 0, 0, 0, 0, 0, 0]));
    bytes
}

impl Remote {
    fn with_long() -> Remote {
        let remote = Remote::new();
        remote.server.content().set("data/long.npy".to_owned(), long());
        remote
    }

    /// Removes the cache of a run, which may write to it meanwhile.
    fn remove_cache(&self) {
        let cache = self.workspace.path("cache");
        while cache.exists() && std::fs::remove_dir_all(&cache).is_err() {}
    }

    fn run_long(&self, line: &str) -> Finished {
        self.workspace.run_program(self.command(), &format!("{LINE} {line}"))
    }
}

/// Returns true for a read of data that are needed late in the run.
fn is_late(request: &Request) -> bool {
    request.range_start().is_some_and(|start| start >= FETCHED)
}

#[test]
fn faults_that_pass_change_nothing() {
    let remote = Remote::new();
    remote.add("data/text.txt", remote.workspace.read("text.txt"));
    let line = |data: &str, save: &str| {
        let small = SMALL.replace("--data text.txt", &format!("--data {data}"));
        format!("{small} --mesh dp=2 --steps 6 --save {save} --eval-fraction 0.2")
    };
    remote.workspace.run_program(remote.command(), &line("text.txt", "out"));
    let expected = remote.workspace.tensors("out/step-00000006");
    let late = ServerFault::Delay(Duration::from_millis(30));
    for (index, fault) in [
        ServerFault::Refuse(500),
        ServerFault::Refuse(503),
        ServerFault::LoseAnswer,
        ServerFault::Cut,
        ServerFault::Short,
        late,
    ]
    .into_iter()
    .enumerate()
    {
        remote.server.plan(move |number, request| {
            (request.method == "GET" && number % 2 == 0).then_some(fault)
        });
        let line = line("s3://bucket/data/text.txt", &format!("rest-{index}"));
        let line = format!("{line} --data-cache cache-{index}");
        let finished = remote.workspace.run_program(remote.command(), &line);
        assert_eq!(finished.code, Some(0), "{fault:?}\n{}", finished.stderr);
        let found = remote.workspace.tensors(&format!("rest-{index}/step-00000006"));
        assert!(found == expected, "{fault:?}");
    }
}

/// The run waits, and says so.
#[test]
fn an_outage_is_waited_for() {
    let remote = Remote::with_long();
    // Two reads ahead, and others of the rows of a step.
    let mut left = 4;
    remote.server.plan(move |_, request| {
        let is_there = request.range_start().is_some_and(|start| start >> 20 == FETCHED >> 20);
        if !is_there || left == 0 {
            return None;
        }
        left -= 1;
        Some(ServerFault::Refuse(400))
    });
    let finished = remote.run_long("--steps 320 --metrics m.jsonl");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(&finished.stderr, "warning: --data: cannot read s3://bucket/data/long.npy: ");
    assert_eq!(remote.workspace.metrics("m.jsonl").len(), 320);
}

#[test]
fn objects_that_become_unreadable_end_the_run() {
    let remote = Remote::with_long();
    for (status, part) in [
        (403, "access is denied: check the credentials"),
        (404, "cannot read s3://bucket/data/long.npy: "),
        (
            412,
            "--data: s3://bucket/data/long.npy was replaced since the run began; leave the object",
        ),
    ] {
        remote.remove_cache();
        remote
            .server
            .plan(move |_, request| is_late(request).then_some(ServerFault::Refuse(status)));
        let ended = remote.run_long("--steps 320 --mesh dp=2");
        assert_eq!(ended.code, Some(4), "{status}\n{}", ended.stderr);
        assert_contains(ended.error(), part);
        assert_contains(ended.error(), "; training stopped before step ");
    }
}

/// The state before the step whose data cannot be read is saved, and the run continues from there.
#[test]
fn a_replaced_object_ends_the_run() {
    let remote = Remote::with_long();
    let whole = remote.run_long("--steps 340 --save whole");
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let line = format!("{LINE} --steps 340 --save out --metrics m.jsonl");
    let mut run = Running::with(&remote.workspace, remote.command(), &line);
    run.wait_for_steps(2);
    remote.server.content().set("data/long.npy".to_owned(), long());
    remote.remove_cache();
    let ended = run.finish();
    assert_contains(ended.error(), "s3://bucket/data/long.npy was replaced since the run began");
    // It has the same content.
    let rest = remote.run_long("--steps 340 --save out --resume out");
    assert_eq!(rest.code, Some(0), "{}", rest.stderr);
    let tensors = |folder| remote.workspace.tensors(&format!("{folder}/step-00000340"));
    assert!(tensors("out") == tensors("whole"));
}

/// A stop does not wait for data.
#[test]
fn a_run_that_waits_for_data_can_be_stopped() {
    let remote = Remote::with_long();
    let line = format!("{LINE} --steps 340 --save out --metrics m.jsonl");
    let mut run = Running::with(&remote.workspace, remote.command(), &line);
    run.wait_for_steps(2);
    let (sender, refused) = std::sync::mpsc::channel();
    remote.server.plan(move |_, _| {
        let _ = sender.send(());
        Some(ServerFault::Refuse(503))
    });
    remote.remove_cache();
    refused.recv_timeout(PATIENCE).unwrap();
    run.signal("TERM");
    let stopped = run.finish();
    assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
}
