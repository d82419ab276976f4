//! What ranks leave for each other.

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::place::Place;
use super::protocol::{DONE, GET, GREETING, SET, read_byte, read_bytes, write_bytes, write_number};
use super::server::serve;

/// How often a rank looks whether rank 0 listens.
const RETRY: Duration = Duration::from_millis(50);
/// What an answer may take longer than the store itself waits.
const SLACK: Duration = Duration::from_secs(10);

/// A connection to the store of a job, which rank 0 keeps. Bytes that one rank sets under a key, every rank can get.
#[derive(Debug)]
pub struct Store {
    connection: Mutex<Connection>,
    place: Place,
    timeout: Duration,
}

#[derive(Debug)]
struct Connection {
    input: BufReader<TcpStream>,
    out: TcpStream,
}

/// Why ranks did not find each other.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at {address}: {error}; choose another MASTER_PORT, or end what uses this one"
    )]
    Listen {
        /// Where.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// Rank 0 was not reached.
    #[error(
        "rank {rank} did not reach rank 0 at {address} within {} s: {error}; is MASTER_ADDR the host of rank 0, and \
         MASTER_PORT open on it?", waited.as_secs_f64()
    )]
    Connect {
        /// Who tried.
        rank: usize,
        /// Where.
        address: String,
        /// How long.
        waited: Duration,
        /// What the last attempt gave.
        error: io::Error,
    },
    /// The store does not let this rank in.
    #[error("rank 0 at {address} refuses rank {rank}: {reason}")]
    Refused {
        /// Who was refused.
        rank: usize,
        /// By whom.
        address: String,
        /// Its reason.
        reason: String,
    },
    /// A key that nobody has set.
    #[error("rank {rank} waited {} s for `{key}`: {reason}; has a rank failed, or not been started?", waited.as_secs_f64())]
    Missing {
        /// Who waited.
        rank: usize,
        /// For what.
        key: String,
        /// How long.
        waited: Duration,
        /// What the store said.
        reason: String,
    },
    /// The connection broke.
    #[error("rank {rank} has lost rank 0 at {address}: {error}")]
    Lost {
        /// Who lost it.
        rank: usize,
        /// Where it was.
        address: String,
        /// What the system said.
        error: io::Error,
    },
}

impl Store {
    /// Opens the store of the job: rank 0 makes it. Waits for rank 0, and later for keys, for `timeout` at most.
    ///
    /// # Errors
    /// Where rank 0 cannot listen, is not reached, or takes this process for one of another job.
    pub fn open(place: &Place, timeout: Duration) -> Result<Store, StoreError> {
        if place.rank == 0 {
            let address = place.master.clone();
            let listen = |error| StoreError::Listen { address, error };
            let port = place.master.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            // On every interface: the name of the host need not be that of the one by which others come.
            let any = if place.master.starts_with('[') { "::" } else { "0.0.0.0" };
            let listener = TcpListener::bind((any, port.unwrap_or(0)));
            let served = listener.and_then(|listener| serve(listener, place.clone(), timeout));
            served.map_err(listen)?;
        }
        Store::connect(place, timeout)
    }

    /// Joins a store that listens already, or will within `timeout`.
    fn connect(place: &Place, timeout: Duration) -> Result<Store, StoreError> {
        let (rank, address, start) = (place.rank, place.master.clone(), Instant::now());
        let stream = loop {
            match reach(&address, timeout) {
                Ok(stream) => break stream,
                Err(error) if start.elapsed() >= timeout => {
                    return Err(StoreError::Connect { rank, address, waited: timeout, error });
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        };
        let place = place.clone();
        let lost = |error| StoreError::Lost { rank, address: address.clone(), error };
        let mut connection = Connection::new(stream, timeout + SLACK).map_err(lost)?;
        let admission = connection.greet(&place).map_err(lost)?;
        let connection = Mutex::new(connection);
        match admission {
            Ok(_) => Ok(Store { connection, place, timeout }),
            Err(reason) => Err(StoreError::Refused { rank, address, reason }),
        }
    }

    /// Who this process is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Leaves `value` under `key`.
    ///
    /// # Errors
    /// When the connection breaks, or they are longer than 1 MiB.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.ask(SET, &[key.as_bytes(), value])?
            .map(drop)
            .map_err(|reason| self.missing(key, reason))
    }

    /// What a rank has left under `key`; waits for it.
    ///
    /// # Errors
    /// When nobody sets it in time, or the connection breaks.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.ask(GET, &[key.as_bytes()])?.map_err(|reason| self.missing(key, reason))
    }

    /// Returns when every rank has called it with this `name`, once.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn barrier(&self, name: &str) -> Result<(), StoreError> {
        self.set(&format!("barrier {name} {}", self.place.rank), &[])?;
        (0..self.place.world)
            .try_for_each(|rank| self.get(&format!("barrier {name} {rank}")).map(drop))
    }

    fn ask(&self, kind: u8, parts: &[&[u8]]) -> Result<Answer, StoreError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.ask(kind, parts).map_err(|error| {
            let Place { rank, master: address, .. } = self.place.clone();
            StoreError::Lost { rank, address, error }
        })
    }

    fn missing(&self, key: &str, reason: String) -> StoreError {
        let (rank, key, waited) = (self.place.rank, key.to_string(), self.timeout);
        StoreError::Missing { rank, key, waited, reason }
    }
}

/// The bytes of an answer, or why there are none.
type Answer = Result<Vec<u8>, String>;

impl Connection {
    fn new(stream: TcpStream, timeout: Duration) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Connection { input: BufReader::new(stream.try_clone()?), out: stream })
    }

    fn greet(&mut self, place: &Place) -> io::Result<Answer> {
        let mut greeting = GREETING.to_vec();
        write_bytes(&mut greeting, place.job.as_bytes())?;
        write_number(&mut greeting, place.rank as u32)?;
        write_number(&mut greeting, place.world as u32)?;
        self.out.write_all(&greeting)?;
        self.answer()
    }

    fn ask(&mut self, kind: u8, parts: &[&[u8]]) -> io::Result<Answer> {
        let mut request = vec![kind];
        parts.iter().try_for_each(|part| write_bytes(&mut request, part))?;
        self.out.write_all(&request)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let input: &mut dyn Read = &mut self.input;
        let mut input = input;
        let (kind, bytes) = (read_byte(&mut input)?, read_bytes(&mut input)?);
        Ok(match kind {
            DONE => Ok(bytes),
            _ => Err(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }
}

fn reach(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout.max(RETRY)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
