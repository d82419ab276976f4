//! What the steps of a run took: memory, communication, and FLOPs that were computed more than once.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::Category;
use crate::comm::{Blocks, CommTimes, Site};
use crate::layout::AxisSet;
use crate::tensor::Rank;

use crate::train::Result;
use crate::train::plan::MemoryPlan;

/// What the steps of a run took.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Memory by category, then of all categories together, which need not have their peaks at the same time.
    pub memory: Vec<MemoryUse>,
    /// Communication of the first rank in all steps together, by the axes of the group.
    pub communication: Vec<AxisUse>,
    /// FLOPs of what backward computed once more, as a share of all FLOPs of the steps.
    pub recomputed: f64,
}

/// Communication over some axes, in the sense of [`CommTimes`].
#[derive(Debug, Clone, PartialEq)]
pub struct AxisUse {
    /// The axes: `fsdp`, `dp x fsdp`.
    pub axes: String,
    /// Bytes sent.
    pub bytes: u64,
    /// Time in which the rank's own work went on meanwhile.
    pub hidden: Duration,
    /// Time that the rank's own work had to wait for, or spent on moving data.
    pub exposed: Duration,
}

/// Bytes of one category of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUse {
    /// Name of the category, or `total`.
    pub category: &'static str,
    /// Bytes that a rank needs at the least, as known before training.
    pub planned: u64,
    /// Highest number of bytes of any rank.
    pub peak: u64,
}

/// Adds up what steps take. Every rank has one.
#[derive(Debug, Default)]
pub struct Totals {
    /// Executed FLOPs, and those of them that computed something once more.
    flops: [u64; 2],
    comm: BTreeMap<AxisSet, (u64, CommTimes)>,
}

impl Totals {
    /// What `step` gives, with what it takes added up.
    pub fn count<T>(&mut self, rank: &Rank, step: impl FnOnce() -> T) -> T {
        let before = flops(rank);
        let (bytes, times) = (rank.comms().bytes_by_axes(), rank.comms().times_by_axes());
        let result = step();
        for (axes, now) in rank.comms().bytes_by_axes() {
            let (total, _) = self.comm.entry(axes).or_default();
            *total += now - bytes.get(&axes).copied().unwrap_or_default();
        }
        for (axes, now) in rank.comms().times_by_axes() {
            let (_, total) = self.comm.entry(axes).or_default();
            *total += now - times.get(&axes).copied().unwrap_or_default();
        }
        for ((total, before), after) in self.flops.iter_mut().zip(before).zip(flops(rank)) {
            *total += after - before;
        }
        result
    }

    /// What the steps took. Every rank calls it.
    pub fn report(&self, rank: &Rank, plan: &MemoryPlan) -> Result<Report> {
        let mut flops = self.flops.map(|flops| flops as f64);
        rank.all_reduce_f64(AxisSet::ALL, &Site::new("report"), &mut flops);
        let peaks = peak_bytes(rank)?;
        let of = |category: &'static str, planned| MemoryUse {
            category,
            planned,
            peak: peaks.get(category).copied().unwrap_or(0),
        };
        let memory = Category::ALL.map(|category| of(category.name(), plan.of(category)));
        Ok(Report {
            memory: memory.into_iter().chain([of(TOTAL, plan.total())]).collect(),
            communication: self.communication(),
            recomputed: if flops[0] > 0.0 { flops[1] / flops[0] } else { 0.0 },
        })
    }
}

impl Totals {
    fn communication(&self) -> Vec<AxisUse> {
        let used = self.comm.iter().filter(|(_, (bytes, _))| *bytes > 0);
        used.map(|(axes, (bytes, times))| AxisUse {
            axes: axes.to_string(),
            bytes: *bytes,
            hidden: times.hidden,
            exposed: times.exposed,
        })
        .collect()
    }
}

fn flops(rank: &Rank) -> [u64; 2] {
    [rank.backend().flops(), rank.recomputed_flops()]
}

/// All categories together, in metrics and reports.
const TOTAL: &str = "total";

/// Most bytes of any rank so far, by category, and of all categories together. Every rank calls it, and all get the
/// same.
pub fn peak_bytes(rank: &Rank) -> Result<BTreeMap<&'static str, u64>> {
    let meter = rank.meter();
    let mut peaks: Vec<(&'static str, u64)> =
        meter.peak().map(|(category, bytes)| (category.name(), bytes as u64)).collect();
    peaks.push((TOTAL, meter.total_peak() as u64));
    // Messages hold 32-bit elements.
    let halves: Vec<u32> =
        peaks.iter().flat_map(|(_, bytes)| [(bytes >> 32) as u32, *bytes as u32]).collect();
    let world = rank.comms().world();
    let counts = Blocks::new(1, vec![halves.len(); world.size()]);
    let mut all = vec![0u32; halves.len() * world.size()];
    world.all_gather(
        &Site::new("peaks of memory"),
        halves.as_slice().into(),
        all.as_mut_slice().into(),
        &counts,
    )?;
    let most = |index: usize| {
        let of_rank =
            |halves: &[u32]| u64::from(halves[2 * index]) << 32 | u64::from(halves[2 * index + 1]);
        all.chunks_exact(halves.len()).map(of_rank).max().unwrap_or(0)
    };
    Ok(peaks.iter().enumerate().map(|(index, (name, _))| (*name, most(index))).collect())
}
