//! What ranks leave for each other.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::comm::{Peers, RankExit};

use super::error::StoreError;
use super::keep_alive::keep_alive;
use super::place::Place;
use super::protocol::{
    DONE, ENDED, GET, GREETING, LEAVE, REFUSED, SET, read_byte, read_bytes, read_exit, read_number,
    write_bytes, write_exit, write_number,
};
use super::server::serve;

/// How often a rank looks whether rank 0 listens.
const RETRY: Duration = Duration::from_millis(50);
/// How long rank 0 may take to let a rank in.
const ADMISSION: Duration = Duration::from_secs(20);
/// What an answer may take longer than the store itself waits.
const SLACK: Duration = Duration::from_secs(10);
/// How long a rank that ends waits until the others are told.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection to the store of a job, which rank 0 keeps. Bytes that one rank sets under a key, every rank can get; and
/// every rank hears of the end of another.
#[derive(Debug)]
pub struct Store {
    connection: Mutex<Connection>,
    heard: Arc<Heard>,
    place: Place,
    timeout: Duration,
}

#[derive(Debug)]
struct Connection {
    out: TcpStream,
    /// Of a thread that reads.
    answers: Receiver<Answer>,
}

/// The bytes of an answer, or why there are none.
type Answer = Result<Vec<u8>, String>;

/// What came unasked.
#[derive(Debug, Default)]
struct Heard {
    /// The first rank that failed or was lost.
    lost: OnceLock<(usize, RankExit)>,
    /// Whether rank 0 has said that it ends, and takes the store with it.
    is_over: OnceLock<()>,
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
        match admission(stream, place, ADMISSION.min(timeout + SLACK)) {
            Err(error) => Err(StoreError::Stranger { rank, address, error }),
            Ok((_, _, Err(reason))) => Err(StoreError::Refused { rank, address, reason }),
            Ok((input, out, Ok(_))) => {
                let heard = Arc::new(Heard::default());
                let (sender, answers) = channel();
                let reader = {
                    let heard = Arc::clone(&heard);
                    move || heard.listen(rank, input, &sender)
                };
                std::thread::Builder::new()
                    .name("store reader".into())
                    .spawn(reader)
                    .map_err(|error| StoreError::Lost { rank, address, error })?;
                let connection = Mutex::new(Connection { out, answers });
                Ok(Store { connection, heard, place: place.clone(), timeout })
            }
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
        let request = || -> io::Result<Vec<u8>> {
            let mut request = vec![kind];
            parts.iter().try_for_each(|part| write_bytes(&mut request, part))?;
            Ok(request)
        };
        let answer = request().and_then(|request| self.exchange(&request, self.timeout + SLACK));
        answer.map_err(|error| {
            let Place { rank, master: address, .. } = self.place.clone();
            StoreError::Lost { rank, address, error }
        })
    }

    fn exchange(&self, request: &[u8], patience: Duration) -> io::Result<Answer> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.out.write_all(request)?;
        connection
            .answers
            .recv_timeout(patience)
            .map_err(|error| io::Error::other(error.to_string()))
    }

    fn missing(&self, key: &str, reason: String) -> StoreError {
        let (rank, key, waited) = (self.place.rank, key.to_string(), self.timeout);
        StoreError::Missing { rank, key, waited, reason }
    }
}

impl Peers for Store {
    fn failed_peer(&self) -> Option<(usize, RankExit)> {
        self.heard.lost.get().cloned()
    }

    fn announce_exit(&self, exit: &RankExit) {
        let mut request = vec![LEAVE];
        if write_exit(&mut request, exit).is_ok() {
            // Where rank 0 is gone, there is nobody to tell.
            let _ = self.exchange(&request, FAREWELL);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Ends the thread that reads; one that is broken has ended.
        let _ = connection.out.shutdown(Shutdown::Both);
    }
}

impl Heard {
    /// Reads until the connection ends, as rank 0 does, or this rank.
    fn listen(&self, own_rank: usize, mut input: BufReader<TcpStream>, answers: &Sender<Answer>) {
        while let Ok(Some(answer)) = self.next(&mut input) {
            if answers.send(answer).is_err() {
                return;
            }
        }
        if own_rank != 0 && self.is_over.get().is_none() {
            self.lost.get_or_init(|| (0, RankExit::Lost));
        }
    }

    /// The next answer; none after what is no message.
    fn next(&self, input: &mut BufReader<TcpStream>) -> io::Result<Option<Answer>> {
        loop {
            match read_byte(input)? {
                ENDED => match (read_number(input)? as usize, read_exit(input)?) {
                    (0, RankExit::Returned) => drop(self.is_over.set(())),
                    (_, RankExit::Returned) => {}
                    ended => drop(self.lost.set(ended)),
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

/// Says who this rank is, and gives the two ways of the connection and the answer.
fn admission(
    mut out: TcpStream,
    place: &Place,
    patience: Duration,
) -> io::Result<(BufReader<TcpStream>, TcpStream, Answer)> {
    out.set_nodelay(true)?;
    keep_alive(&out);
    out.set_read_timeout(Some(patience))?;
    let mut input = BufReader::new(out.try_clone()?);
    let mut greeting = GREETING.to_vec();
    write_bytes(&mut greeting, place.job.as_bytes())?;
    write_number(&mut greeting, place.rank as u32)?;
    write_number(&mut greeting, place.world as u32)?;
    out.write_all(&greeting)?;
    let answer = match (read_byte(&mut input)?, read_bytes(&mut input)?) {
        (DONE, bytes) => Ok(bytes),
        (REFUSED, reason) => Err(String::from_utf8_lossy(&reason).into_owned()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks otherwise")),
    };
    out.set_read_timeout(None)?;
    Ok((input, out, answer))
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
