//! Connections to a server, also those that are not of the job.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::super::handshake::{CHALLENGE, Challenge, Greeting, HandshakeSide, prove};
use super::super::protocol::{IdleRank, read_byte};
use super::super::rank_assignment::RankAssignment;
use super::super::rendezvous::{Admission, join};
use super::super::token_source::TokenSource;
use super::*;
use crate::RankProgress;

const RANKS: usize = 6;
const PATIENT: Duration = Duration::from_secs(30);
const SECRET: &str = "0123456789abcdef";

fn settings(heartbeat_limit: Duration) -> ServerSettings {
    ServerSettings {
        world: RANKS,
        job: "test".into(),
        timeout: PATIENT,
        heartbeat_limit,
        token: Some(Token::new(SECRET).unwrap()),
        run_id: "run".into(),
        arrivals: Arc::default(),
        when_complete: None,
    }
}

/// A server that serves, and how to reach it.
fn start() -> RankAssignment {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let master = listener.local_addr().unwrap().to_string();
    serve_store(listener, settings(PATIENT)).unwrap();
    let (rank, local_rank, job) = (0, 0, "test".to_owned());
    RankAssignment { rank, world: RANKS, local_rank, master, job, one_host: true }
}

fn connect(server: &RankAssignment, rank: usize) -> Admission {
    let token = TokenSource::Given(Token::new(SECRET).unwrap());
    join(&RankAssignment { rank, ..server.clone() }, &token, PATIENT, |_| {}).unwrap()
}

/// A connection without a handshake.
fn stranger(server: &RankAssignment) -> TcpStream {
    let stream = TcpStream::connect(&server.master).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream
}

/// The exits that a rank receives next.
fn exits(rank: &mut Admission, count: usize) -> Vec<usize> {
    let next = |_| match StoreMessage::read(&mut rank.input).unwrap() {
        StoreMessage::Exited(exited, RankExit::Lost) => exited,
        other => panic!("{other:?}"),
    };
    (0..count).map(next).collect()
}

fn leave(rank: &Admission) {
    rank.out.shutdown(Shutdown::Both).unwrap();
}

#[test]
fn every_rank_receives_exits_in_one_order() {
    let server = start();
    let mut ranks: Vec<Admission> = (0..RANKS - 1).map(|rank| connect(&server, rank)).collect();
    let last = ranks.pop().unwrap();
    leave(&last);
    assert_eq!(exits(&mut ranks[0], 1), [4]);
    // Two that end at the same time.
    leave(&ranks[1]);
    leave(&ranks[2]);
    let order = exits(&mut ranks[0], 2);
    assert_eq!(exits(&mut ranks[3], 3), [4, order[0], order[1]]);
    // One that connects later.
    let mut late = connect(&server, RANKS - 1);
    assert_eq!(exits(&mut late, 3), [4, order[0], order[1]]);
}

/// Sends a greeting, and returns the challenge of the store.
fn greet(stream: &mut TcpStream, greeting: &Greeting) -> Challenge {
    stream.write_all(&greeting.to_bytes().unwrap()).unwrap();
    assert_eq!(read_byte(stream).unwrap(), CHALLENGE);
    Challenge::read(stream).unwrap()
}

#[test]
fn strangers_cannot_take_the_place_of_a_rank() {
    let server = start();
    let mut first = connect(&server, 0);
    let token = Token::new(SECRET).unwrap();
    let greeting = Greeting::new(&RankAssignment { rank: 1, ..server.clone() }, true, [1; 32]);
    let refused = |proof: &dyn Fn(&Challenge) -> [u8; 32]| {
        let mut stream = stranger(&server);
        let challenge = greet(&mut stream, &greeting);
        stream.write_all(&proof(&challenge)).unwrap();
        let StoreMessage::Refused(reason) = StoreMessage::read(&mut stream).unwrap() else {
            panic!()
        };
        assert!(reason.contains("does not know the token"), "{reason}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    };
    refused(&|_| [0; 32]);
    refused(&|challenge| prove(None, &greeting, &challenge.challenge, HandshakeSide::Rank));
    // The proof of the store, sent back.
    refused(&|challenge| challenge.proof);
    // A proof that was recorded.
    let recorded = {
        let mut stream = stranger(&server);
        let challenge = greet(&mut stream, &greeting);
        prove(Some(&token), &greeting, &challenge.challenge, HandshakeSide::Rank)
    };
    refused(&|_| recorded);
    // The proof of another rank.
    let other = Greeting { rank: 2, ..greeting.clone() };
    refused(&|challenge| prove(Some(&token), &other, &challenge.challenge, HandshakeSide::Rank));

    let second = connect(&server, 1);
    (&second.out)
        .write_all(&StoreRequest::Set(b"k".into(), b"v".into()).to_bytes().unwrap())
        .unwrap();
    (&first.out).write_all(&StoreRequest::Get(b"k".into()).to_bytes().unwrap()).unwrap();
    assert_eq!(StoreMessage::read(&mut first.input).unwrap(), StoreMessage::Done(b"v".into()));
}

#[test]
fn silent_connections_give_way_to_new_ones() {
    let server = start();
    let _first = connect(&server, 0);
    let count = MAX_NEWCOMERS + RANKS + 1;
    let mut silent: Vec<TcpStream> = (0..count).map(|_| stranger(&server)).collect();
    // The oldest is dropped, and the newest is not.
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
    let greeting = Greeting::new(&RankAssignment { rank: 1, ..server.clone() }, true, [1; 32]);
    greet(silent.last_mut().unwrap(), &greeting);
    connect(&server, 1);
}

#[test]
fn foreign_bytes_end_a_connection_without_memory() {
    let server = start();
    let magic = super::super::protocol::MAGIC;
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [&magic[..], &u32::MAX.to_le_bytes()].concat(),
        [&magic[..], &257u32.to_le_bytes()].concat(),
    ] {
        let mut stream = stranger(&server);
        stream.write_all(&bytes).unwrap();
        stream.read_to_end(&mut Vec::new()).ok();
    }
    // Requests of a rank that are longer than the store allows end its connection.
    let mut first = connect(&server, 0);
    for (rank, bytes) in [
        [&[2][..], &257u32.to_le_bytes()].concat(),
        [&[1][..], &0u32.to_le_bytes(), &u32::MAX.to_le_bytes()].concat(),
        vec![99],
    ]
    .into_iter()
    .enumerate()
    {
        let mut other = connect(&server, rank + 1);
        (&other.out).write_all(&bytes).unwrap();
        other.input.read_to_end(&mut Vec::new()).ok();
        assert_eq!(exits(&mut first, 1), [rank + 1]);
    }
}

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    (stream, listener.accept().unwrap().0)
}

#[test]
fn a_handshake_has_one_time_limit() {
    let mut server = Server::new(settings(PATIENT)).unwrap();
    let now = Instant::now();
    let early = now.checked_sub(HANDSHAKE_TIME + Duration::from_millis(1));
    let early = early.expect("the system has been running for longer");
    let (slow, accepted) = pair();
    server.newcomers.extend(Newcomer::new(accepted, early));
    let (_quick, accepted) = pair();
    server.newcomers.extend(Newcomer::new(accepted, now));
    // A byte does not extend it.
    (&slow).write_all(b"m").unwrap();
    server.advance_newcomers(|_| true);
    let left: Vec<Instant> = server.newcomers.iter().map(|newcomer| newcomer.since).collect();
    assert_eq!(left, [now]);
}

/// Members with these ranks, and the other ends of their connections.
fn members(ranks: u32) -> (Members, Vec<BufReader<TcpStream>>) {
    let mut members = Members::default();
    let ends = (0..ranks).map(|rank| {
        let (stream, accepted) = pair();
        members.admit(rank, link::Link::new(accepted).unwrap(), Vec::new());
        BufReader::new(stream)
    });
    let ends = ends.collect();
    (members, ends)
}

#[test]
fn a_rank_without_heartbeats_is_announced_to_all() {
    let (mut members, mut ends) = members(3);
    let limit = Duration::from_secs(3);
    let progress = |calls| RankProgress {
        step: 812,
        calls,
        is_communicating: calls == 0,
        last_call: "all_gather of blocks.3".into(),
    };
    members.get_mut(2).unwrap().beat(progress(4410));
    for tick in 1..=10 {
        for rank in 0..2 {
            members.get_mut(rank).unwrap().beat(progress(tick));
        }
        members.pass_time(Duration::from_millis(500), limit);
        // Never before the limit has passed since the last heartbeat that could have been sent.
        if tick == 7 {
            assert_eq!(members.idle_ranks().len(), 1);
        }
    }
    for end in &mut ends {
        let StoreMessage::Exited(2, RankExit::Silent(text)) = StoreMessage::read(end).unwrap()
        else {
            panic!()
        };
        let expected = "3 s, last seen in step 812; its last call was all_gather of blocks.3";
        assert_eq!(&*text, expected);
    }
    assert_eq!(members.idle_ranks(), []);
}

/// A paused process of rank 0 finds the connections of those closed that have given it up.
#[test]
fn a_rank_that_gives_up_a_paused_store_is_not_the_cause() {
    for was_paused in [false, true] {
        let mut server = Server::new(settings(Duration::from_secs(3))).unwrap();
        let (members, mut ends) = members(3);
        (server.members, server.was_paused) = (members, was_paused);
        drop(ends.remove(1));
        server.serve_rank(1, true);
        let first = StoreMessage::read(&mut ends[1]).unwrap();
        if was_paused {
            assert!(matches!(first, StoreMessage::Exited(0, RankExit::Silent(_))));
        } else {
            assert_eq!(first, StoreMessage::Exited(1, RankExit::Lost));
        }
    }
}

/// After a pause of the whole host all heartbeats are late.
#[test]
fn a_pause_of_all_is_no_silence() {
    let (mut members, _ends) = members(2);
    members.pass_time(Duration::from_secs(3600), Duration::from_secs(2));
    assert!(members.iter_mut().all(|(_, member)| member.link.is_some()));
    for rank in 0..2 {
        let beat = RankProgress { calls: 1, is_communicating: rank == 0, ..Default::default() };
        members.get_mut(rank).unwrap().beat(beat.clone());
        members.get_mut(rank).unwrap().beat(beat);
    }
    for _ in 0..7 {
        members.pass_time(Duration::from_secs(1), Duration::from_secs(60));
    }
    // The rank that computes is more likely to be the cause than the one that waits.
    let idle: Vec<_> = members.idle_ranks();
    let order: Vec<_> = idle.iter().map(|IdleRank { rank, since, .. }| (*rank, *since)).collect();
    assert_eq!(order, [(1, Duration::from_secs(7)), (0, Duration::from_secs(7))]);
}
