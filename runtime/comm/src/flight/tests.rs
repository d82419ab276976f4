//! Built faults, whose culprit the files of the ranks have to name.

use std::sync::Arc;
use std::time::Duration;

use super::super::{
    CommError, FlightError, FlightFolder, FlightReport, LaunchOptions, RankComms, ReduceOp, Site,
    launch_with,
};
use super::analysis::analyze;
use super::file::{End, FlightCall, GroupRecord, RankRecord, Sequence, VERSION};
use super::folder::rank_files;
use meshwright_backend::{CachingAllocator, Category, DType};
use meshwright_mesh::{AxisId, AxisSet};

type Outcome = Result<(), CommError>;

/// Runs a faulty program on four ranks, and returns the folder of their files.
fn record(
    mesh: &str,
    timeout: Duration,
    body: impl Fn(&RankComms, &FlightFolder) -> Outcome + Sync,
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let flight = Arc::new(FlightFolder::new(folder.path(), None));
    let options =
        LaunchOptions { timeout, flight: Some(Arc::clone(&flight)), ..LaunchOptions::default() };
    let body = |comms: RankComms| {
        for step in 1..=3 {
            comms.begin_step(step);
            reduce(&comms, "blocks.0", 4)?;
        }
        comms.begin_step(4);
        body(&comms, &flight)
    };
    launch_with(&options, &mesh.parse().unwrap(), body).expect_err("the program is faulty");
    assert_eq!(flight.problem(), None);
    assert_eq!(rank_files(folder.path()).unwrap().len(), 4);
    folder
}

fn report(folder: &tempfile::TempDir) -> FlightReport {
    FlightReport::of_folder(folder.path()).unwrap()
}

/// Checks the culprits of a faulty program, and a part of the report.
fn blame(expected: &[usize], text: &str, mesh: &str, body: impl Fn(&RankComms) -> Outcome + Sync) {
    let folder = record(mesh, Duration::from_secs(60), |comms, _| body(comms));
    let report = report(&folder);
    assert_eq!(report.culprits(), expected, "{report}");
    assert!(report.to_string().contains(text), "{report}");
}

fn reduce(comms: &RankComms, field: &str, len: usize) -> Outcome {
    let mut data = vec![1.0f32; len];
    comms.world().all_reduce(&Site::new(field), ReduceOp::Sum, data.as_mut_slice().into())
}

fn group(comms: &RankComms, axis: AxisId) -> Arc<super::super::Communicator> {
    comms.group(AxisSet::of(axis))
}

#[test]
fn different_calls_are_named() {
    blame(&[2], "rank 2: all_reduce(sum f32 x 5) of `blocks.1`", "dp=4", |comms| {
        reduce(comms, "blocks.1", if comms.rank() == 2 { 5 } else { 4 })
    });
    let number = "have issued different calls as their number 4:";
    blame(&[1], number, "dp=4", |comms| match comms.rank() {
        1 => comms.world().barrier(&Site::new("blocks.1")),
        _ => reduce(comms, "blocks.1", 4),
    });
    // The same calls in another order, and a call that one rank leaves out.
    blame(&[3], "rank 3: all_reduce(sum f32 x 4) of `y`", "dp=4", |comms| {
        let fields = if comms.rank() == 3 { ["y", "x"] } else { ["x", "y"] };
        fields.into_iter().try_for_each(|field| reduce(comms, field, 4))
    });
    blame(&[0], "rank 0: all_reduce(sum f32 x 4) of `y`", "dp=4", |comms| {
        if comms.rank() != 0 {
            reduce(comms, "x", 4)?;
        }
        reduce(comms, "y", 4)
    });
}

#[test]
fn ranks_that_others_wait_for_are_named() {
    // It has returned without the last call.
    blame(&[2], "rank 2 has not issued number 4 and has returned", "dp=4", |comms| {
        if comms.rank() == 2 { Ok(()) } else { reduce(comms, "blocks.1", 4) }
    });
    blame(&[1], "rank 1 has failed in step 4: panic: out of luck", "dp=4", |comms| {
        assert!(comms.rank() != 1, "out of luck");
        reduce(comms, "blocks.1", 4)
    });
    // Ranks 0 and 1 wait over tp, and ranks 2 and 3 over dp for them.
    blame(
        &[1],
        "rank 1 has not issued number 1 and has returned",
        "dp=2,tp=2",
        |comms| match comms.rank() {
            1 => Ok(()),
            0 => group(comms, AxisId::Tp).barrier(&Site::new("x")),
            _ => group(comms, AxisId::Dp).barrier(&Site::new("y")),
        },
    );
    // An asynchronous call.
    blame(&[3], "all_reduce(sum f32 x 2) of `grad` over the world", "dp=4", |comms| {
        if comms.rank() == 3 {
            return Ok(());
        }
        let data = CachingAllocator::new().zeros(DType::F32, 2, Category::Communication);
        comms.world().start_all_reduce(&Site::new("grad"), ReduceOp::Sum, data).wait().map(drop)
    });
    // A message that is not sent.
    blame(&[0], "rank 1 waits for it in recv(f32 x 2 from rank 0)", "pp=4", |comms| {
        let (mut data, pp) = ([0.0f32; 2], group(comms, AxisId::Pp));
        match comms.rank() {
            0 => Ok(()),
            rank => pp.recv(&Site::new("stage"), rank - 1, (&mut data[..]).into()),
        }
    });
}

#[test]
fn ranks_in_a_circle_are_named() {
    blame(&[0, 1, 2, 3], "ranks wait for each other:\n  rank 0 waits for", "dp=2,tp=2", |comms| {
        let axes = [AxisId::Dp, AxisId::Tp];
        let axis = axes[usize::from(comms.rank() == 0 || comms.rank() == 3)];
        group(comms, axis).barrier(&Site::new("x"))
    });
}

/// The process of rank 2 is paused until the others have given up, or is killed.
#[test]
fn paused_and_killed_processes_are_named() {
    let folder = record("dp=4", Duration::from_millis(50), |comms, flight| {
        while comms.rank() == 2 && rank_files(flight.path()).unwrap_or_default().len() < 3 {
            std::thread::yield_now();
        }
        reduce(comms, "blocks.1", 4)
    });
    let paused = report(&folder);
    assert_eq!(paused.culprits(), [2], "{paused}");
    std::fs::remove_file(folder.path().join("rank-00002.json")).unwrap();
    let killed = report(&folder);
    assert_eq!(killed.culprits(), [2], "{killed}");
    let text = "rank 2 has left no file: its process was killed, is paused, was not asked, or cannot write\n  rank 0";
    assert!(killed.to_string().contains(text), "{killed}");
}

/// The record of a rank that has made `calls` blocking calls, at times in microseconds.
fn running(rank: usize, written: u64, calls: &[(u64, Option<u64>)]) -> RankRecord {
    let call = |(index, (issued, ended)): (usize, &(u64, Option<u64>))| FlightCall {
        index: index as u64,
        step: 1,
        axes: "dp".into(),
        sequence: Sequence::Blocking,
        number: index as u64 + 1,
        op: "all_reduce".into(),
        reduce: Some("sum".into()),
        dtype: Some("f32".into()),
        elements: 4,
        bytes: 16,
        peer: None,
        field: "blocks.0".into(),
        issued: *issued,
        started: None,
        ended: *ended,
        slow_steps: None,
    };
    RankRecord {
        meshwright_flight: VERSION,
        run: "run".into(),
        rank,
        world: 2,
        written,
        end: End::Running,
        message: None,
        stopped_by: None,
        step: 1,
        groups: vec![GroupRecord {
            axes: "dp".into(),
            members: vec![0, 1],
            blocking: calls.len() as u64,
            asynchronous: 0,
            messages: vec![[0; 2]; 2],
        }],
        calls: calls.iter().enumerate().map(call).collect(),
    }
}

/// Files of ranks that go on, as a signal asks for them.
#[test]
fn slow_ranks_are_named_and_usual_waits_are_not() {
    let calls = |delay: u64| -> Vec<(u64, Option<u64>)> {
        (0..20).map(|n| (n * 1000 + delay, Some(n * 1000 + 900))).collect()
    };
    let culprits = |records: &[RankRecord]| -> Vec<usize> {
        analyze(records).into_iter().flat_map(|finding| finding.culprits).collect()
    };
    let of =
        |first, second| [running(0, 20_000, &calls(first)), running(1, 20_000, &calls(second))];
    assert_eq!(culprits(&of(0, 600)), [1]);
    assert_eq!(culprits(&of(0, 50)), [] as [usize; 0]);
    // On a busy machine each rank is late now and then.
    let mut busy = of(0, 600);
    for n in [1, 2, 4, 5, 7, 8, 10, 11, 13] {
        busy[0].calls[n].issued += 1200;
    }
    assert_eq!(culprits(&busy), [] as [usize; 0]);
    // Steps of calls take rank 0 most of the time.
    let mut slow_steps = of(0, 0);
    slow_steps[0].calls.iter_mut().for_each(|call| call.slow_steps = Some(600));
    assert_eq!(culprits(&slow_steps), [0]);
    slow_steps[1].calls.iter_mut().for_each(|call| call.slow_steps = Some(600));
    assert_eq!(culprits(&slow_steps), [] as [usize; 0]);
    // The last call of rank 0 waits for a moment, or for long.
    let waits = |written| {
        let mut first = calls(0);
        first.push((20_000, None));
        [running(0, written, &first), running(1, written, &calls(0))]
    };
    assert_eq!(culprits(&waits(30_000)), [] as [usize; 0]);
    assert_eq!(culprits(&waits(20_000_000)), [1]);
}

/// A rank that was paused, whose launcher lets it go on and write its file.
#[test]
fn the_rank_that_others_name_is_the_cause() {
    let stopped = |rank| RankRecord {
        end: End::CallFailed,
        message: Some("rank 0 has sent no heartbeat for 60 s".into()),
        stopped_by: Some(0),
        ..running(rank, 20_000, &[(0, Some(900)), (1000, None)])
    };
    for records in [vec![stopped(0), stopped(1)], vec![stopped(1)]] {
        let findings = analyze(&records);
        assert_eq!(findings.iter().flat_map(|one| one.culprits.clone()).collect::<Vec<_>>(), [0]);
        assert!(!findings[0].text.is_empty());
    }
}

#[test]
fn folders_of_several_runs_are_refused() {
    let folder = record("dp=4", Duration::from_secs(60), |comms, _| {
        if comms.rank() == 0 { Ok(()) } else { reduce(comms, "x", 4) }
    });
    let error = || FlightReport::of_folder(folder.path()).unwrap_err();
    let path = folder.path().join("rank-00003.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (key, value) in [("run", "another".into()), ("world", 8.into())] {
        let old = other[key].take();
        other[key] = value;
        std::fs::write(&path, other.to_string()).unwrap();
        assert!(matches!(error(), FlightError::TwoRuns { .. }), "{}", error());
        other[key] = old;
    }
    for (key, value) in [("rank", 4.into()), ("rank", 2.into()), ("meshwright_flight", 2.into())] {
        let old = other[key].take();
        other[key] = value;
        std::fs::write(&path, other.to_string()).unwrap();
        assert!(matches!(error(), FlightError::NotARecord { .. }), "{}", error());
        other[key] = old;
    }
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(matches!(error(), FlightError::NotARecord { .. }));
    let empty = tempfile::tempdir().unwrap();
    let error = |path| FlightReport::of_folder(path).unwrap_err();
    assert!(matches!(error(empty.path()), FlightError::Empty(_)));
    assert!(matches!(error(&empty.path().join("x")), FlightError::Unreadable { .. }));
}

/// The files of an earlier run are replaced, also if this run has fewer ranks.
#[test]
fn a_run_keeps_its_own_files_only() {
    let folder = tempfile::tempdir().unwrap();
    for ranks in [4, 2] {
        let flight = Some(Arc::new(FlightFolder::new(folder.path(), None)));
        let options = LaunchOptions { flight, ..LaunchOptions::default() };
        let mesh = format!("dp={ranks}").parse().unwrap();
        launch_with(&options, &mesh, |_| Err::<(), _>("a fault")).unwrap_err();
        assert_eq!(report(&folder).culprits(), (0..ranks).collect::<Vec<_>>());
    }
}

/// The ring keeps the last calls, and counts those before.
#[test]
fn old_calls_leave_the_ring() {
    let folder = record("dp=4", Duration::from_secs(60), |comms, _| {
        (0..1100).try_for_each(|_| reduce(comms, "blocks.1", 1))?;
        if comms.rank() == 3 { Ok(()) } else { group(comms, AxisId::Dp).barrier(&Site::new("x")) }
    });
    let report = report(&folder);
    assert_eq!(report.culprits(), [3], "{report}");
    assert!(
        report.to_string().contains("rank 3 has not issued number 1 and has returned"),
        "{report}"
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let flight = Arc::new(FlightFolder::new(file.path().join("calls"), None));
    let options = LaunchOptions { flight: Some(Arc::clone(&flight)), ..LaunchOptions::default() };
    launch_with(&options, &"dp=2".parse().unwrap(), |_| Err::<(), _>("a fault")).unwrap_err();
    assert!(!flight.has_files());
    let problem = flight.problem().unwrap();
    assert!(problem.contains("calls: Not a directory"), "{problem}");
}
