//! The executor on the engine `local`, with stages whose results depend on every message.

mod agreement;
mod delays;
mod evaluation;
mod faults;
mod hooked_engine;
mod integer_stages;
mod order;
mod results;
mod times;
mod traces;

use std::sync::Arc;
use std::time::Duration;

use crate::schedule::{Schedule, ScheduleKind, Verified, verify};
use meshwright_backend::{CachingAllocator, Category};
use meshwright_comm::{CommError, LaunchError, LaunchOptions, RankComms, Site, launch_with};
use meshwright_core::layout::{AxisId, AxisSet};
use meshwright_mesh::MeshShape;

use super::{ExecutorError, PipelineExecutor};
use integer_stages::{IntegerStages, StageResults, boundary_parts};

const PP: AxisSet = AxisSet::of(AxisId::Pp);

/// An error of a rank.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error("{0}")]
    Stage(String),
}

/// Results of a step of one rank.
struct RankStep {
    results: StageResults,
    /// Bytes sent along `pp`.
    sent_bytes: u64,
    /// The peak of received buffers, in bytes.
    received_peak: usize,
}

fn mesh(ranks: usize) -> MeshShape {
    MeshShape::new([(AxisId::Pp, ranks)]).unwrap()
}

/// Every named schedule on `ranks`, with several numbers of micro-batches.
fn named_schedules(ranks: usize) -> impl Iterator<Item = Schedule> {
    let mut micro_batches = vec![1, ranks - 1, ranks, 2 * ranks + 1];
    micro_batches.retain(|count| *count > 0);
    micro_batches.dedup();
    let kinds = ScheduleKind::ALL.into_iter().flat_map(|kind| match kind {
        ScheduleKind::Interleaved => vec![(kind, 2), (kind, 3)],
        _ => vec![(kind, kind.default_chunks())],
    });
    kinds.flat_map(move |(kind, chunks)| {
        let counts = micro_batches.clone().into_iter();
        counts.map(move |count| kind.generate(ranks, chunks, count).unwrap())
    })
}

/// Verifies a schedule. One with messages may have been lowered with another lookahead than that of its generator.
fn verified(schedule: &Schedule) -> Arc<Verified> {
    let kind = schedule.kind.filter(|_| !schedule.is_lowered());
    let verified = verify(&Schedule { kind, ..schedule.clone() });
    Arc::new(verified.unwrap_or_else(|findings| panic!("{findings:?}\n{schedule:?}")))
}

/// Runs a step of `schedule` on all ranks, whose communicators and stages are prepared by `prepare`. It ends with a
/// barrier, as a training step ends with a collective.
fn try_step(
    schedule: &Schedule,
    prepare: impl Fn(RankComms, &mut IntegerStages) -> RankComms + Sync,
) -> Result<Vec<RankStep>, LaunchError<TestError>> {
    let options = LaunchOptions { timeout: Duration::from_secs(20), ..LaunchOptions::default() };
    let verified = verified(schedule);
    launch_with(&options, &mesh(schedule.ranks.len()), |comms| {
        let mut stages = IntegerStages::new(schedule.stages());
        let comms = prepare(comms, &mut stages);
        let allocator = CachingAllocator::new();
        let executor = PipelineExecutor::new(&comms, &allocator, &verified)?;
        let parts = executor.agree_on_parts(boundary_parts)?;
        let comm = comms.group(PP);
        let before = comm.comm_bytes();
        executor.run_step(&parts, &mut stages)?;
        let sent_bytes = comm.comm_bytes() - before;
        comm.barrier(&Site::here("end of the step"))?;
        let of_category = |(category, _): &(Category, usize)| *category == Category::Communication;
        let received_peak = allocator.peak().find(of_category).map_or(0, |(_, bytes)| bytes);
        assert_eq!(allocator.live().find(of_category).map(|(_, bytes)| bytes), Some(0));
        Ok(RankStep { results: stages.into_results(), sent_bytes, received_peak })
    })
}

/// Runs a step that succeeds, and returns the results of each rank.
fn run_step(schedule: &Schedule) -> Vec<RankStep> {
    try_step(schedule, |comms, _| comms).unwrap_or_else(|error| panic!("{error}\n{schedule:?}"))
}

/// Runs a step, and compares its results with the results of all stages in one loop.
fn check_step(
    schedule: &Schedule,
    prepare: impl Fn(RankComms, &mut IntegerStages) -> RankComms + Sync,
) {
    let steps = try_step(schedule, prepare).unwrap_or_else(|e| panic!("{e}\n{schedule:?}"));
    let mut merged = StageResults::default();
    for step in steps {
        merged.merge(step.results);
    }
    merged.check_against_reference(schedule.stages(), schedule.micro_batches);
}
