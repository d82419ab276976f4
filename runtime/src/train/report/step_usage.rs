//! Communication and FLOPs of a step on one rank.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::comm::CommTimes;
use crate::layout::AxisSet;
use crate::tensor::Rank;

/// Communication and FLOPs of one or more steps on this rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepUsage {
    /// Executed FLOPs, and the FLOPs of recomputation among them.
    pub flops: [u64; 2],
    /// Bytes sent, and times, by the axes of the process group.
    pub comm: BTreeMap<AxisSet, (u64, CommTimes)>,
    /// Time of the step.
    pub step_time: Duration,
    /// Time of waits for the batch.
    pub data_wait: Duration,
}

impl StepUsage {
    /// Runs `step`, and returns its result and its usage.
    pub fn of<T>(rank: &Rank, step: impl FnOnce() -> T) -> (T, StepUsage) {
        let start = UsageStart::new(rank);
        let result = step();
        (result, start.end(rank))
    }

    /// Adds the usage of another step.
    pub fn add(&mut self, other: &StepUsage) {
        for (axes, (bytes, times)) in &other.comm {
            let (total_bytes, total_times) = self.comm.entry(*axes).or_default();
            *total_bytes += bytes;
            *total_times += *times;
        }
        self.step_time += other.step_time;
        self.data_wait += other.data_wait;
        for (total, flops) in self.flops.iter_mut().zip(other.flops) {
            *total += flops;
        }
    }

    /// Returns the usage with a share of that of something which happens once in `every` steps.
    pub fn with_share(mut self, other: &StepUsage, every: u64) -> StepUsage {
        for (axes, (bytes, _)) in &other.comm {
            self.comm.entry(*axes).or_default().0 += bytes / every;
        }
        self
    }

    /// Returns the bytes that this rank has sent, by axes; 0 for an axis without traffic.
    pub fn sent_bytes(&self, rank: &Rank) -> BTreeMap<String, u64> {
        let axes = AxisSet::ALL.iter().filter(|axis| rank.comms().shape().degree(*axis) > 1);
        let mut sent: BTreeMap<String, u64> = axes.map(|axis| (axis.to_string(), 0)).collect();
        let used = self.comm.iter().filter(|(_, (bytes, _))| *bytes > 0);
        sent.extend(used.map(|(axes, (bytes, _))| (axes.to_string(), *bytes)));
        sent
    }
}

/// The counters of a rank at the start of a step.
#[derive(Debug)]
pub struct UsageStart {
    flops: [u64; 2],
    bytes: BTreeMap<AxisSet, u64>,
    times: BTreeMap<AxisSet, CommTimes>,
}

impl UsageStart {
    /// Reads the counters of `rank`.
    pub fn new(rank: &Rank) -> UsageStart {
        let (bytes, times) = (rank.comms().bytes_by_axes(), rank.comms().times_by_axes());
        UsageStart { flops: flop_counters(rank), bytes, times }
    }

    /// Returns the usage since the start.
    pub fn end(&self, rank: &Rank) -> StepUsage {
        let mut usage = StepUsage::default();
        for (axes, now) in rank.comms().bytes_by_axes() {
            let (sent, _) = usage.comm.entry(axes).or_default();
            *sent = now - self.bytes.get(&axes).copied().unwrap_or_default();
        }
        for (axes, now) in rank.comms().times_by_axes() {
            let (_, spent) = usage.comm.entry(axes).or_default();
            *spent += now - self.times.get(&axes).copied().unwrap_or_default();
        }
        let (before, after) = (self.flops, flop_counters(rank));
        usage.flops = [after[0] - before[0], after[1] - before[1]];
        usage
    }
}

fn flop_counters(rank: &Rank) -> [u64; 2] {
    [rank.backend().flops(), rank.recomputed_flops()]
}
