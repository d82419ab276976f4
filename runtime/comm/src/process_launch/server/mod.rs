//! The server of the TCP store, on rank 0: a thread that accepts connections, and one for each of them.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::RankExit;

use super::keep_alive::enable_keep_alive;
use super::protocol::{
    DONE, EXITED, GET, LEAVE, MAGIC, REFUSED, SET, read_byte, read_bytes, read_exit, read_number,
    write_bytes, write_exit, write_number,
};
use super::rank_assignment::RankAssignment;

/// Timeout of the handshake of a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a write to a rank.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The state that the connections share.
struct Server {
    assignment: RankAssignment,
    timeout: Duration,
    state: Mutex<StoreState>,
    changed: Condvar,
    /// Lock held while the exit of a rank is announced: every rank receives exits in one order, so a failure before
    /// those that follow from it.
    announcing: Mutex<()>,
}

#[derive(Default)]
struct StoreState {
    values: HashMap<Vec<u8>, Vec<u8>>,
    ranks: HashMap<u32, ConnectedRank>,
    /// Ranks that have exited, in the order of their exits.
    exits: Vec<(u32, RankExit)>,
}

/// The sending half of a connection, shared by replies and notifications.
type Sender = Arc<Mutex<TcpStream>>;

/// A refused connection, and the reason.
type Refusal = (TcpStream, String);

/// A rank that is connected, or was.
struct ConnectedRank {
    out: Sender,
    has_exited: bool,
}

/// Serves a store on `listener` until the process exits. A get waits for its key for at most `timeout`.
pub fn serve_store(
    listener: TcpListener,
    assignment: RankAssignment,
    timeout: Duration,
) -> io::Result<()> {
    let server = Arc::new(Server::new(assignment, timeout));
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // A failed connection is reported to the other ranks as the exit of its rank.
            let serve = move || drop(server.serve_connection(stream));
            let _ = std::thread::Builder::new().name("store connection".into()).spawn(serve);
        }
    };
    std::thread::Builder::new().name("store".into()).spawn(accept).map(drop)
}

impl Server {
    fn new(assignment: RankAssignment, timeout: Duration) -> Self {
        let (state, changed, announcing) = (Mutex::default(), Condvar::new(), Mutex::default());
        Server { assignment, timeout, state, changed, announcing }
    }

    fn serve_connection(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        enable_keep_alive(&stream);
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let mut input = BufReader::new(stream.try_clone()?);
        let (rank, out) = match self.handshake(&mut input, stream) {
            Ok(admitted) => admitted,
            Err((mut stream, reason)) => {
                return send_reply(&mut stream, REFUSED, reason.as_bytes());
            }
        };
        let outcome = self.serve_rank(rank, &mut input, &out);
        // Ignored if the rank has announced its exit.
        self.note_exit(rank, RankExit::Lost);
        outcome
    }

    /// Reads the handshake, and admits or refuses the connection.
    fn handshake(
        &self,
        input: &mut impl Read,
        stream: TcpStream,
    ) -> Result<(u32, Sender), Refusal> {
        let mut read = || -> io::Result<Option<(Vec<u8>, u32, u32)>> {
            let mut magic = [0; 8];
            input.read_exact(&mut magic)?;
            if magic != MAGIC {
                return Ok(None);
            }
            Ok(Some((read_bytes(input)?, read_number(input)?, read_number(input)?)))
        };
        match read() {
            Err(error) => Err((stream, error.to_string())),
            Ok(None) => {
                Err((stream, "it uses another protocol: run one version on all ranks".into()))
            }
            Ok(Some((job, rank, world))) => self.admit_rank(&job, rank, world, stream),
        }
    }

    /// Admits a rank, once.
    fn admit_rank(
        &self,
        job: &[u8],
        rank: u32,
        world: u32,
        stream: TcpStream,
    ) -> Result<(u32, Sender), Refusal> {
        let own_world = self.assignment.world;
        if job != self.assignment.job.as_bytes() {
            let reason = "it belongs to another job: stop old processes of other runs, or choose another MASTER_PORT";
            return Err((stream, reason.into()));
        }
        if world as usize != own_world {
            return Err((stream, format!("rank 0 expects {own_world} ranks, rank {rank} {world}")));
        }
        let mut state = self.lock_state();
        if rank as usize >= own_world || state.ranks.contains_key(&rank) {
            let reason = format!(
                "rank {rank} is already connected: two processes have the same rank; check RANK of all processes"
            );
            return Err((stream, reason));
        }
        let mut notifications = Vec::new();
        for (other, exit) in &state.exits {
            // Writing to a vector does not fail.
            let _ = write_exit_notification(&mut notifications, *other, exit);
        }
        let out = Arc::new(Mutex::new(stream));
        // Locked before other ranks can notify it: the reply comes first.
        let mut sender = out.lock().unwrap_or_else(PoisonError::into_inner);
        state.ranks.insert(rank, ConnectedRank { out: Arc::clone(&out), has_exited: false });
        drop(state);
        // A rank that cannot be reached is found to be lost by the next read.
        let _ = send_reply(&mut sender, DONE, &[]).and_then(|()| sender.write_all(&notifications));
        drop(sender);
        Ok((rank, out))
    }

    fn serve_rank(
        &self,
        rank: u32,
        input: &mut BufReader<TcpStream>,
        out: &Mutex<TcpStream>,
    ) -> io::Result<()> {
        input.get_ref().set_read_timeout(None)?;
        let send = |kind, bytes: &[u8]| {
            send_reply(&mut out.lock().unwrap_or_else(PoisonError::into_inner), kind, bytes)
        };
        loop {
            match read_byte(input)? {
                SET => {
                    let (key, value) = (read_bytes(input)?, read_bytes(input)?);
                    self.lock_state().values.insert(key, value);
                    self.changed.notify_all();
                    send(DONE, &[])?;
                }
                GET => match self.wait_for_value(&read_bytes(input)?) {
                    Some(value) => send(DONE, &value)?,
                    None => send(REFUSED, b"no rank has set it")?,
                },
                LEAVE => {
                    self.note_exit(rank, read_exit(input)?);
                    send(DONE, &[])?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Notes the exit of a rank, unless it is known, and notifies the others.
    fn note_exit(&self, rank: u32, exit: RankExit) {
        let _announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<_> = {
            let mut state = self.lock_state();
            let Some(own) = state.ranks.get_mut(&rank).filter(|own| !own.has_exited) else {
                return;
            };
            own.has_exited = true;
            state.exits.push((rank, exit.clone()));
            let others = state.ranks.values().filter(|known| !known.has_exited);
            others.map(|known| Arc::clone(&known.out)).collect()
        };
        for out in others {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            // A rank that cannot be notified has exited, or its own connection fails.
            let _ = write_exit_notification(&mut *out, rank, &exit);
        }
    }

    /// Waits for the value of `key`, for at most the timeout.
    fn wait_for_value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let deadline = Instant::now() + self.timeout;
        let mut state = self.lock_state();
        loop {
            if let Some(value) = state.values.get(key) {
                return Some(value.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send_reply(out: &mut TcpStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut message = vec![kind];
    write_bytes(&mut message, bytes)?;
    out.write_all(&message)
}

/// Writes the exit notification of a rank as one message.
fn write_exit_notification(out: &mut impl Write, rank: u32, exit: &RankExit) -> io::Result<()> {
    let mut message = vec![EXITED];
    write_number(&mut message, rank)?;
    write_exit(&mut message, exit)?;
    out.write_all(&message)
}

#[cfg(test)]
mod tests;
