//! Kills at any request of a run, after which the next one continues bit for bit.

use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::stops::Running;
use crate::{SMALL, assert_contains};

use super::server::ServerFault;
use super::{Remote, SAVE};

/// Runs until the service has vanished, and kills the run then.
fn kill_at(remote: &Remote, line: &str, request: usize, is_done: bool) {
    remote.server.content().requests = 0;
    remote
        .server
        .plan(move |number, _| (number == request).then_some(ServerFault::Vanish(is_done)));
    let run = Running::with(&remote.workspace, remote.command(), line);
    let start = Instant::now();
    while !remote.server.content().has_vanished {
        assert!(start.elapsed() < PATIENCE, "request {request} is not reached");
        std::thread::sleep(Duration::from_millis(1));
    }
    run.signal("KILL");
    run.finish();
    remote.server.repair();
}

#[test]
fn a_killed_run_is_continued_from_any_request() {
    for (mesh, ranks, more) in
        [("1", 1, ""), ("fsdp=2", 2, "--save-async --eval-fraction 0.2 --keep-best")]
    {
        let remote = Remote::new();
        let line = format!("{SMALL} --mesh {mesh} --steps 5 {more} {SAVE} --resume auto");
        remote.server.content().requests = 0;
        remote.workspace.run_program(remote.command(), &line);
        let requests = remote.server.content().requests;
        let expected = remote.tensors("step-00000005", ranks);
        assert!(requests > 20, "{requests}");
        // Some, as each takes two runs.
        for request in (2..requests).step_by(if ranks == 1 { 5 } else { 11 }) {
            let is_done = request % 2 == 0;
            remote.server.content().objects.clear();
            kill_at(&remote, &line, request, is_done);
            let rest = remote.workspace.run_program(remote.command(), &line);
            assert_eq!(rest.code, Some(0), "request {request}\n{}", rest.stderr);
            assert!(remote.tensors("step-00000005", ranks) == expected, "request {request}");
            let leftover = remote.server.names("run/").into_iter().find(|name| {
                name.contains(".upload")
                    || name.contains(".tmp")
                    || name.contains("-0000") && name.ends_with("0.json")
            });
            assert_eq!(leftover, None, "request {request}");
            assert!(remote.server.content().uploads.is_empty());
        }
    }
}

/// Files of several parts, whose unfinished uploads are ended by the next run.
#[test]
fn unfinished_uploads_are_ended() {
    let remote = Remote::new();
    let large = SMALL.replace("--hidden 32", "--hidden 256").replace("--ffn 48", "--ffn 512");
    let line = format!("{large} --mesh 1 --steps 1 --save s3://bucket/run");
    let whole = remote.workspace.run_program(remote.command(), &line);
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let expected = remote.tensors("step-00000001", 1);
    assert!(expected[0].len() > 8 << 20, "{} bytes are one part", expected[0].len());
    let requests = remote.server.content().requests;
    let mut unfinished = 0;
    // From the first request of the upload to the last one of the checkpoint.
    for request in (requests - 14..requests).step_by(3) {
        remote.server.content().objects.clear();
        kill_at(&remote, &line, request, request % 2 == 0);
        unfinished += remote.server.content().uploads.len();
        let rest = remote.workspace.run_program(remote.command(), &line);
        assert_eq!(rest.code, Some(0), "request {request}\n{}", rest.stderr);
        assert!(remote.tensors("step-00000001", 1) == expected, "request {request}");
        remote.assert_holds(&[1], 1);
    }
    assert!(unfinished > 0, "{unfinished}");
}

/// A step that is saved again is there at any time: the checkpoint before, or the new one.
#[test]
fn a_replaced_checkpoint_is_there_at_any_time() {
    let remote = Remote::new();
    let line = |seed: u64| format!("{SMALL} --steps 2 --seed {seed} --save s3://bucket/run");
    remote.workspace.run_program(remote.command(), &line(1));
    let first = remote.tensors("step-00000002", 1);
    remote.server.content().requests = 0;
    remote.workspace.run_program(remote.command(), &line(2));
    let requests = remote.server.content().requests;
    let second = remote.tensors("step-00000002", 1);
    assert!(first != second);
    let (mut found_first, mut found_second) = (0, 0);
    for request in (2..requests).step_by(2) {
        remote.server.content().objects.clear();
        remote.workspace.run_program(remote.command(), &line(1));
        kill_at(&remote, &line(2), request, request % 4 == 0);
        let resume = format!("{SMALL} --steps 2 --resume s3://bucket/run --save out");
        let resumed = remote.workspace.run_program(remote.command(), &resume);
        assert_eq!(resumed.code, Some(0), "request {request}\n{}", resumed.stderr);
        let resumed = remote.workspace.tensors("out/step-00000002");
        assert!(resumed == first || resumed == second, "request {request}");
        found_first += usize::from(resumed == first);
        found_second += usize::from(resumed == second);
    }
    assert!(found_first > 2 && found_second > 0, "{found_first} {found_second}");
}

/// The lock names its holder, and ends with the process.
#[test]
fn one_run_saves_in_a_place() {
    let remote = Remote::new();
    let line = format!("{SMALL} --steps 4000 {SAVE} --metrics m.jsonl");
    let mut first = Running::with(&remote.workspace, remote.command(), &line);
    first.wait_for_steps(3);
    let refused = remote.run(&format!("--steps 4 {SAVE}"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let text = refused.error();
    assert_contains(text, "--save: another run saves in s3://bucket/run (process ");
    assert_contains(text, &format!(" on {})", host.trim()));
    first.signal("KILL");
    first.finish();
    let next = remote.run(&format!("--steps 4 {SAVE}"));
    assert_eq!(next.code, Some(0), "{}", next.stderr);
}

/// A run whose lock another one has taken, and a lock of another machine that is renewed.
#[test]
fn a_lost_lock_ends_a_run_and_a_renewed_one_refuses_it() {
    let remote = Remote::new();
    let other = |renewals: u64| {
        let holder = format!(
            "{{\"process\":7,\"host\":\"elsewhere\",\"machine\":\"0\",\"started\":1,\"token\":\"a\",\
             \"renewals\":{renewals}}}"
        );
        let record = format!("{{\"step\":2,\"holder\":{holder}}}");
        remote.server.content().set("run/latest".to_owned(), record.into_bytes());
    };
    let line = format!("{SMALL} --steps 4000 {SAVE} --metrics m.jsonl");
    let mut run = Running::with(&remote.workspace, remote.command(), &line);
    run.wait_for_steps(3);
    other(0);
    let ended = run.finish();
    let text = ended.error();
    assert_contains(
        text,
        "another run saves in s3://bucket/run (process 7 on elsewhere, as this one did not",
    );

    let waiting = Running::with(&remote.workspace, remote.command(), &line);
    let refused = std::thread::scope(|scope| {
        let end = scope.spawn(|| waiting.finish());
        for renewals in 1.. {
            if end.is_finished() {
                break;
            }
            other(renewals);
            std::thread::sleep(Duration::from_millis(500));
        }
        end.join().unwrap()
    });
    assert_contains(
        &refused.stderr,
        "s3://bucket/run is held by process 7 on elsewhere; it is taken over if",
    );
    assert_contains(
        refused.error(),
        "another run saves in s3://bucket/run (process 7 on elsewhere)",
    );
}
