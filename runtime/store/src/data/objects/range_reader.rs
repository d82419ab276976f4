//! A reader of an object, and the time that it tries.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::time::Duration;

use meshwright_remote::OpenedObject;

/// An object that is read in parts.
pub trait RangeReader: Debug + Send + Sync {
    /// Returns the number of bytes.
    fn length(&self) -> u64;

    /// Returns a text that differs for other content.
    fn version(&self) -> &str;

    /// Reads ranges until `is_cancelled` returns true. See [`OpenedObject::read`].
    fn read(
        &self,
        ranges: &[Range<u64>],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Vec<Vec<u8>>>;
}

impl RangeReader for OpenedObject {
    fn length(&self) -> u64 {
        OpenedObject::length(self)
    }

    fn version(&self) -> &str {
        OpenedObject::version(self)
    }

    fn read(
        &self,
        ranges: &[Range<u64>],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Vec<Vec<u8>>> {
        OpenedObject::read(self, ranges, is_cancelled)
    }
}

/// Times of repeated reads.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The wait after the first failure, which doubles.
    pub first_wait: Duration,
    /// The time after which a read fails.
    pub limit: Duration,
}

/// Five minutes, with the time in which the rows of a step are fetched ahead.
pub const PATIENCE: Patience =
    Patience { first_wait: Duration::from_secs(1), limit: Duration::from_secs(240) };
