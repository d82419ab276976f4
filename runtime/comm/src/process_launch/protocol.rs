//! The wire protocol of the store: numbers in little-endian order, and bytes prefixed by their length.

use std::io::{self, Read, Write};

use crate::RankExit;

/// Magic number at the start of a connection. It changes with the protocol.
pub const MAGIC: [u8; 8] = *b"meshwr03";

/// Longest key or value in bytes, so that a foreign connection cannot make the store allocate much memory.
const MAX_LEN: u32 = 1 << 20;

/// The first byte of a request.
pub const SET: u8 = 1;
pub const GET: u8 = 2;
pub const LEAVE: u8 = 3;

/// The first byte of a reply.
pub const DONE: u8 = 1;
pub const REFUSED: u8 = 2;
/// The first byte of the notification that another rank has exited.
pub const EXITED: u8 = 3;

pub fn write_number(out: &mut impl Write, number: u32) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

pub fn read_number(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

pub fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= MAX_LEN);
    let Some(len) = len else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "longer than the store allows"));
    };
    write_number(out, len)?;
    out.write_all(bytes)
}

pub fn read_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = read_number(input)?;
    if len > MAX_LEN {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than the store allows"));
    }
    let mut bytes = vec![0; len as usize];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub fn read_byte(input: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    input.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// Writes an exit status: a byte, the exit code, and the error text.
pub fn write_exit(out: &mut impl Write, exit: &RankExit) -> io::Result<()> {
    let (kind, text) = match exit {
        RankExit::Returned => (0, ""),
        RankExit::Failed { error, .. } => (1, &**error),
        RankExit::Panicked(text) => (2, &**text),
        RankExit::Lost => (3, ""),
    };
    out.write_all(&[kind, exit.exit_code()])?;
    write_bytes(out, truncated(text).as_bytes())
}

pub fn read_exit(input: &mut impl Read) -> io::Result<RankExit> {
    let (kind, code, bytes) = (read_byte(input)?, read_byte(input)?, read_bytes(input)?);
    let text = String::from_utf8_lossy(&bytes);
    match kind {
        0 => Ok(RankExit::Returned),
        1 => Ok(RankExit::Failed { error: text.into(), code }),
        2 => Ok(RankExit::Panicked(text.into())),
        3 => Ok(RankExit::Lost),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unknown exit status")),
    }
}

/// Truncates a long error text.
fn truncated(text: &str) -> &str {
    const MAX_TEXT: usize = 4000;
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
