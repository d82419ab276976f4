//! The course of a simulated step, for reports.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::backend::Kernel;
use crate::train::explain::{MemoryOverTime, StepPeak, of_peak, pass_name};
use meshwright_comm::trace::Name;
use meshwright_core::__internal::Pass;
use meshwright_sim::{EventKind, SimLane, SimSpan, StepLog};

/// Most kernels that are listed.
const MOST_KERNELS: usize = 40;

/// The memory, the kernels and the timeline of a simulated step.
#[derive(Debug, Clone, Serialize)]
pub struct StepCourse {
    /// Memory at the position along `pp` with the highest peak, over seconds.
    pub memory_over_time: MemoryOverTime,
    #[serde(serialize_with = "as_json")]
    pub memory_peak: StepPeak,
    /// Equal kernels of all positions together, those that take longest first.
    pub kernels: Vec<KernelTime>,
    /// A row for each position along `pp`; without a pipeline, one for each lane of a trace.
    #[serde(skip)]
    pub timeline: Vec<TimelineRow>,
}

/// Equal kernels of a step, on one rank at each position along `pp`.
#[derive(Debug, Clone, Serialize)]
pub struct KernelTime {
    pub op: &'static str,
    /// [`Kernel::dims`].
    pub dims: [u32; 4],
    pub dtype: &'static str,
    pub count: usize,
    /// Sums over all of them.
    pub flops: f64,
    pub bytes: f64,
    /// Slowed by collectives beside them.
    pub seconds: f64,
}

/// A row of a timeline.
#[derive(Debug, Clone)]
pub struct TimelineRow {
    pub name: String,
    /// In the order of their starts.
    pub segments: Vec<TimelineSegment>,
}

/// A segment of a timeline.
#[derive(Debug, Clone)]
pub struct TimelineSegment {
    pub start: f64,
    pub end: f64,
    pub kind: &'static str,
    /// True for computations of a rank's second and later stages.
    pub is_later: bool,
    /// The micro-batch and stage of a computation.
    pub label: Option<Name>,
}

fn as_json<S: Serializer>(peak: &StepPeak, to: S) -> Result<S::Ok, S::Error> {
    of_peak(peak).serialize(to)
}

impl StepCourse {
    /// Follows the spans of a simulated step of `seconds`.
    pub fn new(logs: &[Arc<StepLog>], spans: &[SimSpan], seconds: f64) -> StepCourse {
        let peaks = logs.iter().map(|log| StepPeak::of(log, true)).enumerate();
        let by_bytes = |(_, peak): &(usize, StepPeak)| peak.bytes;
        // The first of equal ones.
        let (fullest, memory_peak) = peaks.rev().max_by_key(by_bytes).expect("a mesh has a rank");
        let log = &logs[fullest];
        let mut ends = vec![0.0; log.events.len()];
        for span in kernel_spans(spans).filter(|span| span.position == fullest) {
            ends[span.event.unwrap_or_default()] = span.start + span.duration;
        }
        StepCourse {
            memory_over_time: MemoryOverTime::of(log, fullest, true, seconds, |idx, _| ends[idx]),
            memory_peak,
            kernels: kernel_times(logs, spans),
            timeline: if logs.len() > 1 {
                rows_of_positions(logs.len(), spans)
            } else {
                rows_of_lanes(&logs[0], spans)
            },
        }
    }
}

fn kernel_spans(spans: &[SimSpan]) -> impl Iterator<Item = &SimSpan> {
    spans.iter().filter(|span| span.lane == SimLane::Compute && span.event.is_some())
}

fn kernel_times(logs: &[Arc<StepLog>], spans: &[SimSpan]) -> Vec<KernelTime> {
    let mut times: HashMap<Kernel, KernelTime> = HashMap::new();
    for span in kernel_spans(spans) {
        let event = span.event.map(|idx| logs[span.position].events.at(idx).kind);
        let Some(EventKind::Kernel(kernel)) = event else { continue };
        let Kernel { op, dims, dtype, .. } = kernel;
        let time = times.entry(kernel).or_insert_with(|| {
            let (op, dtype) = (op.name(), dtype.name());
            KernelTime { op, dims, dtype, count: 0, flops: 0.0, bytes: 0.0, seconds: 0.0 }
        });
        time.count += 1;
        time.flops += kernel.flops as f64;
        time.bytes += kernel.bytes() as f64;
        time.seconds += span.duration;
    }
    let mut times: Vec<KernelTime> = times.into_values().collect();
    let name = |time: &KernelTime| (time.op, time.dims, time.dtype);
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| name(a).cmp(&name(b))));
    times.truncate(MOST_KERNELS);
    times
}

/// Returns the computations of the schedule.
fn rows_of_positions(positions: usize, spans: &[SimSpan]) -> Vec<TimelineRow> {
    let row = |position: usize| TimelineRow { name: position.to_string(), segments: Vec::new() };
    let mut rows: Vec<TimelineRow> = (0..positions).map(row).collect();
    for span in spans.iter().filter(|span| span.lane == SimLane::Action) {
        let Name::Of(kind, place) = &span.name else { continue };
        let stage = place.split('.').next().and_then(|stage| stage.parse().ok());
        rows[span.position].segments.push(TimelineSegment {
            kind,
            is_later: stage.is_some_and(|stage: usize| stage >= positions),
            label: Some(span.name.clone()),
            ..segment(span)
        });
    }
    in_order(rows)
}

/// Returns the kernels by pass, and the calls, of the only position.
fn rows_of_lanes(log: &StepLog, spans: &[SimSpan]) -> Vec<TimelineRow> {
    let mut rows: Vec<TimelineRow> = Vec::new();
    for span in spans {
        let Some(event) = span.event.map(|idx| log.events.at(idx)) else { continue };
        let kind = match (span.lane, log.context(&event).pass) {
            (SimLane::Compute, Pass::Forward) => "F",
            (SimLane::Compute, Pass::Backward) => "B",
            (SimLane::Compute, pass) => pass_name(pass),
            _ => "communication",
        };
        let name = span.lane.to_string();
        let row = match rows.iter_mut().position(|row| row.name == name) {
            Some(known) => &mut rows[known],
            None => rows.push_mut(TimelineRow { name, segments: Vec::new() }),
        };
        row.segments.push(TimelineSegment { kind, ..segment(span) });
    }
    in_order(rows)
}

fn segment(span: &SimSpan) -> TimelineSegment {
    let (start, end) = (span.start.max(0.0), span.start + span.duration);
    TimelineSegment { start, end, kind: "", is_later: false, label: None }
}

fn in_order(mut rows: Vec<TimelineRow>) -> Vec<TimelineRow> {
    rows.iter_mut().for_each(|row| row.segments.sort_by(|a, b| a.start.total_cmp(&b.start)));
    rows
}
