//! The store of rank 0: a thread that takes connections, and one for each of them.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::comm::RankExit;

use super::keep_alive::keep_alive;
use super::place::Place;
use super::protocol::{
    DONE, ENDED, GET, GREETING, LEAVE, REFUSED, SET, read_byte, read_bytes, read_exit, read_number,
    write_bytes, write_exit, write_number,
};

/// How long a connection may take to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// How long a rank may take to hear what it is told.
const TELLING_TIME: Duration = Duration::from_secs(5);

/// What the connections share.
struct Server {
    place: Place,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    values: HashMap<Vec<u8>, Vec<u8>>,
    ranks: HashMap<u32, Rank>,
}

/// The way to a rank, which answers and word of other ranks take one after the other.
type Way = Arc<Mutex<TcpStream>>;

/// A connection that is not let in, and why not.
type Stranger = (TcpStream, String);

/// A rank that was let in.
struct Rank {
    out: Way,
    ended: Option<RankExit>,
}

/// Serves a store on `listener` until the process ends. A rank that asks for a key waits for it for `timeout` at most.
pub fn serve(listener: TcpListener, place: Place, timeout: Duration) -> io::Result<()> {
    let (state, changed) = (Mutex::default(), Condvar::new());
    let server = Arc::new(Server { place, timeout, state, changed });
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // A connection that fails is that of a rank that ends, of which the others are told.
            let serve = move || drop(server.attend(stream));
            let _ = std::thread::Builder::new().name("store connection".into()).spawn(serve);
        }
    };
    std::thread::Builder::new().name("store".into()).spawn(accept).map(drop)
}

impl Server {
    fn attend(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        keep_alive(&stream);
        stream.set_read_timeout(Some(GREETING_TIME))?;
        stream.set_write_timeout(Some(TELLING_TIME))?;
        let mut input = BufReader::new(stream.try_clone()?);
        let (rank, out) = match self.greet(&mut input, stream) {
            Ok(admitted) => admitted,
            Err((mut stream, reason)) => return answer(&mut stream, REFUSED, reason.as_bytes()),
        };
        let outcome = self.serve_rank(rank, &mut input, &out);
        // Nothing where it has said how it ended.
        self.note_end(rank, RankExit::Lost);
        outcome
    }

    /// Lets a connection in, or gives it back with the reason why not.
    fn greet(&self, input: &mut impl Read, stream: TcpStream) -> Result<(u32, Way), Stranger> {
        let mut read = || -> io::Result<Option<(Vec<u8>, u32, u32)>> {
            let mut greeting = [0; 8];
            input.read_exact(&mut greeting)?;
            if greeting != GREETING {
                return Ok(None);
            }
            Ok(Some((read_bytes(input)?, read_number(input)?, read_number(input)?)))
        };
        match read() {
            Err(error) => Err((stream, error.to_string())),
            Ok(None) => {
                Err((stream, "it speaks another protocol: run one version on all ranks".into()))
            }
            Ok(Some((job, rank, world))) => self.admit(&job, rank, world, stream),
        }
    }

    /// Lets a rank in, once.
    fn admit(
        &self,
        job: &[u8],
        rank: u32,
        world: u32,
        stream: TcpStream,
    ) -> Result<(u32, Way), Stranger> {
        let own_world = self.place.world;
        if job != self.place.job.as_bytes() {
            let reason = "it belongs to another job: is an old process of another run still there, or is MASTER_PORT used \
                          twice?";
            return Err((stream, reason.into()));
        }
        if world as usize != own_world {
            return Err((stream, format!("rank 0 expects {own_world} ranks, rank {rank} {world}")));
        }
        let mut state = self.lock();
        if rank as usize >= own_world || state.ranks.contains_key(&rank) {
            let reason =
                format!("there is a rank {rank} already: two processes have the same rank");
            return Err((stream, reason));
        }
        let mut news = Vec::new();
        for (other, known) in &state.ranks {
            if let Some(exit) = &known.ended {
                // Writing to a vector does not fail.
                let _ = write_end(&mut news, *other, exit);
            }
        }
        let out = Arc::new(Mutex::new(stream));
        // Taken before others can tell it something: the answer comes first.
        let mut way = out.lock().unwrap_or_else(PoisonError::into_inner);
        state.ranks.insert(rank, Rank { out: Arc::clone(&out), ended: None });
        drop(state);
        // One that cannot be reached is found to be lost when it is read from.
        let _ = answer(&mut way, DONE, &[]).and_then(|()| way.write_all(&news));
        drop(way);
        Ok((rank, out))
    }

    fn serve_rank(
        &self,
        rank: u32,
        input: &mut BufReader<TcpStream>,
        out: &Mutex<TcpStream>,
    ) -> io::Result<()> {
        input.get_ref().set_read_timeout(None)?;
        let reply = |kind, bytes: &[u8]| {
            answer(&mut out.lock().unwrap_or_else(PoisonError::into_inner), kind, bytes)
        };
        loop {
            match read_byte(input)? {
                SET => {
                    let (key, value) = (read_bytes(input)?, read_bytes(input)?);
                    self.lock().values.insert(key, value);
                    self.changed.notify_all();
                    reply(DONE, &[])?;
                }
                GET => match self.value(&read_bytes(input)?) {
                    Some(value) => reply(DONE, &value)?,
                    None => reply(REFUSED, b"no rank has set it")?,
                },
                LEAVE => {
                    self.note_end(rank, read_exit(input)?);
                    reply(DONE, &[])?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Notes how a rank has ended, unless that is known, and tells the others.
    fn note_end(&self, rank: u32, exit: RankExit) {
        let others: Vec<_> = {
            let mut state = self.lock();
            let Some(own) = state.ranks.get_mut(&rank).filter(|own| own.ended.is_none()) else {
                return;
            };
            own.ended = Some(exit.clone());
            let others = state
                .ranks
                .iter()
                .filter(|(other, known)| **other != rank && known.ended.is_none());
            others.map(|(_, known)| Arc::clone(&known.out)).collect()
        };
        for out in others {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            // One that cannot be told has ended, or is told by its own connection.
            let _ = write_end(&mut *out, rank, &exit);
        }
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let deadline = Instant::now() + self.timeout;
        let mut state = self.lock();
        loop {
            if let Some(value) = state.values.get(key) {
                return Some(value.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer(out: &mut TcpStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut message = vec![kind];
    write_bytes(&mut message, bytes)?;
    out.write_all(&message)
}

/// Word of the end of a rank, as one message.
fn write_end(out: &mut impl Write, rank: u32, exit: &RankExit) -> io::Result<()> {
    let mut message = vec![ENDED];
    write_number(&mut message, rank)?;
    write_exit(&mut message, exit)?;
    out.write_all(&message)
}
