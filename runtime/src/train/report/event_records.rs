//! Records of TensorBoard's event files: a length, a protobuf message `Event`, and a checksum of each.

use std::io::{self, Read};
use std::ops::Range;

/// Content of the first record of a file.
const VERSION: &str = "brain.Event:2";

/// Bytes before the message: its length, and the checksum of the length.
const HEAD: usize = 12;

/// Numbers of fields of `Event`, `Summary` and `Summary.Value`, and the value of `SessionLog.status`.
mod fields {
    pub const WALL_TIME: u8 = 1;
    pub const STEP: u8 = 2;
    pub const FILE_VERSION: u8 = 3;
    pub const SUMMARY: u8 = 5;
    pub const SESSION_LOG: u8 = 7;
    pub const VALUE: u8 = 1;
    pub const TAG: u8 = 1;
    pub const SIMPLE_VALUE: u8 = 2;
    pub const STATUS: u8 = 1;
    pub const START: u8 = 1;
}

/// A protobuf message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// Begins an event at a time in seconds since 1970.
    fn event(time: f64) -> Message {
        Message::default().field(fields::WALL_TIME, 1, &time.to_le_bytes())
    }

    /// Adds a field of the wire type: 0 for a varint, 1 for eight bytes, 5 for four.
    fn field(mut self, number: u8, wire: u8, bytes: &[u8]) -> Message {
        self.0.push(number << 3 | wire);
        self.0.extend(bytes);
        self
    }

    fn step(self, step: u64) -> Message {
        self.field(fields::STEP, 0, &varint(step))
    }

    /// Adds a field with a text or a message.
    fn nested(self, number: u8, bytes: &[u8]) -> Message {
        let mut message = self.field(number, 2, &varint(bytes.len() as u64));
        message.0.extend(bytes);
        message
    }

    /// Returns the record of the message.
    fn record(self) -> Vec<u8> {
        let len = (self.0.len() as u64).to_le_bytes();
        let [of_len, of_message] = [&len[..], &self.0].map(|bytes| masked_crc(bytes).to_le_bytes());
        [&len[..], &of_len, &self.0, &of_message].concat()
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns the CRC-32C of bytes, changed as TFRecord files have it.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the first record of a file.
pub fn version_record(time: f64) -> Vec<u8> {
    Message::event(time).nested(fields::FILE_VERSION, VERSION.as_bytes()).record()
}

/// Returns the record with which a run begins at `step`: TensorBoard drops what it has read of this step and later
/// ones.
pub fn start_record(time: f64, step: u64) -> Vec<u8> {
    let log = Message::default().field(fields::STATUS, 0, &[fields::START]);
    Message::event(time).step(step).nested(fields::SESSION_LOG, &log.0).record()
}

/// Returns the record of a step with its scalars, by tag.
pub fn scalar_record(time: f64, step: u64, scalars: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Message::default();
    for (tag, scalar) in scalars {
        let value = Message::default().nested(fields::TAG, tag.as_bytes());
        let value = value.field(fields::SIMPLE_VALUE, 5, &(*scalar as f32).to_le_bytes());
        summary = summary.nested(fields::VALUE, &value.0);
    }
    Message::event(time).step(step).nested(fields::SUMMARY, &summary.0).record()
}

/// A record of a file that is there before a run.
#[derive(Debug, PartialEq)]
pub struct EarlierRecord {
    /// Length of the record.
    pub bytes: u64,
    /// Step of the record, if it has the scalars of one.
    pub step: Option<u64>,
    /// Tokens of the step, if it has them.
    pub tokens: Option<f32>,
}

/// Returns true for the beginning of an event file.
pub fn begins_events(mut file: impl Read) -> bool {
    let own = version_record(0.0);
    let mut bytes = vec![0; own.len()];
    let is_long = file.read_exact(&mut bytes).is_ok();
    // All but the time, and the checksum that depends on it.
    let is_same = |range: Range<usize>| bytes[range.clone()] == own[range];
    is_long && is_same(0..HEAD + 1) && is_same(HEAD + 9..own.len() - 4)
}

/// Reads the next record of a file; `None` if the rest is empty, torn or damaged.
///
/// # Errors
/// A file that cannot be read.
pub fn read_record(file: &mut impl Read) -> io::Result<Option<EarlierRecord>> {
    let Some(head) = read_bytes(file, HEAD as u64)? else { return Ok(None) };
    let (len, crc) = head.split_at(8);
    let matches = |crc: &[u8], bytes: &[u8]| crc == masked_crc(bytes).to_le_bytes();
    if !matches(crc, len) {
        return Ok(None);
    }
    let len = len.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let Some(message) = read_bytes(file, len)? else { return Ok(None) };
    let Some(crc) = read_bytes(file, 4)?.filter(|crc| matches(crc, &message)) else {
        return Ok(None);
    };
    let bytes = (HEAD + message.len() + crc.len()) as u64;
    Ok(Some(EarlierRecord { bytes, step: step_of(&message), tokens: tokens_of(&message) }))
}

/// Reads `len` bytes; `None` if there are fewer.
fn read_bytes(file: &mut impl Read, len: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 == len))
}

/// Returns the step of a message of [`scalar_record`].
fn step_of(message: &[u8]) -> Option<u64> {
    let rest = message.get(9..)?.strip_prefix(&[fields::STEP << 3])?;
    let n_bytes = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let digits = rest.get(..n_bytes).filter(|_| n_bytes <= 10)?.iter().rev();
    let step = digits.fold(0u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    (rest.get(n_bytes)? == &(fields::SUMMARY << 3 | 2)).then_some(step)
}

fn tokens_of(message: &[u8]) -> Option<f32> {
    const TAGGED: &[u8] = b"\x0a\x06tokens\x15";
    let at = message.windows(TAGGED.len()).position(|window| window == TAGGED)? + TAGGED.len();
    Some(f32::from_le_bytes(message.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut bytes: &[u8]) -> Vec<EarlierRecord> {
        std::iter::from_fn(|| read_record(&mut bytes).unwrap()).collect()
    }

    #[test]
    fn checksums_are_those_of_the_format() {
        // The first record that TensorFlow writes at time 0.
        let expected =
            b"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\0\0\0\0\0\0\x1a\x0dbrain.Event:2";
        assert_eq!(version_record(0.0)[..expected.len()], expected[..]);
        // CRC-32C of "123456789", from the definition of the checksum.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn records_are_read_back() {
        let scalars = [("loss".to_owned(), 5.5), ("tokens".to_owned(), 64.0)];
        let steps = [1, 127, 128, u64::from(u32::MAX), 1 << 62];
        let mut bytes = version_record(1.5);
        bytes.extend(start_record(2.5, 3));
        assert!(begins_events(&bytes[..]));
        let n_without_steps = bytes.len();
        steps.iter().for_each(|step| bytes.extend(scalar_record(3.5, *step, &scalars)));
        let read = read_all(&bytes);
        assert_eq!(
            read[..2].iter().map(|record| record.bytes as usize).sum::<usize>(),
            n_without_steps
        );
        assert!(read[..2].iter().all(|record| record.step.is_none() && record.tokens.is_none()));
        let found: Vec<_> = read[2..].iter().map(|record| record.step.unwrap()).collect();
        assert_eq!(found, steps);
        assert!(read[2..].iter().all(|record| record.tokens == Some(64.0)));
        assert_eq!(read.iter().map(|record| record.bytes as usize).sum::<usize>(), bytes.len());
    }

    #[test]
    fn damage_ends_a_file() {
        let whole = [version_record(1.0), scalar_record(1.0, 1, &[])].concat();
        let first = version_record(1.0).len();
        for at in first..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            for bytes in [&whole[..at], &flipped] {
                let read = read_all(bytes);
                assert_eq!((read.len(), read[0].bytes as usize), (1, first), "{at}");
            }
        }
        for other in [b"", &whole[1..], &whole[..first - 1], &[0; 99]] {
            assert!(!begins_events(other));
        }
    }
}
