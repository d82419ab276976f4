//! The TCP store: a key-value store for rendezvous, and failure detection between processes.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{Peers, RankExit, RankProgress};

use super::arrivals::Arrivals;
use super::error::StoreError;
use super::heartbeat::{Heartbeats, ReadProgress};
use super::listen::{assignment_on_host, listen};
use super::notices::{Notices, StoreReply};
use super::protocol::StoreRequest;
use super::random::random_id;
use super::rank_assignment::RankAssignment;
use super::rendezvous::{Admission, join};
use super::server::{ServerSettings, serve_store};
use super::token::Token;
use super::token_file::HomeFile;
use super::token_source::TokenSource;

/// Time that a reply may take in addition to the timeout of the store.
const REPLY_MARGIN: Duration = Duration::from_secs(10);
/// Time between two looks for failed ranks while a reply is waited for.
const REPLY_POLL: Duration = Duration::from_millis(100);
/// Time in which a reply may come after a rank has failed.
const FAILURE_TIME: Duration = Duration::from_secs(2);
/// Time that a rank waits for the announcement of its exit.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which rank 0 has to reach itself at an address that its host does not have.
const OTHER_HOST_TIME: Duration = Duration::from_secs(20);

/// Settings of a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Longest wait for rank 0, and for a key. Default: 10 minutes.
    pub timeout: Duration,
    /// Time without a heartbeat after which a rank is given up. Default: a minute.
    pub heartbeat_limit: Duration,
    /// The source of the job's token. Default: none.
    pub token: TokenSource,
    /// Gets lines about ranks that are waited for: after 5 s, and then ever more seldom. Default: nothing is reported.
    pub report_wait: fn(&str),
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            timeout: Duration::from_secs(600),
            heartbeat_limit: Duration::from_secs(60),
            token: TokenSource::None,
            report_wait: |_| {},
        }
    }
}

/// A connection to the TCP store of a job, which rank 0 serves: a key-value store for rendezvous, and failure detection
/// between the ranks.
pub struct Store {
    /// The sending half, which heartbeats share.
    out: Arc<Mutex<TcpStream>>,
    /// Replies from the reader thread. Locked during a request.
    replies: Mutex<Receiver<StoreReply>>,
    stream: TcpStream,
    notices: Arc<Notices>,
    progress: Arc<OnceLock<ReadProgress>>,
    /// Dropped to end the heartbeats.
    _heartbeats: Sender<()>,
    assignment: RankAssignment,
    timeout: Duration,
    run_id: String,
    warnings: Vec<String>,
    /// The token file that this rank has written.
    published: Option<(HomeFile, Token)>,
    /// The ranks that have connected, on rank 0.
    arrivals: Option<Arc<Arrivals>>,
    report_wait: fn(&str),
}

impl Store {
    /// Connects to the store of the job, which rank 0 creates. Waits for rank 0, and later for keys, for at most the
    /// timeout.
    ///
    /// # Errors
    /// If rank 0 cannot listen, cannot be reached, or refuses this process as one of another job.
    pub fn open(assignment: &RankAssignment, options: &StoreOptions) -> Result<Store, StoreError> {
        if assignment.rank != 0 {
            let admission = join(assignment, &options.token, options.timeout, options.report_wait)?;
            return Store::admitted(assignment, options, admission);
        }
        let mut warnings = Vec::new();
        let (token, published) = match &options.token {
            TokenSource::None => (None, None),
            TokenSource::Given(token) => (Some(token.clone()), None),
            TokenSource::HomeFolder(file) => match file.publish() {
                Ok(token) => (Some(token.clone()), Some((file.clone(), token))),
                Err(error) => {
                    warnings.push(no_token(&format!("{error}, so no token is written")));
                    (None, None)
                }
            },
        };
        if matches!(options.token, TokenSource::None) {
            warnings.push(no_token("there is no home folder for a token"));
        }
        let remove_published = || published.iter().for_each(|(file, token)| file.remove(token));
        let arrivals = Arc::<Arrivals>::default();
        let tokens = (token.clone(), published.clone());
        let served = serve(assignment, options, tokens, &arrivals);
        let joined = served.and_then(|is_at_address| {
            let source = token.map_or(TokenSource::None, TokenSource::Given);
            if is_at_address {
                return join(assignment, &source, options.timeout, |_| {});
            }
            let address = assignment.master.clone();
            warnings.push(format!(
                "rank 0 listens on every address of this host, as it has none of MASTER_ADDR in {address}"
            ));
            let timeout = options.timeout.min(OTHER_HOST_TIME);
            let own = assignment_on_host(assignment);
            let joined = join(&own, &source, timeout, |_| {});
            joined.map_err(|error| match error {
                StoreError::Connect { error, .. } | StoreError::NotAStore { error, .. } => {
                    StoreError::OtherHost { address, error }
                }
                error => error,
            })
        });
        let admission = joined.inspect_err(|_| remove_published())?;
        let store = Store::admitted(assignment, options, admission);
        let mut store = store.inspect_err(|_| remove_published())?;
        (store.warnings, store.published) = (warnings, published);
        store.arrivals = Some(arrivals);
        Ok(store)
    }

    /// Starts the threads of an admitted connection.
    fn admitted(
        assignment: &RankAssignment,
        options: &StoreOptions,
        admission: Admission,
    ) -> Result<Store, StoreError> {
        let (rank, address) = (assignment.rank, assignment.master.clone());
        let Admission { input, out, run_id } = admission;
        let start = || -> io::Result<Store> {
            let (notices, progress) = (Arc::<Notices>::default(), Arc::default());
            let (sender, replies) = channel();
            let reader = {
                let notices = Arc::clone(&notices);
                move || notices.read_loop(rank, input, &sender)
            };
            std::thread::Builder::new().name("store reader".into()).spawn(reader)?;
            let stream = out.try_clone()?;
            let out = Arc::new(Mutex::new(out));
            let heartbeats = Heartbeats {
                rank,
                out: Arc::clone(&out),
                stream: stream.try_clone()?,
                notices: Arc::clone(&notices),
                progress: Arc::clone(&progress),
                limit: options.heartbeat_limit,
            };
            let (stop, stopped) = channel();
            let heartbeats = move || heartbeats.run(&stopped);
            std::thread::Builder::new().name("heartbeats".into()).spawn(heartbeats)?;
            Ok(Store {
                out,
                replies: Mutex::new(replies),
                stream,
                notices,
                progress,
                _heartbeats: stop,
                assignment: assignment.clone(),
                timeout: options.timeout,
                run_id,
                warnings: Vec::new(),
                published: None,
                arrivals: None,
                report_wait: options.report_wait,
            })
        };
        start().map_err(|error| StoreError::Lost { rank, address, error })
    }

    /// Waits on rank 0 until all ranks have connected, for at most the timeout; the others do not wait.
    ///
    /// # Errors
    /// Ranks that have not connected, and one that has ended meanwhile.
    pub fn await_ranks(&self) -> Result<(), StoreError> {
        let Some(arrivals) = &self.arrivals else { return Ok(()) };
        let RankAssignment { world, master: address, .. } = self.assignment.clone();
        let timeout = self.timeout;
        let report = |missing: &str, waited: Duration| {
            (self.report_wait)(&format!(
                "waiting for {missing} of {world} at {address} for {:.0} s; given up after {} s",
                waited.as_secs_f64(),
                timeout.as_secs_f64()
            ));
        };
        let is_over = |waited| waited >= timeout || self.failed_peer().is_some();
        match (arrivals.await_all(world, is_over, report), self.failed_peer()) {
            (None, _) => Ok(()),
            (Some(_), Some((rank, exit))) => Err(StoreError::Ended { rank, exit }),
            (Some(missing), None) => Err(StoreError::Unconnected {
                missing,
                world,
                address: address.clone(),
                waited: timeout,
            }),
        }
    }

    /// The rank assignment of this process.
    pub fn assignment(&self) -> &RankAssignment {
        &self.assignment
    }

    /// Random identifier of the run, the same on all ranks.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Lines that the user should read: about a missing token, and about the address of rank 0.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Reports the progress that `read` returns by heartbeats from now on. Only the first function counts.
    pub fn report_progress(&self, read: impl Fn() -> RankProgress + Send + Sync + 'static) {
        // Later ones are dropped.
        let _ = self.progress.set(Box::new(read));
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// If the connection breaks, the key is longer than 256 bytes, the value longer than 1 MiB, or the store full, with
    /// 64 MiB.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let request = StoreRequest::Set(key.as_bytes().to_vec(), value.to_vec());
        self.request(&request)?.map(drop).map_err(|reason| self.missing_key(key, reason))
    }

    /// Returns the value of `key`, after waiting for a rank to set it.
    ///
    /// # Errors
    /// If no rank sets it in time, or the connection breaks.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        let request = StoreRequest::Get(key.as_bytes().to_vec());
        self.request(&request)?.map_err(|reason| self.missing_key(key, reason))
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

    fn request(&self, request: &StoreRequest) -> Result<StoreReply, StoreError> {
        self.exchange(request, self.timeout + REPLY_MARGIN).map_err(|error| {
            // The reason, with its exit code: rank 0 ends after a failure of any rank.
            if let Some((rank, exit)) = self.notices.first_failure() {
                return StoreError::Ended { rank, exit };
            }
            let RankAssignment { rank, master: address, .. } = self.assignment.clone();
            StoreError::Lost { rank, address, error }
        })
    }

    fn exchange(&self, request: &StoreRequest, timeout: Duration) -> io::Result<StoreReply> {
        let bytes = request.to_bytes()?;
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        self.out.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)?;
        self.next_reply(&replies, Instant::now() + timeout).map_err(|error| {
            // A late reply would be taken for that to the next request.
            let _ = self.stream.shutdown(Shutdown::Both);
            io::Error::other(error.to_string())
        })
    }

    /// Waits for a reply. One that waits for a rank is given up soon after a rank has failed, as it may be that one.
    fn next_reply(
        &self,
        replies: &Receiver<StoreReply>,
        mut deadline: Instant,
    ) -> Result<StoreReply, RecvTimeoutError> {
        let mut has_failed = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match replies.recv_timeout(left.min(REPLY_POLL)) {
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                reply => return reply,
            }
            if !has_failed && self.notices.first_failure().is_some() {
                has_failed = true;
                deadline = deadline.min(Instant::now() + FAILURE_TIME);
            }
        }
    }

    fn missing_key(&self, key: &str, reason: String) -> StoreError {
        let (rank, key, waited) = (self.assignment.rank, key.to_string(), self.timeout);
        StoreError::Missing { rank, key, waited, reason }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the store of {:?}", self.assignment)
    }
}

impl Peers for Store {
    fn failed_peer(&self) -> Option<(usize, RankExit)> {
        self.notices.first_failure()
    }

    fn announce_exit(&self, exit: &RankExit) {
        // If rank 0 is gone, the announcement is not needed.
        let _ = self.exchange(&StoreRequest::Leave(exit.clone()), ANNOUNCE_TIMEOUT);
    }

    fn describe_idle(&self) -> String {
        let idle = self.notices.idle_ranks();
        let lines = idle.iter().map(|idle| {
            format!("\n  rank {}, for {} s: {}", idle.rank, idle.since.as_secs(), idle.progress)
        });
        lines.collect()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Ends the reader thread; that of a broken connection has ended.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some((file, token)) = &self.published {
            file.remove(token);
        }
    }
}

/// Starts the server. Returns false if it listens on every address, as the host does not have that of the store.
fn serve(
    assignment: &RankAssignment,
    options: &StoreOptions,
    (token, published): (Option<Token>, Option<(HomeFile, Token)>),
    arrivals: &Arc<Arrivals>,
) -> Result<bool, StoreError> {
    let address = assignment.master.clone();
    let start = || -> io::Result<bool> {
        let listening = listen(&assignment.master)?;
        let settings = ServerSettings {
            world: assignment.world,
            job: assignment.job.clone(),
            timeout: options.timeout,
            heartbeat_limit: options.heartbeat_limit,
            token,
            run_id: random_id()?,
            arrivals: Arc::clone(arrivals),
            // The others have read the file.
            when_complete: published.map(|(file, token)| {
                Box::new(move || file.remove(&token)) as Box<dyn FnOnce() + Send>
            }),
        };
        serve_store(listening.listener, settings)?;
        Ok(listening.is_at_address)
    };
    start().map_err(|error| StoreError::Listen { address, error })
}

fn no_token(reason: &str) -> String {
    format!(
        "rank 0 admits every process that knows its address and the name of the job, as {reason}; set \
         MESHWRIGHT_TOKEN to the same secret in all processes (`openssl rand -hex 32`)"
    )
}
