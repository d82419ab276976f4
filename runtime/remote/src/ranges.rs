//! Reads of parts of an object, several of them at the same time.

use std::io::{Error as IoError, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{Error, GetOptions, GetRange, ObjectMeta};
use tokio::task::JoinSet;

use crate::bucket::{Bucket, repeat_if_cut};
use crate::error::to_io;

/// Most bytes of one request.
const REQUEST_BYTES: u64 = 8 << 20;

/// Most requests that are in progress together.
const PARALLEL: usize = 32;

/// Most bytes of the answers to requests that are in progress together.
const PARALLEL_BYTES: u64 = 8 * REQUEST_BYTES;

/// The state of an object, which differs for other content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectState {
    pub length: u64,
    pub tag: Option<String>,
    /// The time of its last change, for services without tags.
    pub modified: Option<String>,
}

impl ObjectState {
    pub fn of(meta: &ObjectMeta) -> ObjectState {
        let modified = meta.e_tag.is_none().then(|| meta.last_modified.to_rfc3339());
        ObjectState { length: meta.size, tag: meta.e_tag.clone(), modified }
    }
}

/// Reads ranges of an object. If it is not in the state `expected` any more, the error has the kind
/// `StaleNetworkFileHandle`.
pub async fn read_ranges(
    (bucket, name): (&Bucket, &str),
    key: &Key,
    ranges: &[Range<u64>],
    expected: Option<&ObjectState>,
) -> Result<Vec<Vec<u8>>> {
    let pieces: Vec<(usize, Range<u64>)> = ranges
        .iter()
        .enumerate()
        .flat_map(|(i, range)| split(range).map(move |piece| (i, piece)))
        .collect();
    let mut found = vec![Bytes::new(); pieces.len()];
    let mut running = JoinSet::new();
    let (mut next, mut bytes_running) = (0, 0);
    loop {
        while let Some((_, range)) = pieces.get(next) {
            let (index, range, len) = (next, range.clone(), range.end - range.start);
            let is_full = running.len() >= PARALLEL || bytes_running + len > PARALLEL_BYTES;
            if is_full && !running.is_empty() {
                break;
            }
            (next, bytes_running) = (next + 1, bytes_running + len);
            let (store, key) = (Arc::clone(&bucket.store), key.clone());
            let expected = expected.cloned();
            running.spawn(async move {
                let options = GetOptions {
                    range: Some(GetRange::Bounded(range.clone())),
                    if_match: expected.as_ref().and_then(|state| state.tag.clone()),
                    ..GetOptions::default()
                };
                let read = async || {
                    let answer = store.get_opts(&key, options.clone()).await?;
                    // Not all services compare the tag.
                    if expected
                        .as_ref()
                        .is_some_and(|state| *state != ObjectState::of(&answer.meta))
                    {
                        return Ok(None);
                    }
                    answer.bytes().await.map(Some)
                };
                (index, range, repeat_if_cut(read).await)
            });
        }
        let Some(done) = running.join_next().await else { break };
        let (index, range, bytes) = done.expect("a read does not panic");
        bytes_running -= range.end - range.start;
        let bytes = match bytes {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(Error::Precondition { .. }) => return Err(changed()),
            Err(error) => return Err(to_io(error, name)),
        };
        if bytes.len() as u64 != range.end - range.start {
            let reason = format!("it ends before byte {}", range.end);
            return Err(IoError::new(ErrorKind::UnexpectedEof, reason));
        }
        found[index] = bytes;
    }
    let mut joined = vec![Vec::new(); ranges.len()];
    for ((i, _), bytes) in pieces.iter().zip(found) {
        joined[*i].extend_from_slice(&bytes);
    }
    Ok(joined)
}

/// Returns the error of an object that was replaced.
pub fn changed() -> IoError {
    IoError::new(ErrorKind::StaleNetworkFileHandle, "the object was replaced")
}

/// Splits a range into pieces that are read separately.
fn split(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { start, end } = *range;
    let starts = (start..end).step_by(REQUEST_BYTES as usize);
    starts.map(move |start| start..end.min(start + REQUEST_BYTES))
}
