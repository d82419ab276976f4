//! The store of rank 0: a thread that takes connections, and one for each of them.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::place::Place;
use super::protocol::{
    DONE, GET, GREETING, REFUSED, SET, read_byte, read_bytes, read_number, write_bytes,
};

/// How long a connection may take to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(10);

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
    ranks: HashSet<u32>,
}

/// Serves a store on `listener` until the process ends. A rank that asks for a key waits for it for `timeout` at most.
pub fn serve(listener: TcpListener, place: Place, timeout: Duration) -> io::Result<()> {
    let (state, changed) = (Mutex::default(), Condvar::new());
    let server = Arc::new(Server { place, timeout, state, changed });
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // A connection that fails is that of a rank that ends, which its launcher notices.
            let serve = move || drop(server.attend(stream));
            let _ = std::thread::Builder::new().name("store connection".into()).spawn(serve);
        }
    };
    std::thread::Builder::new().name("store".into()).spawn(accept).map(drop)
}

impl Server {
    fn attend(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING_TIME))?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        let mut greeting = [0; 8];
        io::Read::read_exact(&mut input, &mut greeting)?;
        if greeting != GREETING {
            return answer(
                &mut out,
                REFUSED,
                b"it speaks another protocol: run one version on all ranks",
            );
        }
        let job = read_bytes(&mut input)?;
        let (rank, world) = (read_number(&mut input)?, read_number(&mut input)?);
        if let Err(reason) = self.admit(&job, rank, world) {
            return answer(&mut out, REFUSED, reason.as_bytes());
        }
        answer(&mut out, DONE, &[])?;
        out.set_read_timeout(None)?;
        loop {
            match read_byte(&mut input)? {
                SET => {
                    let (key, value) = (read_bytes(&mut input)?, read_bytes(&mut input)?);
                    self.lock().values.insert(key, value);
                    self.changed.notify_all();
                    answer(&mut out, DONE, &[])?;
                }
                GET => {
                    let key = read_bytes(&mut input)?;
                    match self.value(&key) {
                        Some(value) => answer(&mut out, DONE, &value)?,
                        None => answer(&mut out, REFUSED, b"no rank has set it")?,
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Lets a rank in, once.
    fn admit(&self, job: &[u8], rank: u32, world: u32) -> Result<(), String> {
        if job != self.place.job.as_bytes() {
            return Err(
                "it belongs to another job: is an old process of another run still there, or is \
                        MASTER_PORT used twice?"
                    .into(),
            );
        }
        let own_world = self.place.world;
        if world as usize != own_world {
            return Err(format!("rank 0 expects {own_world} ranks, rank {rank} {world}"));
        }
        if rank as usize >= own_world || !self.lock().ranks.insert(rank) {
            return Err(format!(
                "there is a rank {rank} already: two processes have the same rank"
            ));
        }
        Ok(())
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
