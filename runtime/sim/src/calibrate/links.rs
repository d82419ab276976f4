//! Latencies and bandwidths of collectives and messages.

use std::collections::BTreeMap;

use crate::cluster::{Figure, Gpu, Level, MAX_GPUS, Origin, Trust};
use crate::record::CommOpKind;
use crate::time::{GroupLevel, collective_seconds, message_seconds};

use super::fit::minimize;
use super::kernels::is_left_out;
use super::{CallRecord, CurveError, StepRecord};

/// Shapes of calls below which latency and bandwidth cannot be told apart.
const FEWEST_SHAPES: usize = 2;

/// Returns the levels of the cluster of a GPU. The calls of records replace the constants of the innermost of the
/// `known` levels.
pub fn fit(
    known: Option<Vec<Level>>,
    records: &[&StepRecord],
    gpu: &Gpu,
    origin: &Origin,
) -> (Vec<Level>, Vec<CurveError>) {
    let mut levels = known.unwrap_or_else(|| vec![assumed_level(gpu)]);
    // If ranks are more than the cores, calls also wait for a core, which kernels have in the meantime.
    let has_cores = |record: &&&StepRecord| !gpu.is_shared() || record.sharing_ranks <= gpu.units;
    let with_calls = || records.iter().filter(|record| !record.calls.is_empty());
    let mut chosen: Vec<&&StepRecord> = with_calls().filter(has_cores).collect();
    if chosen.is_empty() {
        chosen = with_calls().collect();
    }
    let within = levels[0].size;
    let calls = chosen.iter().flat_map(|record| &record.calls);
    let calls = calls
        .filter(|call| call.group > 1 && call.group <= within && call.seconds > 0.0)
        .filter_map(|call| Some((kind_of(&call.op)?, call)));
    let calls = fastest(calls);
    if calls.len() < FEWEST_SHAPES {
        return (levels, Vec::new());
    }
    let kept = calls.iter().enumerate().filter(|(idx, _)| !is_left_out(*idx));
    let partial = fit_level(&levels[0], &kept.map(|(_, call)| *call).collect::<Vec<_>>(), origin);
    let left_out = calls.iter().enumerate().filter(|(idx, _)| is_left_out(*idx));
    let left_out: Vec<(f64, f64)> = left_out
        .map(|(_, (op, call))| {
            (seconds(&partial, *op, call) / call.seconds, call.seconds * call.count as f64)
        })
        .collect();
    let error = CurveError::of_ratios("collectives", calls.len(), &left_out);
    levels[0] = fit_level(&levels[0], &calls, origin);
    (levels, vec![error])
}

/// Returns the fastest of equal calls: others were held up by a member.
fn fastest<'a>(
    calls: impl Iterator<Item = (CommOpKind, &'a CallRecord)>,
) -> Vec<(CommOpKind, &'a CallRecord)> {
    let mut by_shape: BTreeMap<_, (CommOpKind, &CallRecord)> = BTreeMap::new();
    for (op, call) in calls {
        let known = by_shape.entry((op, call.group, call.bytes)).or_insert((op, call));
        if call.seconds < known.1.seconds {
            *known = (op, call);
        }
    }
    by_shape.into_values().collect()
}

/// Fits latency, its growth, and the bandwidths of collectives and of messages.
fn fit_level(level: &Level, calls: &[(CommOpKind, &CallRecord)], origin: &Origin) -> Level {
    let start = [
        level.latency.value,
        level.latency_per_doubling.value,
        level.collective_bandwidth.value,
        level.message_bandwidth.value,
    ];
    // The shortest call has the latency, too.
    let shortest = calls.iter().map(|(_, call)| call.seconds).fold(1e-1, f64::min).max(2e-7);
    let bounds = [[1e-7, shortest], [1e-9, shortest], [1e6, 1e13], [1e6, 1e13]];
    let has_messages = calls.iter().any(|(op, _)| op.is_message());
    let with = |constants: &[f64]| {
        let figure = |value: f64| Figure { value, origin: origin.clone() };
        let message = if has_messages { constants[3] } else { constants[2] };
        Level {
            latency: figure(constants[0]),
            latency_per_doubling: figure(constants[1]),
            collective_bandwidth: figure(constants[2]),
            message_bandwidth: figure(message),
            bandwidth: figure(constants[2].max(message)),
            all_reduce_bandwidth: None,
            ..level.clone()
        }
    };
    let constants = minimize(&start.map(|value| value.max(1e-9)), &bounds, |constants| {
        let level = with(constants);
        let loss = |(op, call): &(CommOpKind, &CallRecord)| {
            let weight = call.seconds * call.count as f64;
            weight * (seconds(&level, *op, call) / call.seconds).ln().powi(2)
        };
        calls.iter().map(loss).sum()
    });
    with(&constants)
}

/// Returns the predicted seconds of a call over one level.
fn seconds(level: &Level, op: CommOpKind, call: &CallRecord) -> f64 {
    if op.is_message() {
        return message_seconds(level, level.message_bandwidth.value, call.bytes as f64);
    }
    let group = GroupLevel { level, inside: 1.0, groups: call.group as f64 };
    collective_seconds(op, call.bytes as f64, &[group])
}

/// A level of any number of ranks, for a machine without measured calls.
fn assumed_level(gpu: &Gpu) -> Level {
    let origin = Origin {
        source: "half of the memory bandwidth, as no record has communication".into(),
        trust: Trust::Guess,
    };
    let figure = |value: f64| Figure { value, origin: origin.clone() };
    let bandwidth = 0.5 * gpu.memory_bandwidth.value;
    Level {
        name: "machine".into(),
        size: MAX_GPUS,
        bandwidth: figure(bandwidth),
        collective_bandwidth: figure(bandwidth),
        all_reduce_bandwidth: None,
        message_bandwidth: figure(bandwidth),
        latency: figure(2e-5),
        latency_per_doubling: figure(1e-5),
    }
}

fn kind_of(name: &str) -> Option<CommOpKind> {
    CommOpKind::ALL.iter().copied().find(|op| op.name() == name)
}
