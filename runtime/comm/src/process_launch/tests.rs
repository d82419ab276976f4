//! Rank assignment from the variables of launchers, and stores over loopback.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::{Peers, RankExit};

use super::{ProcessRank, RankAssignment, RankAssignmentError, Store, StoreError};

fn assignment_of(
    variables: &[(&str, &str)],
) -> Result<Option<RankAssignment>, RankAssignmentError> {
    let value =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
    RankAssignment::from_variables(&|name| value(name).map(|value| value.to_string()))
}

#[test]
fn every_launcher_is_recognized() {
    let torchrun = [
        ("RANK", "5"),
        ("WORLD_SIZE", "16"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node7"),
        ("MASTER_PORT", "1234"),
        ("TORCHELASTIC_RUN_ID", "abc"),
        // It listens on its port itself, so that the store uses the next one.
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        // torchrun may run under SLURM.
        ("SLURM_PROCID", "1"),
    ];
    let master = "node7:1235".to_string();
    let expected = RankAssignment { rank: 5, world: 16, local_rank: 1, master, job: "abc".into() };
    assert_eq!(assignment_of(&torchrun), Ok(Some(expected)));

    let slurm = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "3"),
        ("SLURM_NNODES", "1"),
        ("SLURM_JOB_ID", "77"),
    ];
    let master = "127.0.0.1:29500".to_string();
    let expected = RankAssignment { rank: 3, world: 4, local_rank: 3, master, job: "77".into() };
    assert_eq!(assignment_of(&slurm), Ok(Some(expected)));

    let mpirun = [
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        ("MASTER_ADDR", "::1"),
        ("MESHWRIGHT_JOB", "secret"),
    ];
    let master = "[::1]:29500".to_string();
    let expected =
        RankAssignment { rank: 0, world: 2, local_rank: 0, master, job: "secret".into() };
    assert_eq!(assignment_of(&mpirun), Ok(Some(expected)));

    assert_eq!(assignment_of(&[("HOME", "/root")]), Ok(None));
}

/// The variables of further launchers, and the rank, world size, local rank and address in them.
#[test]
fn launchers_of_clusters_are_recognized() {
    let node = ("MASTER_ADDR", "node7");
    for (variables, expected) in [
        // Open MPI 5 numbers the ranks of a host in another order.
        (
            vec![
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "4"),
                ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
                ("PMIX_RANK", "1"),
            ],
            (1, 4, 2, "127.0.0.1:29500"),
        ),
        (
            vec![
                ("PMI_RANK", "1"),
                ("PMI_SIZE", "2"),
                ("MPI_LOCALRANKID", "1"),
                ("MPI_LOCALNRANKS", "2"),
            ],
            (1, 2, 1, "127.0.0.1:29500"),
        ),
        // PALS, with and without the rank of PMI.
        (
            vec![
                ("PMI_RANK", "3"),
                ("PALS_RANKID", "3"),
                ("PMI_SIZE", "4"),
                ("PALS_LOCAL_RANKID", "1"),
                node,
            ],
            (3, 4, 1, "node7:29500"),
        ),
        (
            vec![("PALS_RANKID", "3"), ("PMI_SIZE", "4"), ("PALS_LOCAL_RANKID", "1"), node],
            (3, 4, 1, "node7:29500"),
        ),
        // Flux in a job of SLURM.
        (
            vec![
                ("FLUX_TASK_RANK", "2"),
                ("FLUX_JOB_SIZE", "3"),
                ("FLUX_TASK_LOCAL_ID", "0"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_NTASKS", "1"),
                node,
            ],
            (2, 3, 0, "node7:29500"),
        ),
        // MVAPICH in a task of SLURM.
        (
            vec![
                ("MV2_COMM_WORLD_RANK", "1"),
                ("MV2_COMM_WORLD_SIZE", "2"),
                ("MV2_COMM_WORLD_LOCAL_RANK", "1"),
                ("MV2_COMM_WORLD_LOCAL_SIZE", "2"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_NTASKS", "1"),
            ],
            (1, 2, 1, "127.0.0.1:29500"),
        ),
        // jsrun gives the rank of PMIx too.
        (
            vec![
                ("JSM_NAMESPACE_RANK", "5"),
                ("JSM_NAMESPACE_SIZE", "8"),
                ("JSM_NAMESPACE_LOCAL_RANK", "1"),
                ("JSM_NAMESPACE_LOCAL_SIZE", "4"),
                ("PMIX_RANK", "5"),
                node,
            ],
            (5, 8, 1, "node7:29500"),
        ),
        (
            vec![("JOB_COMPLETION_INDEX", "1"), ("MESHWRIGHT_WORLD_SIZE", "2"), node],
            (1, 2, 0, "node7:29500"),
        ),
        // One process needs no address.
        (
            vec![("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")],
            (0, 1, 0, "127.0.0.1:29500"),
        ),
        // A step with fewer tasks than its job.
        (
            vec![
                ("SLURM_PROCID", "1"),
                ("SLURM_NTASKS", "8"),
                ("SLURM_STEP_NUM_TASKS", "2"),
                ("SLURM_STEP_ID", "3"),
                ("SLURM_LOCALID", "1"),
                ("SLURM_NNODES", "4"),
                ("SLURM_STEP_NUM_NODES", "1"),
            ],
            (1, 2, 1, "127.0.0.1:29500"),
        ),
    ] {
        let found = assignment_of(&variables).unwrap().expect("a rank");
        let found = (found.rank, found.world, found.local_rank, found.master.as_str());
        assert_eq!(found, expected, "{variables:?}");
    }
    let unknown = RankAssignmentError::UnknownWorld { present: "PMIX_RANK" };
    assert_eq!(assignment_of(&[("PMIX_RANK", "1")]), Err(unknown));
}

#[test]
fn a_slurm_batch_script_is_no_task() {
    let rank_of = |variables: &[(&str, &str)]| {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        ProcessRank::from_variables(&|name| value(name).map(|value| value.to_string()))
    };
    let script = [
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_NNODES", "1"),
        ("SLURM_JOB_ID", "77"),
    ];
    assert_eq!(rank_of(&script), Ok(None));
    // The steps of batch scripts and of interactive shells.
    for step in ["4294967291", "4294967290"] {
        assert_eq!(rank_of(&[&script[..], &[("SLURM_STEP_ID", step)]].concat()), Ok(None));
        assert_eq!(assignment_of(&[&script[..], &[("SLURM_STEP_ID", step)]].concat()), Ok(None));
    }
    let first = Some(ProcessRank { rank: 0, world: 4 });
    assert_eq!(rank_of(&[&script[..], &[("SLURM_STEP_ID", "0")]].concat()), Ok(first));
    let later = Some(ProcessRank { rank: 3, world: 4 });
    assert_eq!(rank_of(&[&[("SLURM_PROCID", "3")], &script[1..]].concat()), Ok(later));
    // Other launchers start their processes from such a script.
    let torchrun = [("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")];
    assert_eq!(rank_of(&[&script[..], &torchrun].concat()), Ok(first));
}

#[test]
fn inconsistent_variables_are_named() {
    let text =
        |variables: &[(&str, &str)]| assignment_of(variables).expect_err("refused").to_string();
    assert_eq!(
        text(&[("RANK", "0")]),
        "the environment has RANK, but no WORLD_SIZE: start all processes by one launcher, or set it"
    );
    let two = [("RANK", "2"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")];
    assert_eq!(text(&two), "RANK=2 is not below WORLD_SIZE=2");
    let one = [("RANK", "one"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")];
    assert_eq!(text(&one), "RANK=one is not a number");
    let nowhere = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")];
    assert!(text(&nowhere).contains("no MASTER_ADDR"));
}

/// A rank assignment with an unused port.
fn assignment(rank: usize, world: usize, port: u16) -> RankAssignment {
    let master = format!("127.0.0.1:{port}");
    RankAssignment { rank, world, local_rank: rank, master, job: "job 1".into() }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const PATIENT: Duration = Duration::from_secs(20);

#[test]
fn ranks_connect_in_any_order() {
    let port = free_port();
    std::thread::scope(|scope| {
        let rank = |rank: usize| {
            // Rank 0 is late.
            std::thread::sleep(Duration::from_millis(if rank == 0 { 120 } else { 0 }));
            let store = Store::open(&assignment(rank, 4, port), PATIENT).unwrap();
            if rank == 2 {
                store.set("id", &[7; 128]).unwrap();
            }
            assert_eq!(store.get("id").unwrap(), [7; 128]);
            store.set(&format!("host of {rank}"), &[rank as u8]).unwrap();
            store.barrier("hosts").unwrap();
            for other in 0..4 {
                assert_eq!(store.get(&format!("host of {other}")).unwrap(), [other as u8]);
            }
        };
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || rank(n))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn foreign_processes_are_refused_with_the_reason() {
    let port = free_port();
    let store = Store::open(&assignment(0, 2, port), PATIENT).unwrap();
    let refused = |assignment: RankAssignment| match Store::open(&assignment, PATIENT) {
        Err(StoreError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let other_job = RankAssignment { job: "job 2".into(), ..assignment(1, 2, port) };
    assert!(refused(other_job).contains("another job"));
    assert!(refused(assignment(2, 3, port)).contains("rank 0 expects 2 ranks, rank 2 3"));
    let second = Store::open(&assignment(1, 2, port), PATIENT).unwrap();
    assert!(refused(assignment(1, 2, port)).contains("rank 1 is already connected"));
    // A foreign connection does not disturb the store.
    TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    second.set("x", b"y").unwrap();
    assert_eq!(store.get("x").unwrap(), b"y");
}

#[test]
fn waits_time_out() {
    let (port, soon) = (free_port(), Duration::from_millis(150));
    let start = Instant::now();
    let error = Store::open(&assignment(1, 2, port), soon).expect_err("rank 0 does not come");
    assert!(matches!(error, StoreError::Connect { rank: 1, .. }), "{error}");
    assert!(error.to_string().contains("check that MASTER_ADDR is the host of rank 0"), "{error}");

    let store = Store::open(&assignment(0, 2, port), soon).unwrap();
    let error = store.get("never").expect_err("no rank sets it").to_string();
    assert!(error.contains("rank 0 waited 0.15 s for `never`: no rank has set it"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));

    let taken = Store::open(&assignment(0, 2, port), soon).expect_err("the port is taken");
    assert!(taken.to_string().contains("choose another MASTER_PORT"), "{taken}");
}

#[test]
fn lost_rank_0_is_reported_while_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = Store::open(&assignment(1, 2, port), PATIENT).expect_err("rank 0 is gone");
    thread.join().unwrap();
    assert!(matches!(error, StoreError::NotAStore { rank: 1, .. }), "{error}");
}

/// Waits for the first failed rank.
fn first_failure(store: &Store) -> (usize, RankExit) {
    let start = Instant::now();
    loop {
        if let Some(lost) = store.failed_peer() {
            return lost;
        }
        assert!(start.elapsed() < PATIENT, "no failure is reported");
        std::thread::yield_now();
    }
}

#[test]
fn failures_are_announced_to_other_ranks() {
    let port = free_port();
    let stores: Vec<Store> =
        (0..4).map(|rank| Store::open(&assignment(rank, 4, port), PATIENT).unwrap()).collect();
    let mut stores = stores.into_iter();
    let [first, second, third, fourth] = [(); 4].map(|()| stores.next().unwrap());
    // A rank that has returned is not reported.
    fourth.announce_exit(&RankExit::Returned);
    drop(fourth);
    let failed = RankExit::Failed { error: "no space left".into(), code: 4 };
    third.announce_exit(&failed);
    assert_eq!(first_failure(&first), (2, failed.clone()));
    assert_eq!(first_failure(&second), (2, failed));
    assert_eq!(third.failed_peer(), None);
    // The first failure counts; those that follow from it come later.
    drop(second);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(first.failed_peer().unwrap().0, 2);
}

#[test]
fn closed_connection_is_reported_as_lost() {
    let port = free_port();
    let first = Store::open(&assignment(0, 3, port), PATIENT).unwrap();
    drop(Store::open(&assignment(2, 3, port), PATIENT).unwrap());
    assert_eq!(first_failure(&first), (2, RankExit::Lost));
    // A rank that connects later is notified too.
    let second = Store::open(&assignment(1, 3, port), PATIENT).unwrap();
    assert_eq!(first_failure(&second), (2, RankExit::Lost));
}

#[test]
fn exit_of_rank_0_is_announced() {
    for (exit, expected) in [
        (
            RankExit::Panicked("at the disco".into()),
            Some((0, RankExit::Panicked("at the disco".into()))),
        ),
        (RankExit::Returned, None),
    ] {
        let port = free_port();
        let first = Store::open(&assignment(0, 2, port), PATIENT).unwrap();
        let second = Store::open(&assignment(1, 2, port), PATIENT).unwrap();
        first.announce_exit(&exit);
        second.set("still", b"there").unwrap();
        assert_eq!(second.failed_peer(), expected);
    }
}
