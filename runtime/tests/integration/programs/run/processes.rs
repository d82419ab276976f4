//! Processes of a host: their variables, their output, signals, and their end.

use super::{Folder, finish, signal, wait_for_end};

/// Runs a script as each rank of three.
const THREE: &str = "-n 3 -- ./rank --device cuda";

fn folder(script: &str) -> Folder {
    let folder = Folder::new(&[]);
    let started = "echo '\"started\"' >> \"$MESHWRIGHT_RUN_REPORTS\"";
    folder.add_program("rank", &format!("#!/bin/sh\n{started}\n{script}\n"));
    folder
}

#[test]
fn ranks_have_variables_and_prefixes() {
    let folder = folder(
        "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT
         echo $MESHWRIGHT_TOKEN $MESHWRIGHT_JOB $* >&2; printf end",
    );
    let run = folder.run(THREE);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let stdout = sorted(&run.stdout);
    let (_, port) = stdout[0].split_once("127.0.0.1:").unwrap();
    let expected = (0..3).flat_map(|rank| {
        let line = format!("[{rank}] {rank} of 3, {rank} of 3 at 127.0.0.1:{port}");
        [line, format!("[{rank}] end")]
    });
    assert_eq!(stdout, Vec::from_iter(expected));
    let stderr = sorted(&run.stderr);
    let secrets: Vec<&str> = stderr.iter().map(|line| &line["[0] ".len()..]).collect();
    assert_eq!(secrets, [secrets[0]; 3]);
    let (token, rest) = secrets[0].split_once(' ').unwrap();
    let is_hex = token.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(token.len() == 64 && is_hex && rest.ends_with(" --device cuda"), "{token} {rest}");
    let again = folder.run(THREE);
    assert!(!again.stderr.contains(token), "the token is the same");
}

/// One process is a program as others, without ranks.
#[test]
fn one_process_has_no_prefix() {
    let folder = folder("echo \"rank:$RANK\"; printf 'no end'; echo \"error: $1\" >&2; exit 4");
    for args in ["-- ./rank --device=cuda", "-n 1 -- ./rank --device=cuda"] {
        let run = folder.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(4), "rank:\nno end"));
        assert_eq!(run.stderr, "error: --device=cuda\n");
    }
}

/// The others have noticed the loss before the supervisor did.
#[test]
fn the_rank_that_was_lost_is_named() {
    let folder = folder(
        "[ $RANK = 1 ] && { touch lost; kill -9 $$; }
         until [ -e lost ]; do sleep 0.01; done; echo 'error: rank 1 was lost' >&2; exit 3",
    );
    let run = folder.run(THREE);
    assert_eq!(run.code, Some(3));
    let last = run.stderr.lines().last();
    assert_eq!(last, Some("meshwright run: rank 1 was ended by SIGKILL; exit code 3"));
    assert!(run.stderr.contains("[2] error: rank 1 was lost\n"), "{}", run.stderr);
}

/// A rank that ends after a failure of another one may be noticed first, and its message may be about the other one.
#[test]
fn reasons_name_the_rank_that_reports_them() {
    let report = |rank: usize, stopped_by: &str, reason: &str| {
        format!(
            r#"echo '{{"failed":{{"rank":{rank},"stopped_by":{stopped_by},"reason":"{reason}"}}}}' \
            >> "$MESHWRIGHT_RUN_REPORTS""#
        )
    };
    let (full, lost) = (report(1, "null", "the disk is full"), report(0, "1", "rank 1 was lost"));
    for (reports, reason) in
        [(&full, "rank 1: the disk is full"), (&lost, "rank 0: rank 1 was lost")]
    {
        let folder = folder(&format!(
            "[ $RANK = 1 ] && {{ {reports}; touch failed; sleep 1; exit 3; }}
             until [ -e failed ]; do sleep 0.01; done; exit 3",
        ));
        let run = folder.run("-n 2 -- ./rank --device cuda --save out");
        assert_eq!(run.code, Some(3), "{}", run.stderr);
        let events = folder.events();
        let end = events.last().unwrap();
        assert_eq!((end.rank, end.reason.as_deref()), (Some(1), Some(reason)));
    }
}

#[test]
fn nothing_is_left_of_a_failed_run() {
    let folder = folder(
        "sleep 1000 & echo $! > left-$RANK
         setsid sh -c 'echo $$ > apart; exec sleep 1000' &
         until [ -s apart ]; do sleep 0.01; done; exit 3",
    );
    let run = folder.run("-n 2 -- ./rank --device cuda");
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    for name in ["left-0", "left-1", "apart"] {
        wait_for_end(folder.read(name).trim());
    }
    assert!(
        run.stderr.contains("processes that the ended ones have left are killed: "),
        "{}",
        run.stderr
    );
}

#[test]
fn signals_reach_every_rank_once() {
    let folder = folder(
        "for s in TERM INT USR1 HUP; do trap \"echo $s >> got-$RANK; exit 75\" $s; done
         echo >> ready-$RANK; while :; do sleep 0.01; done",
    );
    for name in ["TERM", "INT", "USR1", "HUP"] {
        let child = folder.command(THREE).spawn().unwrap();
        (0..3).for_each(|rank| drop(folder.wait_for(&format!("ready-{rank}"))));
        signal(&child.id().to_string(), name);
        signal(&child.id().to_string(), name);
        let run = finish(child);
        assert_eq!(run.code, Some(75), "{}", run.stderr);
        for rank in 0..3 {
            assert_eq!(folder.read(&format!("got-{rank}")), format!("{name}\n"));
            for file in ["got", "ready"] {
                std::fs::remove_file(folder.path(&format!("{file}-{rank}"))).unwrap();
            }
        }
    }
}

/// A run that does not stop is killed: after the grace, or by a second signal.
#[test]
fn a_run_that_does_not_stop_is_killed() {
    let folder = folder("trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 0.01; done'");
    let start = |grace: &str| {
        let child = folder.command(&format!("--grace {grace} -- ./rank")).spawn().unwrap();
        let pid = folder.wait_for("pid");
        signal(&child.id().to_string(), "TERM");
        (child, pid)
    };
    let (child, pid) = start("1s");
    let run = finish(child);
    assert_eq!(run.code, Some(3));
    let line = "meshwright run: the run did not stop within --grace after SIGTERM\n";
    assert!(run.stderr.ends_with(line), "{}", run.stderr);
    wait_for_end(&pid);
    std::fs::remove_file(folder.path("pid")).unwrap();
    let (child, pid) = start("1000s");
    std::thread::sleep(std::time::Duration::from_millis(100));
    signal(&child.id().to_string(), "TERM");
    let run = finish(child);
    assert_eq!(run.code, Some(143), "{}", run.stderr);
    wait_for_end(&pid);
}

/// Processes do not outlive a supervisor that is killed.
#[test]
fn a_killed_supervisor_takes_its_ranks_along() {
    let folder = folder("trap '' TERM; echo $$ > pid-$RANK; while :; do sleep 0.01; done");
    let mut child = folder.command("-n 2 -- ./rank --device cuda").spawn().unwrap();
    let pids = [0, 1].map(|rank| folder.wait_for(&format!("pid-{rank}")));
    child.kill().unwrap();
    child.wait().unwrap();
    pids.iter().for_each(|pid| wait_for_end(pid));
}
