//! The rendezvous of a process with the store: connecting, and the handshake.

use std::io::{self, BufReader, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::arrivals::WaitReports;
use super::error::StoreError;
use super::handshake::{CHALLENGE, Challenge, Greeting, HandshakeSide, is_proven, prove};
use super::keep_alive::enable_keep_alive;
use super::protocol::{StoreMessage, read_byte};
use super::random::SystemRandom;
use super::rank_assignment::RankAssignment;
use super::token::Token;
use super::token_source::TokenSource;

/// Time between attempts to connect to rank 0.
const RETRY_PERIOD: Duration = Duration::from_millis(50);
/// Longest wait for the other side of the handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(20);
/// Time in which connections that end during the handshake are tried again: a store that many connections overwhelm
/// drops some of them.
const CLOSED_TIME: Duration = Duration::from_secs(3);
/// Time in which the name of another host becomes known: clusters publish it when its process has started.
const NAME_TIME: Duration = Duration::from_secs(60);
/// Time in which the name of the own host becomes known.
const OWN_NAME_TIME: Duration = Duration::from_secs(5);
/// Longest wait for the token file that rank 0 has written: a network file system shows it a minute later at most.
const TOKEN_TIME: Duration = Duration::from_secs(120);

/// An admitted connection.
#[derive(Debug)]
pub struct Admission {
    pub input: BufReader<TcpStream>,
    pub out: TcpStream,
    /// Identifier of the run.
    pub run_id: String,
}

/// The reason why an attempt has failed.
enum Attempt {
    /// The name of the host is not known.
    Unresolved(io::Error),
    /// Nothing listens at the address.
    Unreachable(io::Error),
    /// The connection has ended.
    Closed(io::Error),
    /// The other side is no store.
    NotAStore(io::Error),
    /// The token is not that of the store.
    Token(String),
    /// The store has refused the rank.
    Refused(String),
}

impl Attempt {
    /// Returns the reason, if the attempt is repeated.
    fn reason(&self) -> Option<String> {
        match self {
            Attempt::Unresolved(error) | Attempt::Unreachable(error) | Attempt::Closed(error) => {
                Some(error.to_string())
            }
            Attempt::Token(problem) => Some(problem.clone()),
            Attempt::NotAStore(_) | Attempt::Refused(_) => None,
        }
    }
}

/// Connects to the store of the job and is admitted, within `timeout`. `report` gets a line about the wait, now and
/// then.
pub fn join(
    assignment: &RankAssignment,
    token: &TokenSource,
    timeout: Duration,
    report: fn(&str),
) -> Result<Admission, StoreError> {
    let (rank, address) = (assignment.rank, assignment.master.clone());
    let unresolved_time = if rank == 0 { OWN_NAME_TIME } else { NAME_TIME };
    let mut reports = WaitReports::begin();
    let mut closed_since = None;
    loop {
        let failure = match attempt(assignment, token, timeout) {
            Ok(admission) => return Ok(admission),
            Err(failure) => failure,
        };
        let passed = reports.waited();
        // One rank is enough, and every run of several has a rank 1.
        if let (1, Some(waited), Some(reason)) = (rank, reports.due(), failure.reason()) {
            report(&format!(
                "waiting for rank 0 at {address} for {:.0} s: {reason}; it is given up after {} s",
                waited.as_secs_f64(),
                timeout.as_secs_f64()
            ));
        }
        match failure {
            Attempt::Unresolved(error) if passed >= timeout.min(unresolved_time) => {
                return Err(StoreError::Unresolved { rank, address, error });
            }
            Attempt::Unresolved(_) => {}
            Attempt::Unreachable(error) if closed_since.is_none() && passed >= timeout => {
                return Err(StoreError::Connect { rank, address, waited: timeout, error });
            }
            Attempt::Unreachable(error) | Attempt::Closed(error)
                if closed_since.is_some_and(|since: Instant| since.elapsed() > CLOSED_TIME) =>
            {
                return Err(StoreError::NotAStore { rank, address, error });
            }
            Attempt::Closed(_) => drop(closed_since.get_or_insert_with(Instant::now)),
            Attempt::Unreachable(_) => {}
            Attempt::NotAStore(error) => {
                return Err(StoreError::NotAStore { rank, address, error });
            }
            Attempt::Token(problem)
                if !matches!(token, TokenSource::HomeFolder(_))
                    || passed >= timeout.min(TOKEN_TIME) =>
            {
                return Err(StoreError::Token(format!("rank {rank} at {address}: {problem}")));
            }
            Attempt::Token(_) => {}
            Attempt::Refused(reason) => return Err(StoreError::Refused { rank, address, reason }),
        }
        std::thread::sleep(RETRY_PERIOD);
    }
}

fn attempt(
    assignment: &RankAssignment,
    source: &TokenSource,
    timeout: Duration,
) -> Result<Admission, Attempt> {
    let out = connect_to(&assignment.master, timeout)?;
    // Read when rank 0 listens, so after it has written the file.
    let token = match source {
        TokenSource::None => None,
        TokenSource::Given(token) => Some(token.clone()),
        TokenSource::HomeFolder(file) => file.read().map_err(Attempt::Token)?,
    };
    let mut input = prepare(&out).map_err(Attempt::Closed)?;
    let proof = challenge(&mut input, &out, assignment, token.as_ref(), source)?;
    (&out).write_all(&proof).map_err(ended)?;
    let reply = StoreMessage::read(&mut input).map_err(ended)?;
    out.set_read_timeout(None).map_err(ended)?;
    match reply {
        StoreMessage::Done(id) => {
            let run_id = String::from_utf8_lossy(&id).into_owned();
            Ok(Admission { input, out, run_id })
        }
        StoreMessage::Refused(reason) => Err(Attempt::Refused(reason)),
        _ => Err(Attempt::NotAStore(unknown_protocol())),
    }
}

/// Returns the failure of a connection that was accepted.
fn ended(error: io::Error) -> Attempt {
    match error.kind() {
        ErrorKind::InvalidData => Attempt::NotAStore(error),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let text = format!("it does not answer within {} s", HANDSHAKE_TIME.as_secs());
            Attempt::Closed(io::Error::new(ErrorKind::TimedOut, text))
        }
        _ => Attempt::Closed(error),
    }
}

fn prepare(out: &TcpStream) -> io::Result<BufReader<TcpStream>> {
    out.set_nodelay(true)?;
    enable_keep_alive(out);
    out.set_read_timeout(Some(HANDSHAKE_TIME))?;
    Ok(BufReader::new(out.try_clone()?))
}

/// Introduces this rank, checks the proof of the store, and returns that of this rank.
fn challenge(
    input: &mut BufReader<TcpStream>,
    mut out: &TcpStream,
    assignment: &RankAssignment,
    token: Option<&Token>,
    source: &TokenSource,
) -> Result<[u8; 32], Attempt> {
    let own = SystemRandom::open().and_then(|random| random.next_bytes());
    let own = own.map_err(|error| Attempt::Refused(format!("no random numbers: {error}")))?;
    let greeting = Greeting::new(assignment, token.is_some(), own);
    let bytes = greeting.to_bytes().map_err(|error| Attempt::Refused(format!("job: {error}")))?;
    let read = |input: &mut BufReader<TcpStream>| match read_byte(input)? {
        CHALLENGE => Challenge::read(input).map(Ok),
        // The reply of any version to a process that it refuses.
        kind => match StoreMessage::read(&mut io::Read::chain(&[kind][..], input))? {
            StoreMessage::Refused(reason) => Ok(Err(reason)),
            _ => Err(unknown_protocol()),
        },
    };
    let reply = out.write_all(&bytes).and_then(|()| read(input));
    let store = match reply {
        Ok(Ok(store)) => store,
        Ok(Err(reason)) => return Err(Attempt::Refused(reason)),
        Err(error) => return Err(ended(error)),
    };
    if is_proven(token, &greeting, &store.challenge, HandshakeSide::Store, &store.proof) {
        return Ok(prove(token, &greeting, &store.challenge, HandshakeSide::Rank));
    }
    Err(Attempt::Token(match (token, store.has_token, source) {
        (Some(_), true, TokenSource::HomeFolder(file)) => format!(
            "{} has another token than rank 0; set MESHWRIGHT_TOKEN to the same value in all processes",
            file.path().display()
        ),
        (Some(_), true, _) => "the token of this process is not that of rank 0; set MESHWRIGHT_TOKEN to the same \
                               value in all processes"
            .to_owned(),
        (Some(_), false, TokenSource::HomeFolder(file)) => format!(
            "{} has a token, but rank 0 has none; remove the file if it is old",
            file.path().display()
        ),
        (Some(_), false, _) => "this process has a token, but rank 0 has none; set MESHWRIGHT_TOKEN in all processes"
            .to_owned(),
        (None, ..) => "rank 0 has a token, but this process has none; set MESHWRIGHT_TOKEN to the same value in all \
                       processes (rank 0 writes one to ~/.meshwright/tokens, which this host does not share)"
            .to_owned(),
    }))
}

fn unknown_protocol() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "it does not use the protocol of the store")
}

/// Connects to the first address of a host that accepts.
fn connect_to(address: &str, timeout: Duration) -> Result<TcpStream, Attempt> {
    let addresses = address.to_socket_addrs().map_err(Attempt::Unresolved)?;
    let no_address = io::Error::new(ErrorKind::NotFound, "the name has no address");
    let mut last = Attempt::Unresolved(no_address);
    // A connection to a port that nothing listens at may be one with itself.
    let is_to_itself =
        |stream: &TcpStream| Ok::<_, io::Error>(stream.local_addr()? == stream.peer_addr()?);
    for address in addresses {
        let connected = TcpStream::connect_timeout(&address, timeout.max(RETRY_PERIOD));
        match connected.and_then(|stream| Ok((is_to_itself(&stream)?, stream))) {
            Ok((false, stream)) => return Ok(stream),
            Ok((true, _)) => last = Attempt::Unreachable(ErrorKind::ConnectionRefused.into()),
            Err(error) => last = Attempt::Unreachable(error),
        }
    }
    Err(last)
}
