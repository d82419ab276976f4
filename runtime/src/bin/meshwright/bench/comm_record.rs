//! Measured collectives as JSON, which calibrations read, and as curves.

use meshwright::bench::MEASURED_AXIS;
use meshwright::train::Machine;
use meshwright_sim::calibrate::{CallRecord, RecordedDevice, StepRecord};
use serde_json::{Value, json};

use super::comm_cases::{CommCases, MeasuredCollective};
use super::output::Curves;

/// Returns a record without steps and kernels. Its `calls` are those that the curves of links describe; `collectives`
/// has all measurements.
pub fn comm_record(
    cases: &CommCases,
    machine: &dyn Machine,
    measured: &[MeasuredCollective],
) -> Value {
    let (format, version) = StepRecord::format();
    let (device, memory) = (machine.device(), machine.memory().unwrap_or(0.0));
    let memory = if device.is_gpu { memory / cases.ranks as f64 } else { memory };
    let call = |one: &MeasuredCollective| {
        let bytes =
            if one.collective.name == "send_recv" { one.time.size as u64 } else { one.time.sent };
        Some(CallRecord {
            op: one.collective.call?.to_owned(),
            group: cases.ranks,
            bytes,
            count: one.time.calls,
            seconds: one.time.seconds,
        })
    };
    let record = StepRecord {
        format,
        version,
        device: RecordedDevice {
            kind: if device.is_gpu { "cuda" } else { "cpu" }.to_owned(),
            name: device.name,
            units: device.units,
            memory: memory as u64,
        },
        mesh: format!("{MEASURED_AXIS}={}", cases.ranks),
        ranks: cases.ranks,
        sharing_ranks: if device.is_gpu { device.ranks_each } else { cases.ranks },
        dtype: cases.dtype.name().to_owned(),
        step_seconds: 0.0,
        recorded_seconds: 0.0,
        host_seconds: 0.0,
        measured_steps: 0,
        kernels: Vec::new(),
        calls: measured.iter().filter_map(call).collect(),
    };
    let collective = |one: &MeasuredCollective| {
        json!({
            "name": one.collective.name,
            "size": one.time.size,
            "seconds": one.time.seconds,
            "calls": one.time.calls,
            "sent": one.time.sent,
            "algorithm_bandwidth": one.time.algorithm_bandwidth(),
            "bus_bandwidth": cases.bus_bandwidth(one),
        })
    };
    let mut value = serde_json::to_value(record).unwrap_or_default();
    value["collectives"] = measured.iter().map(collective).collect();
    value
}

/// Returns the bus bandwidths by size.
pub fn bandwidth_curves(cases: &CommCases, measured: &[MeasuredCollective]) -> Curves {
    let curve = |name: &str| {
        let own = measured.iter().filter(|one| one.collective.name == name);
        own.map(|one| (one.time.size as u64, cases.bus_bandwidth(one) / 1e9)).collect()
    };
    let names = cases.collectives.iter().filter(|one| one.has_data()).map(|one| one.name);
    Curves {
        title: format!("bus bandwidth between {} ranks (GB/s)", cases.ranks),
        sizes: "bytes of the whole tensor",
        curves: names.map(|name| (name.to_owned(), curve(name))).collect(),
        is_log: true,
    }
}
