//! Resource usage of a run: peak memory, communication, and recomputed FLOPs.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::Category;
use crate::comm::{Blocks, Site};
use crate::layout::AxisId;
use crate::tensor::Rank;

use crate::train::Result;
use crate::train::plan::MemoryPlan;

use super::PeakFlops;
use super::observer::{StepObserver, StepReport};
use super::step_usage::StepUsage;

/// Resource usage of a run: its memory, and the communication and FLOPs of its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Memory by category, then in total. Categories need not peak at the same time.
    pub memory: Vec<MemoryUse>,
    /// Communication of rank 0 in all steps, by the axes of the process group.
    pub communication: Vec<AxisUse>,
    /// Time of all steps on rank 0.
    pub step_time: Duration,
    /// Time that rank 0 has waited for batches in all steps.
    pub data_wait: Duration,
    /// FLOPs of all ranks in all steps. Attention on a CPU computes whole blocks of masked scores, which count.
    pub flops: f64,
    /// FLOPs of all ranks in a step by the memory plan, in which attention has only the scores that are not masked;
    /// `None` if its dry run has left out micro-batches.
    pub planned_flops: Option<f64>,
    /// Recomputed FLOPs, as a fraction of all FLOPs of the steps.
    pub recomputed: f64,
    /// The implementations of attention on the device of rank 0, and why they run, such as `own kernels (scores have a
    /// bias)`; `None` on a CPU, which has one.
    pub attention: Option<String>,
    /// The peak that `mfu` and `hfu` of `--metrics` refer to; `None` without them.
    pub peak: Option<PeakFlops>,
}

/// Communication over some axes; times are as in [`CommTimes`](crate::comm::CommTimes).
#[derive(Debug, Clone, PartialEq)]
pub struct AxisUse {
    /// The axes: `fsdp`, `dp x fsdp`.
    pub axes: String,
    /// Bytes that a step sends by the memory plan; `None` if its dry run has left out micro-batches.
    pub planned: Option<u64>,
    /// Bytes sent.
    pub bytes: u64,
    /// Time overlapped with computation.
    pub overlapped: Duration,
    /// Exposed time, during which computation waited.
    pub exposed: Duration,
}

/// Bytes of one category of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUse {
    /// Name of the category, or `total`.
    pub category: &'static str,
    /// Lower bound of a rank's bytes, from the memory plan.
    pub planned: u64,
    /// Peak bytes of any rank.
    pub peak: u64,
}

impl StepUsage {
    /// Returns the usage of all steps. Every rank calls it.
    pub fn report(&self, rank: &Rank, plan: &MemoryPlan) -> Result<Report> {
        let mut flops = self.flops.map(|flops| flops as f64);
        rank.sum_over_ranks(&Site::new("report"), &mut flops);
        let ranks_each = rank.comms().shape().world_size() / rank.degree(AxisId::Pp);
        let planned: u64 = plan.usage().iter().map(|usage| usage.flops[0]).sum();
        Ok(Report {
            memory: memory_use(rank, plan)?,
            communication: self.communication(plan.usage().first()),
            step_time: self.step_time,
            data_wait: self.data_wait,
            flops: flops[0],
            planned_flops: (planned > 0).then_some(planned as f64 * ranks_each as f64),
            recomputed: if flops[0] > 0.0 { flops[1] / flops[0] } else { 0.0 },
            attention: rank.backend().attention_implementations(),
            peak: None,
        })
    }

    fn communication(&self, planned: Option<&StepUsage>) -> Vec<AxisUse> {
        let used = self.comm.iter().filter(|(_, (bytes, _))| *bytes > 0);
        used.map(|(axes, (bytes, times))| AxisUse {
            axes: axes.to_string(),
            planned: planned.map(|step| step.comm.get(axes).map_or(0, |(bytes, _)| *bytes)),
            bytes: *bytes,
            overlapped: times.overlapped,
            exposed: times.exposed,
        })
        .collect()
    }
}

/// Sums the usage of all steps.
impl StepObserver for StepUsage {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        self.add(&report.usage);
        Ok(())
    }
}

/// Returns planned and peak memory so far, by category and in total. Every rank calls it.
pub fn memory_use(rank: &Rank, plan: &MemoryPlan) -> Result<Vec<MemoryUse>> {
    let peaks = peak_bytes(rank)?;
    let of = |category: &'static str, planned| MemoryUse {
        category,
        planned,
        peak: peaks.get(category).copied().unwrap_or(0),
    };
    let memory = Category::ALL.map(|category| of(category.name(), plan.peak_of(category)));
    Ok(memory.into_iter().chain([of(TOTAL, plan.total())]).collect())
}

/// All categories together, in metrics and reports.
const TOTAL: &str = "total";

/// Returns the peak bytes of any rank so far, by category and in total. Every rank calls it, and all get the same
/// result.
pub fn peak_bytes(rank: &Rank) -> Result<BTreeMap<&'static str, u64>> {
    let allocator = rank.allocator();
    let mut peaks: Vec<(&'static str, u64)> =
        allocator.peak().map(|(category, bytes)| (category.name(), bytes as u64)).collect();
    peaks.push((TOTAL, allocator.total_peak() as u64));
    // Collectives take 32-bit elements.
    let halves: Vec<u32> =
        peaks.iter().flat_map(|(_, bytes)| [(bytes >> 32) as u32, *bytes as u32]).collect();
    let world = rank.comms().world();
    let counts = Blocks::new(1, vec![halves.len(); world.size()]);
    let mut all = vec![0u32; halves.len() * world.size()];
    world.all_gather(
        &Site::new("peak memory"),
        halves.as_slice().into(),
        all.as_mut_slice().into(),
        &counts,
    )?;
    let max_over_ranks = |index: usize| {
        let of_rank =
            |halves: &[u32]| u64::from(halves[2 * index]) << 32 | u64::from(halves[2 * index + 1]);
        all.chunks_exact(halves.len()).map(of_rank).max().unwrap_or(0)
    };
    Ok(peaks.iter().enumerate().map(|(index, (name, _))| (*name, max_over_ranks(index))).collect())
}

#[cfg(test)]
mod tests {
    use crate::models::llama::Llama;
    use crate::train::{Config, Trainer};

    /// Muon divides its matrices, and so its work, unevenly between the ranks.
    #[test]
    fn muon_takes_what_was_planned() {
        for flags in [
            "--mesh dp=4",
            "--mesh fsdp=4 --zero 2",
            "--mesh dp=2,fsdp=2 --zero 1",
            "--mesh pp=2,dp=2,fsdp=2 --layers 4 --micro-batches 2",
            "--mesh cp=2,tp=2",
        ] {
            let line = format!(
                "t --hidden 32 --heads 4 --seq 8 --batch 8 --steps 1 --threads 1 --sample-tokens 0 --quiet \
                 --optimizer muon {flags}"
            );
            let layers = if flags.contains("--layers") { "" } else { " --layers 3" };
            let config = Config::parse((line + layers).split_whitespace()).unwrap();
            let report = Trainer::<Llama>::new(config).unwrap().train().unwrap().report;
            for used in &report.memory {
                let is_whole = ["communication", "optimizer", "total"].contains(&used.category);
                assert!(!is_whole || used.planned >= used.peak, "{flags}: {used:?}");
            }
            // The first step of a pipeline sends more.
            for axis in report.communication.iter().filter(|axis| !axis.axes.contains("pp")) {
                assert_eq!(axis.planned, Some(axis.bytes), "{flags}: {axis:?}");
            }
            let ratio = report.planned_flops.unwrap() / report.flops;
            assert!((0.97..1.0 + 1e-6).contains(&ratio), "{flags}: {ratio}");
        }
    }
}
