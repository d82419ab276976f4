//! The server of the TCP store, on rank 0: one thread for all connections, which never waits for one of them.
//!
//! Foreign connections cost little: there are at most [`MAX_NEWCOMERS`], each for at most [`HANDSHAKE_TIME`], and none
//! of them can send more than a greeting.

mod link;
mod members;
mod newcomer;
mod poll;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::RankExit;

use super::arrivals::Arrivals;
use super::protocol::{MAX_VALUE, StoreMessage, StoreRequest};
use super::random::SystemRandom;
use super::token::Token;
use members::{Member, Members};
use newcomer::{HandshakeState, Newcomer};
use poll::PollSet;

/// Time for a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Most connections that are not admitted, in addition to one for each rank. The oldest one gives way.
const MAX_NEWCOMERS: usize = 64;
/// Connections that are accepted in one turn, so that requests of ranks are served in between: as many as the system
/// keeps.
const ACCEPTED_PER_TURN: usize = 128;
/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest time between two checks of time limits.
const TICK: Duration = Duration::from_millis(100);
/// Most bytes that a rank has sent and the server has not read.
const MAX_INPUT: usize = MAX_VALUE + 1024;
/// Most bytes of all keys and values.
const MAX_STORED: usize = 64 << 20;

/// Settings of the server.
pub struct ServerSettings {
    /// Number of ranks.
    pub world: usize,
    /// Job identifier.
    pub job: String,
    /// Longest wait for a key.
    pub timeout: Duration,
    /// Time without a heartbeat after which a rank is given up.
    pub heartbeat_limit: Duration,
    /// The token of the job.
    pub token: Option<Token>,
    /// Random identifier of the run, which ranks get.
    pub run_id: String,
    /// Gets the ranks that connect.
    pub arrivals: Arc<Arrivals>,
    /// Called on another thread when all ranks are connected.
    pub when_complete: Option<Box<dyn FnOnce() + Send>>,
}

struct Server {
    settings: ServerSettings,
    random: SystemRandom,
    /// Connections that are not admitted, the oldest first.
    newcomers: VecDeque<Newcomer>,
    members: Members,
    /// Replies with the values, by key.
    values: HashMap<Vec<u8>, Arc<[u8]>>,
    /// Bytes of all keys and values.
    stored: usize,
    last_tick: Instant,
    /// True if this process has not served the ranks for longer than they wait for a heartbeat.
    was_paused: bool,
    /// The reply to heartbeats.
    alive: Arc<[u8]>,
}

/// Serves a store on `listener` until all ranks have ended.
pub fn serve_store(listener: TcpListener, settings: ServerSettings) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut server = Server::new(settings)?;
    std::thread::Builder::new().name("store".into()).spawn(move || server.run(&listener)).map(drop)
}

impl Server {
    fn new(settings: ServerSettings) -> io::Result<Server> {
        Ok(Server {
            settings,
            random: SystemRandom::open()?,
            newcomers: VecDeque::new(),
            members: Members::default(),
            values: HashMap::new(),
            stored: 0,
            last_tick: Instant::now(),
            was_paused: false,
            alive: StoreMessage::Alive(Vec::new()).to_bytes().into(),
        })
    }

    fn run(&mut self, listener: &TcpListener) {
        let mut sockets = PollSet::default();
        let mut accept_after = Instant::now();
        while self.members.len() < self.settings.world || !self.members.are_gone() {
            sockets.clear();
            let accepts =
                (Instant::now() >= accept_after).then(|| sockets.add(listener, true, false));
            let ranks: Vec<(u32, usize)> = self
                .members
                .iter_mut()
                .filter_map(|(rank, member)| {
                    let link = member.link.as_ref()?;
                    Some((rank, sockets.add(&link.stream, link.reads(), link.writes())))
                })
                .collect();
            let first = ranks.len() + usize::from(accepts.is_some());
            for newcomer in &self.newcomers {
                sockets.add(&newcomer.link.stream, true, false);
            }
            if sockets.wait(TICK).is_err() {
                // Interrupted by a signal, or out of memory.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            self.was_paused = self.last_tick.elapsed() >= self.settings.heartbeat_limit;
            for (rank, position) in ranks {
                let ready = sockets.readiness(position);
                if ready.readable || ready.writable {
                    self.serve_rank(rank, ready.readable);
                }
            }
            self.advance_newcomers(|index| sockets.readiness(first + index).readable);
            if accepts.is_some_and(|position| sockets.readiness(position).readable)
                && !self.accept_newcomers(listener)
            {
                accept_after = Instant::now() + ACCEPT_PAUSE;
            }
            self.check_times();
        }
    }

    /// Accepts connections. Returns false after an error of the system.
    fn accept_newcomers(&mut self, listener: &TcpListener) -> bool {
        for _ in 0..ACCEPTED_PER_TURN {
            match listener.accept() {
                Ok((stream, _)) => {
                    let max = MAX_NEWCOMERS + self.settings.world;
                    if self.newcomers.len() >= max {
                        self.newcomers.pop_front();
                    }
                    self.newcomers.extend(Newcomer::new(stream, Instant::now()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // One file more for the next connection.
                    self.newcomers.pop_front();
                    return false;
                }
            }
        }
        true
    }

    /// Goes on with the handshakes of those that have sent something.
    fn advance_newcomers(&mut self, is_readable: impl Fn(usize) -> bool) {
        let newcomers = std::mem::take(&mut self.newcomers);
        for (index, mut newcomer) in newcomers.into_iter().enumerate() {
            if newcomer.since.elapsed() > HANDSHAKE_TIME {
                continue;
            }
            if !is_readable(index) {
                self.newcomers.push_back(newcomer);
                continue;
            }
            match newcomer.advance(&self.settings, &self.random) {
                HandshakeState::Waiting => self.newcomers.push_back(newcomer),
                HandshakeState::Closed => {}
                HandshakeState::Proven(rank) => self.admit(rank, newcomer),
            }
        }
    }

    /// Admits a rank, once.
    fn admit(&mut self, rank: u32, mut newcomer: Newcomer) {
        if self.members.contains(rank) {
            newcomer.refuse(&format!(
                "rank {rank} is already connected: two processes have the same rank, or one was started again by hand; \
                 check RANK of all processes, or start all of them again"
            ));
            return;
        }
        let reply = StoreMessage::Done(self.settings.run_id.clone().into_bytes()).to_bytes();
        self.members.admit(rank, newcomer.link, reply);
        self.settings.arrivals.note(rank);
        if self.members.len() == self.settings.world
            && let Some(when_complete) = self.settings.when_complete.take()
        {
            // It may wait for a file system. Without a thread it is left out.
            let _ = std::thread::Builder::new().spawn(when_complete);
        }
        // Requests that came with the proof.
        self.serve_rank(rank, false);
    }

    /// Sends and receives what is possible, and serves the requests of a rank.
    fn serve_rank(&mut self, rank: u32, is_readable: bool) {
        let Some(link) = self.members.get_mut(rank).and_then(|member| member.link.as_mut()) else {
            return;
        };
        let sent = link.flush();
        let space = MAX_INPUT.saturating_sub(link.arrived());
        let received = if is_readable { link.receive(space) } else { Ok(()) };
        // Requests that arrived before the end of the connection count.
        let served = self.serve_requests(rank);
        if sent.and(received).and(served).is_err() {
            if let Some(member) = self.members.get_mut(rank) {
                member.link = None;
            }
            // The rank has given up rank 0, whose process was paused.
            if self.was_paused {
                self.members.note_silence(0, self.settings.heartbeat_limit);
            }
            // Ignored if the rank has announced its exit.
            self.members.note_exit(rank, RankExit::Lost);
        }
    }

    fn serve_requests(&mut self, rank: u32) -> io::Result<()> {
        loop {
            let Some(member) = self.members.get_mut(rank) else { return Ok(()) };
            let Some(link) = member.link.as_mut().filter(|link| link.reads()) else {
                return Ok(());
            };
            let Some(request) = link.read(|bytes| StoreRequest::read(bytes))? else {
                return Ok(());
            };
            let done = || StoreMessage::Done(Vec::new()).to_bytes().into();
            match request {
                StoreRequest::Beat(progress) => {
                    member.beat(progress);
                    member.send(Arc::clone(&self.alive))?;
                }
                // Replies have the order of requests.
                _ if member.wanted.is_some() => return Err(io::ErrorKind::InvalidData.into()),
                StoreRequest::Get(key) => match self.values.get(&key) {
                    Some(reply) => member.send(Arc::clone(reply))?,
                    None => member.wanted = Some((key, Instant::now() + self.settings.timeout)),
                },
                StoreRequest::Set(key, value) => {
                    let reply = if self.store_value(key, value) {
                        done()
                    } else {
                        let reason = "the store is full: it holds 64 MiB".to_owned();
                        StoreMessage::Refused(reason).to_bytes().into()
                    };
                    self.members.get_mut(rank).map_or(Ok(()), |member| member.send(reply))?;
                }
                StoreRequest::Leave(exit) => {
                    self.members.note_exit(rank, exit);
                    self.members.get_mut(rank).map_or(Ok(()), |member| member.send(done()))?;
                }
            }
        }
    }

    /// Stores a value, and sends it to the ranks that wait for it. Returns false if there is no space.
    fn store_value(&mut self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let reply: Arc<[u8]> = StoreMessage::Done(value).to_bytes().into();
        let replaced = self.values.get(&key).map_or(0, |old| old.len() + key.len());
        let stored = self.stored - replaced + reply.len() + key.len();
        if stored > MAX_STORED {
            return false;
        }
        self.stored = stored;
        for (_, member) in self.members.iter_mut() {
            if member.wanted.as_ref().is_some_and(|(wanted, _)| *wanted == key) {
                member.wanted = None;
                // A connection that has failed ends when it is read.
                let _ = member.send(Arc::clone(&reply));
            }
        }
        self.values.insert(key, reply);
        true
    }

    /// Ends waits for keys, and announces ranks without heartbeats.
    fn check_times(&mut self) {
        let now = Instant::now();
        let elapsed = now - self.last_tick;
        if elapsed < TICK {
            return;
        }
        self.last_tick = now;
        self.members.pass_time(elapsed, self.settings.heartbeat_limit);
        self.alive = StoreMessage::Alive(self.members.idle_ranks()).to_bytes().into();
        for (_, member) in self.members.iter_mut() {
            let Member { wanted, .. } = member;
            if wanted.as_ref().is_some_and(|(_, end)| now >= *end) {
                *wanted = None;
                let reply = StoreMessage::Refused("no rank has set it".into()).to_bytes();
                // As above.
                let _ = member.send(reply.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
