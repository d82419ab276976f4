//! Stores over loopback.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::{Peers, RankExit};

use super::{RankAssignment, Store, StoreError, StoreOptions, Token, TokenSource};

/// A rank assignment with an unused port.
fn assignment(rank: usize, world: usize, port: u16) -> RankAssignment {
    let master = format!("127.0.0.1:{port}");
    RankAssignment { rank, world, local_rank: rank, master, job: "job 1".into(), one_host: true }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const PATIENT: Duration = Duration::from_secs(20);

/// Opens a store without a token.
fn open(assignment: &RankAssignment, timeout: Duration) -> Result<Store, StoreError> {
    Store::open(assignment, &StoreOptions { timeout, ..StoreOptions::default() })
}

/// Opens a store with a token.
fn open_with(assignment: &RankAssignment, token: TokenSource) -> Result<Store, StoreError> {
    Store::open(assignment, &StoreOptions { timeout: PATIENT, token, ..StoreOptions::default() })
}

fn given(token: &str) -> TokenSource {
    TokenSource::Given(Token::new(token).unwrap())
}

#[test]
fn ranks_connect_in_any_order() {
    let port = free_port();
    std::thread::scope(|scope| {
        let rank = |rank: usize| {
            // Rank 0 is late.
            std::thread::sleep(Duration::from_millis(if rank == 0 { 120 } else { 0 }));
            let store = open(&assignment(rank, 4, port), PATIENT).unwrap();
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
    let store = open(&assignment(0, 2, port), PATIENT).unwrap();
    let refused = |assignment: RankAssignment| match open(&assignment, PATIENT) {
        Err(StoreError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let other_job = RankAssignment { job: "job 2".into(), ..assignment(1, 2, port) };
    assert!(refused(other_job).contains("another job"));
    assert!(refused(assignment(2, 3, port)).contains("rank 0 expects 2 ranks, rank 2 3"));
    let text = refused(assignment(2, 2, port));
    assert!(text.contains("there is no rank 2, only the ranks 0 to 1"), "{text}");
    let second = open(&assignment(1, 2, port), PATIENT).unwrap();
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
    let error = open(&assignment(1, 2, port), soon).expect_err("rank 0 does not come");
    assert!(matches!(error, StoreError::Connect { rank: 1, .. }), "{error}");
    assert!(error.to_string().contains("check that MASTER_ADDR is the host of rank 0"), "{error}");

    let store = open(&assignment(0, 2, port), soon).unwrap();
    let error = store.get("never").expect_err("no rank sets it").to_string();
    assert!(error.contains("rank 0 waited 0.15 s for `never`: no rank has set it"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));

    let taken = open(&assignment(0, 2, port), soon).expect_err("the port is taken");
    assert!(taken.to_string().contains("choose another MASTER_PORT"), "{taken}");
}

#[test]
fn absent_ranks_are_named() {
    let store = open(&assignment(0, 3, free_port()), Duration::from_millis(150)).unwrap();
    let error = store.await_ranks().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("rank 0 waited 0.15 s for ranks 1, 2 of 3 at 127.0.0.1:"), "{text}");
    assert_eq!(error.exit_code(), 3);
    // A rank that has come, and failed, is the reason.
    let port = free_port();
    let first = open(&assignment(0, 3, port), PATIENT).unwrap();
    let second = open(&assignment(1, 3, port), PATIENT).unwrap();
    second.announce_exit(&RankExit::Failed { error: "no such file".into(), code: 2 });
    let error = first.await_ranks().unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.exit_code()),
        ("rank 1 has failed (no such file)", 2)
    );
    let whole: Vec<Store> = (0..2)
        .scan(free_port(), |port, rank| open(&assignment(rank, 2, *port), PATIENT).ok())
        .collect();
    whole.iter().for_each(|store| store.await_ranks().unwrap());
}

/// A value of a rank that has ended does not come.
#[test]
fn a_wait_for_a_key_ends_with_a_failed_rank() {
    let port = free_port();
    let first = open(&assignment(0, 2, port), Duration::from_secs(600)).unwrap();
    drop(open(&assignment(1, 2, port), PATIENT).unwrap());
    let error = first.get("cores of rank 1").unwrap_err();
    assert!(error.to_string().starts_with("rank 1 was lost"), "{error}");
    assert_eq!(error.exit_code(), 3);
}

/// All ranks end with the exit code of the first failure.
#[test]
fn a_wait_for_a_key_has_the_code_of_a_failed_rank() {
    let port = free_port();
    let first = open(&assignment(0, 2, port), Duration::from_secs(600)).unwrap();
    let second = open(&assignment(1, 2, port), PATIENT).unwrap();
    second.announce_exit(&RankExit::Failed { error: "no such file".into(), code: 2 });
    let error = first.get("cores of rank 1").unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.exit_code()),
        ("rank 1 has failed (no such file)", 2)
    );
}

#[test]
fn a_name_without_an_address_is_refused() {
    for rank in [0, 1] {
        let master = format!("no-such-host.invalid:{}", free_port());
        let nowhere = RankAssignment { master, ..assignment(rank, 2, 1) };
        let error = open(&nowhere, Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, StoreError::Unresolved { .. }), "{error}");
        assert!(error.to_string().contains("MASTER_ADDR in no-such-host.invalid:"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

/// A cluster publishes the name of a host when the process there has started.
#[test]
fn rank_0_needs_no_address_of_its_host() {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let master = format!("{}.no-such-domain.invalid:{}", host.trim(), free_port());
    let store = open(&RankAssignment { master, ..assignment(0, 2, 1) }, PATIENT).unwrap();
    assert!(store.warnings()[1].contains("listens on every address"), "{:?}", store.warnings());
}

#[test]
fn lost_rank_0_is_reported_while_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = open(&assignment(1, 2, port), PATIENT).expect_err("rank 0 is gone");
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
        (0..4).map(|rank| open(&assignment(rank, 4, port), PATIENT).unwrap()).collect();
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
    let first = open(&assignment(0, 3, port), PATIENT).unwrap();
    drop(open(&assignment(2, 3, port), PATIENT).unwrap());
    assert_eq!(first_failure(&first), (2, RankExit::Lost));
    // A rank that connects later is notified too.
    let second = open(&assignment(1, 3, port), PATIENT).unwrap();
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
        let first = open(&assignment(0, 2, port), PATIENT).unwrap();
        let second = open(&assignment(1, 2, port), PATIENT).unwrap();
        first.announce_exit(&exit);
        second.set("still", b"there").unwrap();
        assert_eq!(second.failed_peer(), expected);
    }
}

#[test]
fn processes_need_the_token_of_rank_0() {
    let (port, secret) = (free_port(), "0123456789abcdef");
    let first = open_with(&assignment(0, 3, port), given(secret)).unwrap();
    let refused = |token| match open_with(&assignment(1, 3, port), token) {
        Err(StoreError::Token(text)) => text,
        other => panic!("{other:?}"),
    };
    let text = refused(given("0123456789abcdeF"));
    assert!(text.contains("the token of this process is not that of rank 0"), "{text}");
    assert!(refused(TokenSource::None).contains("rank 0 has a token, but this process has none"));
    let second = open_with(&assignment(1, 3, port), given(secret)).unwrap();
    assert_eq!(second.run_id(), first.run_id());
    assert_eq!((first.warnings(), first.failed_peer()), (&[][..], None));

    let port = free_port();
    let open_store = open(&assignment(0, 2, port), PATIENT).unwrap();
    assert!(open_store.warnings()[0].contains("set MESHWRIGHT_TOKEN"));
    let error = open_with(&assignment(1, 2, port), given(secret)).unwrap_err().to_string();
    assert!(error.contains("this process has a token, but rank 0 has none"), "{error}");
}

#[test]
fn keys_and_values_have_limits() {
    let store = open(&assignment(0, 2, free_port()), PATIENT).unwrap();
    let text = |result: Result<(), StoreError>| result.unwrap_err().to_string();
    assert!(text(store.set(&"k".repeat(257), b"")).contains("257 bytes are more than"));
    assert!(text(store.set("key", &vec![0; (1 << 20) + 1])).contains("1048577 bytes are more"));
    let whole = vec![7; 1 << 20];
    for part in 0..63 {
        store.set(&part.to_string(), &whole).unwrap();
    }
    // A value that replaces one needs no further space.
    store.set("7", &whole).unwrap();
    assert!(text(store.set("63", &whole)).contains("the store is full: it holds 64 MiB"));
    assert_eq!(store.get("62").unwrap(), whole);
}

#[test]
fn an_address_of_another_host_is_named() {
    // Reserved for documentation.
    let master = format!("192.0.2.1:{}", free_port());
    let elsewhere = RankAssignment { master, ..assignment(0, 2, 1) };
    let error = open(&elsewhere, Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, StoreError::OtherHost { .. }), "{error}");
    assert_eq!(error.exit_code(), 2);
}
