//! The wire protocol of the store: numbers in little-endian order, and bytes prefixed by their length.
//!
//! The server reads messages from the bytes that have arrived; [`io::ErrorKind::UnexpectedEof`] stands for a message
//! that is not complete yet. Lengths are checked before anything is read or allocated.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::{RankExit, RankProgress};

/// Magic number at the start of a connection. It changes with the protocol.
pub const MAGIC: [u8; 8] = *b"meshwr04";

/// Longest key in bytes.
pub const MAX_KEY: usize = 256;
/// Longest value in bytes.
pub const MAX_VALUE: usize = 1 << 20;
/// Longest text of an error in bytes.
const MAX_TEXT: usize = 4000;
/// Longest description of a call in bytes.
const MAX_CALL: usize = 300;
/// Most ranks in a list of idle ones.
pub const MAX_IDLE: usize = 8;

/// A message from a rank to the store.
#[derive(Debug, PartialEq)]
pub enum StoreRequest {
    /// Sets a key to a value.
    Set(Vec<u8>, Vec<u8>),
    /// Asks for the value of a key, which may come later.
    Get(Vec<u8>),
    /// Announces the exit of the rank.
    Leave(RankExit),
    /// A heartbeat.
    Beat(RankProgress),
}

/// A message from the store to a rank.
#[derive(Debug, PartialEq)]
pub enum StoreMessage {
    /// The reply to a request, with the value that it asked for.
    Done(Vec<u8>),
    /// The reply to a request that is refused, with the reason.
    Refused(String),
    /// Notification that a rank has exited.
    Exited(usize, RankExit),
    /// The reply to a heartbeat, with ranks that make no progress.
    Alive(Vec<IdleRank>),
}

/// A rank that has made no progress for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct IdleRank {
    /// The rank.
    pub rank: usize,
    /// Time since its last progress.
    pub since: Duration,
    /// The last known progress.
    pub progress: RankProgress,
}

const SET: u8 = 1;
const GET: u8 = 2;
const LEAVE: u8 = 3;
const BEAT: u8 = 4;

const DONE: u8 = 1;
const REFUSED: u8 = 2;
const EXITED: u8 = 3;
const ALIVE: u8 = 4;

impl StoreRequest {
    /// Reads a request.
    pub fn read(input: &mut impl Read) -> io::Result<StoreRequest> {
        match read_byte(input)? {
            SET => {
                let key = read_bytes(input, MAX_KEY)?;
                Ok(StoreRequest::Set(key, read_bytes(input, MAX_VALUE)?))
            }
            GET => Ok(StoreRequest::Get(read_bytes(input, MAX_KEY)?)),
            LEAVE => Ok(StoreRequest::Leave(read_exit(input)?)),
            BEAT => Ok(StoreRequest::Beat(read_progress(input)?)),
            _ => Err(invalid("unknown request")),
        }
    }

    /// Returns the bytes of the request.
    ///
    /// # Errors
    /// A key or value that is longer than the store allows.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            StoreRequest::Set(key, value) => {
                out.push(SET);
                write_bytes(&mut out, key, MAX_KEY)?;
                write_bytes(&mut out, value, MAX_VALUE)?;
            }
            StoreRequest::Get(key) => {
                out.push(GET);
                write_bytes(&mut out, key, MAX_KEY)?;
            }
            StoreRequest::Leave(exit) => {
                out.push(LEAVE);
                write_exit(&mut out, exit)?;
            }
            StoreRequest::Beat(progress) => {
                out.push(BEAT);
                write_progress(&mut out, progress)?;
            }
        }
        Ok(out)
    }
}

impl StoreMessage {
    /// Reads a message.
    pub fn read(input: &mut impl Read) -> io::Result<StoreMessage> {
        match read_byte(input)? {
            DONE => Ok(StoreMessage::Done(read_bytes(input, MAX_VALUE)?)),
            REFUSED => Ok(StoreMessage::Refused(read_text(input, MAX_TEXT)?)),
            EXITED => Ok(StoreMessage::Exited(read_number(input)? as usize, read_exit(input)?)),
            ALIVE => {
                let count = usize::from(read_byte(input)?);
                let read = |_| {
                    let (rank, since) = (read_number(input)? as usize, read_number(input)?);
                    let since = Duration::from_secs(since.into());
                    Ok(IdleRank { rank, since, progress: read_progress(input)? })
                };
                Ok(StoreMessage::Alive(
                    (0..count.min(MAX_IDLE)).map(read).collect::<io::Result<_>>()?,
                ))
            }
            _ => Err(invalid("it does not use the protocol of the store")),
        }
    }

    /// Returns the bytes of the message. Values were checked when they were set, and texts are truncated.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let written = match self {
            StoreMessage::Done(value) => {
                out.push(DONE);
                write_bytes(&mut out, value, MAX_VALUE)
            }
            StoreMessage::Refused(reason) => {
                out.push(REFUSED);
                write_text(&mut out, reason, MAX_TEXT)
            }
            StoreMessage::Exited(rank, exit) => {
                out.push(EXITED);
                write_number(&mut out, *rank as u32).and_then(|()| write_exit(&mut out, exit))
            }
            StoreMessage::Alive(idle) => {
                let idle = &idle[..idle.len().min(MAX_IDLE)];
                out.extend([ALIVE, idle.len() as u8]);
                idle.iter().try_for_each(|IdleRank { rank, since, progress }| {
                    write_number(&mut out, *rank as u32)?;
                    write_number(&mut out, since.as_secs() as u32)?;
                    write_progress(&mut out, progress)
                })
            }
        };
        written.expect("writing to a vector does not fail");
        out
    }
}

pub fn write_number(out: &mut impl Write, number: u32) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

pub fn read_number(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn read_long(input: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    input.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

pub fn write_bytes(out: &mut impl Write, bytes: &[u8], max: usize) -> io::Result<()> {
    if bytes.len() > max {
        let problem = format!("{} bytes are more than the store allows ({max})", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    write_number(out, bytes.len() as u32)?;
    out.write_all(bytes)
}

/// Reads at most `max` bytes. Memory grows with the bytes that arrive, not with the length that was announced.
pub fn read_bytes(input: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let len = read_number(input)? as usize;
    if len > max {
        return Err(invalid("longer than the store allows"));
    }
    let mut bytes = Vec::new();
    input.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

pub fn read_byte(input: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    input.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn write_text(out: &mut impl Write, text: &str, max: usize) -> io::Result<()> {
    let end = (0..=text.len().min(max)).rev().find(|end| text.is_char_boundary(*end));
    write_bytes(out, &text.as_bytes()[..end.unwrap_or(0)], max)
}

fn read_text(input: &mut impl Read, max: usize) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read_bytes(input, max)?).into_owned())
}

/// Writes an exit status: a byte, the exit code, and the error text.
fn write_exit(out: &mut impl Write, exit: &RankExit) -> io::Result<()> {
    let (kind, text) = match exit {
        RankExit::Returned => (0, ""),
        RankExit::Failed { error, .. } => (1, &**error),
        RankExit::Panicked(text) => (2, &**text),
        RankExit::Lost => (3, ""),
        RankExit::Silent(text) => (4, &**text),
    };
    out.write_all(&[kind, exit.exit_code()])?;
    write_text(out, text, MAX_TEXT)
}

fn read_exit(input: &mut impl Read) -> io::Result<RankExit> {
    let (kind, code, text) = (read_byte(input)?, read_byte(input)?, read_text(input, MAX_TEXT)?);
    match kind {
        0 => Ok(RankExit::Returned),
        1 => Ok(RankExit::Failed { error: text.into(), code }),
        2 => Ok(RankExit::Panicked(text.into())),
        3 => Ok(RankExit::Lost),
        4 => Ok(RankExit::Silent(text.into())),
        _ => Err(invalid("unknown exit status")),
    }
}

fn write_progress(out: &mut impl Write, progress: &RankProgress) -> io::Result<()> {
    out.write_all(&progress.step.to_le_bytes())?;
    out.write_all(&progress.calls.to_le_bytes())?;
    out.write_all(&[u8::from(progress.is_communicating)])?;
    write_text(out, &progress.last_call, MAX_CALL)
}

fn read_progress(input: &mut impl Read) -> io::Result<RankProgress> {
    Ok(RankProgress {
        step: read_long(input)?,
        calls: read_long(input)?,
        is_communicating: read_byte(input)? != 0,
        last_call: read_text(input, MAX_CALL)?,
    })
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
