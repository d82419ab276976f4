//! The order of exits that ranks receive.

use super::*;

const RANKS: u32 = 8;

/// A server with connected ranks, and the sockets of the ranks.
struct Connections {
    server: Server,
    listener: TcpListener,
    ranks: HashMap<u32, TcpStream>,
}

impl Connections {
    fn of(ranks: impl IntoIterator<Item = u32>) -> Self {
        let job = "test".to_owned();
        let assignment = RankAssignment {
            rank: 0,
            world: RANKS as usize,
            local_rank: 0,
            master: String::new(),
            job,
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = Connections {
            server: Server::new(assignment, Duration::from_secs(30)),
            listener,
            ranks: HashMap::new(),
        };
        for rank in ranks {
            connections.connect(rank);
        }
        connections
    }

    fn connect(&mut self, rank: u32) {
        let mut stream = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).unwrap();
        let (accepted, _) = self.listener.accept().unwrap();
        assert!(self.server.admit_rank(b"test", rank, RANKS, accepted).is_ok());
        assert_eq!(read_byte(&mut stream).unwrap(), DONE);
        assert_eq!(read_bytes(&mut stream).unwrap(), b"");
        self.ranks.insert(rank, stream);
    }

    /// The ranks of the next `count` exits that `rank` receives, in their order.
    fn exits(&self, rank: u32, count: usize) -> Vec<u32> {
        let mut input = &self.ranks[&rank];
        let mut next = || {
            assert_eq!(read_byte(&mut input).unwrap(), EXITED);
            let exited = read_number(&mut input).unwrap();
            assert_eq!(read_exit(&mut input).unwrap(), RankExit::Lost);
            exited
        };
        (0..count).map(|_| next()).collect()
    }
}

/// While rank 1 is yet to be notified of the exit of rank 0, it exits itself: the others receive this exit second.
#[test]
fn every_rank_receives_exits_in_one_order() {
    // Another order of notifications each time: the order of a new hash map.
    for _ in 0..10 {
        let connections = Connections::of(0..RANKS);
        let server = &connections.server;
        let sender = Arc::clone(&server.lock_state().ranks[&1].out);
        std::thread::scope(|scope| {
            let busy = sender.lock().unwrap();
            scope.spawn(|| server.note_exit(0, RankExit::Lost));
            while !server.lock_state().ranks[&0].has_exited {
                std::thread::yield_now();
            }
            scope.spawn(|| server.note_exit(1, RankExit::Lost));
            // Time for a wrong order: a correct one waits for the first exit to be announced.
            std::thread::sleep(Duration::from_millis(10));
            drop(busy);
        });
        for rank in 2..RANKS {
            assert_eq!(connections.exits(rank, 2), [0, 1], "rank {rank}");
        }
        assert_eq!(connections.exits(1, 1), [0]);
    }
}

#[test]
fn a_rank_that_connects_later_receives_exits_in_their_order() {
    let mut connections = Connections::of(0..RANKS - 1);
    let exits = [5, 2, 6, 0, 4, 1];
    for rank in exits {
        connections.server.note_exit(rank, RankExit::Lost);
    }
    connections.connect(RANKS - 1);
    assert_eq!(connections.exits(RANKS - 1, exits.len()), exits);
}
