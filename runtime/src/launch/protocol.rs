//! What goes over the wire: numbers in little-endian order, and bytes after their length.

use std::io::{self, Read, Write};

/// How a connection begins. It changes with the protocol.
pub const GREETING: [u8; 8] = *b"meshwr01";

/// The longest key or value, so that a stranger cannot make the store ask for much memory.
const LONGEST: u32 = 1 << 20;

/// The first byte of a request.
pub const SET: u8 = 1;
pub const GET: u8 = 2;

/// The first byte of an answer.
pub const DONE: u8 = 1;
pub const REFUSED: u8 = 2;

pub fn write_number(out: &mut impl Write, number: u32) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

pub fn read_number(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

pub fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= LONGEST);
    let Some(len) = len else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "longer than a store takes"));
    };
    write_number(out, len)?;
    out.write_all(bytes)
}

pub fn read_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = read_number(input)?;
    if len > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than a store takes"));
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
