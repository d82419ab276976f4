//! The TCP store: a key-value store for rendezvous, and failure detection between processes.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{Peers, RankExit};

use super::error::StoreError;
use super::keep_alive::enable_keep_alive;
use super::protocol::{
    DONE, EXITED, GET, LEAVE, MAGIC, REFUSED, SET, read_byte, read_bytes, read_exit, read_number,
    write_bytes, write_exit, write_number,
};
use super::rank_assignment::RankAssignment;
use super::server::serve_store;

/// Time between attempts to connect to rank 0.
const RETRY_PERIOD: Duration = Duration::from_millis(50);
/// Timeout of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that a reply may take in addition to the timeout of the store.
const REPLY_MARGIN: Duration = Duration::from_secs(10);
/// Time that a rank waits for the announcement of its exit.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the TCP store of a job, which rank 0 serves: a key-value store for rendezvous, and failure detection
/// between the ranks.
#[derive(Debug)]
pub struct Store {
    connection: Mutex<Connection>,
    exits: Arc<ExitNotifications>,
    assignment: RankAssignment,
    timeout: Duration,
}

#[derive(Debug)]
struct Connection {
    out: TcpStream,
    /// Replies from the reader thread.
    replies: Receiver<Reply>,
}

/// The bytes of a reply, or the reason of a refusal.
type Reply = Result<Vec<u8>, String>;

/// Exit notifications from the store.
#[derive(Debug, Default)]
struct ExitNotifications {
    /// The first rank that failed or was lost.
    first_failure: OnceLock<(usize, RankExit)>,
    /// Set when rank 0 has returned, which ends the store.
    store_ended: OnceLock<()>,
}

impl Store {
    /// Connects to the store of the job, which rank 0 creates. Waits for rank 0, and later for keys, for at most
    /// `timeout`.
    ///
    /// # Errors
    /// If rank 0 cannot listen, cannot be reached, or refuses this process as one of another job.
    pub fn open(assignment: &RankAssignment, timeout: Duration) -> Result<Store, StoreError> {
        if assignment.rank == 0 {
            let address = assignment.master.clone();
            let listen = |error| StoreError::Listen { address, error };
            let port =
                assignment.master.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            // On every interface: the name of the host may belong to another interface than the one that others use.
            let any = if assignment.master.starts_with('[') { "::" } else { "0.0.0.0" };
            let listener = TcpListener::bind((any, port.unwrap_or(0)));
            let served =
                listener.and_then(|listener| serve_store(listener, assignment.clone(), timeout));
            served.map_err(listen)?;
        }
        Store::connect(assignment, timeout)
    }

    /// Connects to a store that listens already, or will within `timeout`.
    fn connect(assignment: &RankAssignment, timeout: Duration) -> Result<Store, StoreError> {
        let (rank, address, start) = (assignment.rank, assignment.master.clone(), Instant::now());
        let stream = loop {
            match connect_to(&address, timeout) {
                Ok(stream) => break stream,
                Err(error) if start.elapsed() >= timeout => {
                    return Err(StoreError::Connect { rank, address, waited: timeout, error });
                }
                Err(_) => std::thread::sleep(RETRY_PERIOD),
            }
        };
        match handshake(stream, assignment, HANDSHAKE_TIMEOUT.min(timeout + REPLY_MARGIN)) {
            Err(error) => Err(StoreError::NotAStore { rank, address, error }),
            Ok((_, _, Err(reason))) => Err(StoreError::Refused { rank, address, reason }),
            Ok((input, out, Ok(_))) => {
                let exits = Arc::new(ExitNotifications::default());
                let (sender, replies) = channel();
                let reader = {
                    let exits = Arc::clone(&exits);
                    move || exits.read_loop(rank, input, &sender)
                };
                std::thread::Builder::new()
                    .name("store reader".into())
                    .spawn(reader)
                    .map_err(|error| StoreError::Lost { rank, address, error })?;
                let connection = Mutex::new(Connection { out, replies });
                Ok(Store { connection, exits, assignment: assignment.clone(), timeout })
            }
        }
    }

    /// The rank assignment of this process.
    pub fn assignment(&self) -> &RankAssignment {
        &self.assignment
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// If the connection breaks, or they are longer than 1 MiB.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.request(SET, &[key.as_bytes(), value])?
            .map(drop)
            .map_err(|reason| self.missing_key(key, reason))
    }

    /// Returns the value of `key`, after waiting for a rank to set it.
    ///
    /// # Errors
    /// If no rank sets it in time, or the connection breaks.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.request(GET, &[key.as_bytes()])?.map_err(|reason| self.missing_key(key, reason))
    }

    /// Returns when every rank has called it with this `name`, once.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn barrier(&self, name: &str) -> Result<(), StoreError> {
        self.set(&format!("barrier {name} {}", self.assignment.rank), &[])?;
        (0..self.assignment.world)
            .try_for_each(|rank| self.get(&format!("barrier {name} {rank}")).map(drop))
    }

    fn request(&self, kind: u8, parts: &[&[u8]]) -> Result<Reply, StoreError> {
        let request = || -> io::Result<Vec<u8>> {
            let mut request = vec![kind];
            parts.iter().try_for_each(|part| write_bytes(&mut request, part))?;
            Ok(request)
        };
        let reply =
            request().and_then(|request| self.exchange(&request, self.timeout + REPLY_MARGIN));
        reply.map_err(|error| {
            let RankAssignment { rank, master: address, .. } = self.assignment.clone();
            StoreError::Lost { rank, address, error }
        })
    }

    fn exchange(&self, request: &[u8], timeout: Duration) -> io::Result<Reply> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.out.write_all(request)?;
        connection
            .replies
            .recv_timeout(timeout)
            .map_err(|error| io::Error::other(error.to_string()))
    }

    fn missing_key(&self, key: &str, reason: String) -> StoreError {
        let (rank, key, waited) = (self.assignment.rank, key.to_string(), self.timeout);
        StoreError::Missing { rank, key, waited, reason }
    }
}

impl Peers for Store {
    fn failed_peer(&self) -> Option<(usize, RankExit)> {
        self.exits.first_failure.get().cloned()
    }

    fn announce_exit(&self, exit: &RankExit) {
        let mut request = vec![LEAVE];
        if write_exit(&mut request, exit).is_ok() {
            // If rank 0 is gone, the announcement is not needed.
            let _ = self.exchange(&request, ANNOUNCE_TIMEOUT);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Ends the reader thread; that of a broken connection has ended.
        let _ = connection.out.shutdown(Shutdown::Both);
    }
}

impl ExitNotifications {
    /// Reads until the connection ends: on the exit of rank 0, or of this rank.
    fn read_loop(&self, own_rank: usize, mut input: BufReader<TcpStream>, replies: &Sender<Reply>) {
        while let Ok(Some(reply)) = self.read_reply(&mut input) {
            if replies.send(reply).is_err() {
                return;
            }
        }
        if own_rank != 0 && self.store_ended.get().is_none() {
            self.first_failure.get_or_init(|| (0, RankExit::Lost));
        }
    }

    /// Returns the next reply, and notes notifications before it; `None` after an invalid message.
    fn read_reply(&self, input: &mut BufReader<TcpStream>) -> io::Result<Option<Reply>> {
        loop {
            match read_byte(input)? {
                EXITED => match (read_number(input)? as usize, read_exit(input)?) {
                    (0, RankExit::Returned) => drop(self.store_ended.set(())),
                    (_, RankExit::Returned) => {}
                    failure => drop(self.first_failure.set(failure)),
                },
                DONE => return Ok(Some(Ok(read_bytes(input)?))),
                REFUSED => {
                    let reason = String::from_utf8_lossy(&read_bytes(input)?).into_owned();
                    return Ok(Some(Err(reason)));
                }
                _ => return Ok(None),
            }
        }
    }
}

/// Introduces this rank, and returns both halves of the connection and the reply.
fn handshake(
    mut out: TcpStream,
    assignment: &RankAssignment,
    timeout: Duration,
) -> io::Result<(BufReader<TcpStream>, TcpStream, Reply)> {
    out.set_nodelay(true)?;
    enable_keep_alive(&out);
    out.set_read_timeout(Some(timeout))?;
    let mut input = BufReader::new(out.try_clone()?);
    let mut greeting = MAGIC.to_vec();
    write_bytes(&mut greeting, assignment.job.as_bytes())?;
    write_number(&mut greeting, assignment.rank as u32)?;
    write_number(&mut greeting, assignment.world as u32)?;
    out.write_all(&greeting)?;
    let reply = match (read_byte(&mut input)?, read_bytes(&mut input)?) {
        (DONE, bytes) => Ok(bytes),
        (REFUSED, reason) => Err(String::from_utf8_lossy(&reason).into_owned()),
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it does not use the protocol of the store",
            ));
        }
    };
    out.set_read_timeout(None)?;
    Ok((input, out, reply))
}

/// Connects to the first address of a host that accepts.
fn connect_to(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout.max(RETRY_PERIOD)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
