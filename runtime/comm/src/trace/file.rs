//! Writer of the trace event format, which streams events to the file.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::event::{Arg, Event, Name};
use super::lane::Log;

/// An error while writing a trace.
#[derive(Debug, thiserror::Error)]
#[error("the trace `{}` cannot be written: {source}", path.display())]
pub struct TraceError {
    /// Path of the file.
    pub path: PathBuf,
    /// The I/O error.
    pub source: std::io::Error,
}

/// The start of each trace.
const START: &[u8] = br#"{"displayTimeUnit":"ms","otherData":{"dropped_spans":{"#;

/// Returns true for the content of a trace, or the start of one that could not be written as a whole.
pub fn is_trace(content: &mut dyn std::io::Read) -> bool {
    let mut start = Vec::new();
    let is_read = content.take(START.len() as u64).read_to_end(&mut start).is_ok();
    let end = start.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    is_read && START.starts_with(&start[..end])
}

/// Writes `lanes`, which are grouped by rank.
pub(super) fn write(lanes: &[Arc<Log>], target: impl Write) -> std::io::Result<()> {
    let mut target = BufWriter::with_capacity(1 << 16, target);
    let dropped = lanes.iter().map(|log| (log, log.lock_records().dropped));
    let dropped_spans = dropped
        .filter(|(_, dropped)| *dropped > 0)
        .map(|(log, dropped)| (format!("rank {}, {}", log.rank, log.name), dropped))
        .collect();
    let file = File {
        display_time_unit: "ms",
        other_data: OtherData { dropped_spans },
        trace_events: Lanes(lanes),
    };
    serde_json::to_writer(&mut target, &file)?;
    target.flush()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    display_time_unit: &'static str,
    other_data: OtherData,
    trace_events: Lanes<'a>,
}

#[derive(Serialize)]
struct OtherData {
    dropped_spans: BTreeMap<String, u64>,
}

struct Lanes<'a>(&'a [Arc<Log>]);

impl Serialize for Lanes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        let mut named_rank = None;
        for (lane_idx, log) in self.0.iter().enumerate() {
            let (pid, tid) = (log.rank, lane_idx + 1);
            if named_rank.replace(pid) != Some(pid) {
                let args = BTreeMap::from([("name", format!("rank {pid}"))]);
                sequence.serialize_element(&Metadata {
                    name: "process_name",
                    ph: 'M',
                    pid,
                    tid,
                    args,
                })?;
                let args = BTreeMap::from([("sort_index", pid)]);
                let name = "process_sort_index";
                sequence.serialize_element(&Metadata { name, ph: 'M', pid, tid, args })?;
            }
            let args = BTreeMap::from([("name", &log.name)]);
            sequence.serialize_element(&Metadata {
                name: "thread_name",
                ph: 'M',
                pid,
                tid,
                args,
            })?;
            let args = BTreeMap::from([("sort_index", tid)]);
            let name = "thread_sort_index";
            sequence.serialize_element(&Metadata { name, ph: 'M', pid, tid, args })?;
            for event in outer_first(&log.lock_records().events) {
                sequence.serialize_element(&Complete::from_event(event, pid, tid))?;
            }
        }
        sequence.end()
    }
}

/// Sorts events by start time, outer spans before inner spans with the same start, as viewers expect them.
fn outer_first(events: &[Event]) -> Vec<&Event> {
    // Inner spans were recorded first, which breaks the tie if start and end are the same.
    let mut events: Vec<_> = events.iter().rev().collect();
    events.sort_by_key(|event| (event.start, Reverse(event.end)));
    events
}

#[derive(Serialize)]
struct Metadata<T> {
    name: &'static str,
    ph: char,
    pid: usize,
    tid: usize,
    args: BTreeMap<&'static str, T>,
}

#[derive(Serialize)]
struct Complete<'a> {
    name: &'a Name,
    cat: &'static str,
    ph: char,
    ts: f64,
    dur: f64,
    pid: usize,
    tid: usize,
    args: Args<'a>,
}

impl<'a> Complete<'a> {
    fn from_event(event: &'a Event, pid: usize, tid: usize) -> Complete<'a> {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        Complete {
            name: &event.name,
            cat: event.category,
            ph: 'X',
            ts: micros(event.start),
            dur: micros(event.end - event.start),
            pid,
            tid,
            args: Args(&event.args),
        }
    }
}

struct Args<'a>(&'a [(&'static str, Arg)]);

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
