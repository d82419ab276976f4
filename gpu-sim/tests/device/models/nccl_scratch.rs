//! Scratch memory of collectives between ranks with a GPU each: it is part of the rank's memory, and calls that follow
//! each other use the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::backend::{Buffer, Category, DType, GraphPool};
use meshwright::comm::{Blocks, CommError, LaunchError, Site, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::tensor::{Rank, Settings};
use meshwright::train::Machine;
use meshwright_gpu_sim::not_checked_on_gpu;

use super::nccl::Cluster;

/// Rows of a gathered tensor, and elements of a row on each of two ranks.
const ROWS: usize = 4;
const PART: usize = 64;
/// Elements of a gathered tensor, and bytes of the scratch in which its rows are joined.
const WHOLE: usize = ROWS * 2 * PART;
const SCRATCH: usize = 4 * WHOLE;
/// Calls that follow each other.
const CALLS: usize = 8;

/// Runs `body` on two ranks, whose communicators are over `tp`.
fn on_ranks<R: Send>(
    settings: Settings,
    body: impl Fn(&Rank) -> R + Sync,
) -> Result<Vec<R>, LaunchError<CommError>> {
    let cluster = Cluster::new(2);
    launch(&"tp=2".parse().unwrap(), |comms| {
        let backend = cluster.backend(comms.rank()).unwrap();
        let comms = cluster.connect(comms, &*backend).unwrap();
        Ok(body(&Rank::with_settings(comms, backend, settings)))
    })
}

fn part_of(rank: &Rank) -> Buffer {
    let values = [rank.index() as f32 + 1.0; ROWS * PART];
    rank.allocator().copy_of(&values, Category::Activations)
}

fn room(rank: &Rank) -> Buffer {
    rank.allocator().zeros(DType::F32, WHOLE, Category::Activations)
}

/// Checks the parts of both ranks in each row.
fn check_rows(whole: &Buffer) {
    for row in whole.view().to_vec::<f32>().chunks_exact(2 * PART) {
        let (first, second) = row.split_at(PART);
        assert!(first.iter().all(|x| *x == 1.0) && second.iter().all(|x| *x == 2.0), "{row:?}");
    }
}

fn gather(rank: &Rank, part: &Buffer, whole: &mut Buffer) {
    let group = rank.group(AxisSet::of(AxisId::Tp));
    let blocks = Blocks::even(ROWS, PART, 2);
    group.all_gather(&Site::new("x"), part.view(), whole.view_mut(), &blocks).unwrap();
}

/// Returns the peak of the memory of communication, in bytes.
fn peak(rank: &Rank) -> usize {
    let mut peaks = rank.allocator().peak();
    peaks.find(|(category, _)| *category == Category::Communication).unwrap().1
}

/// Calls that are claimed immediately, as in tensor parallelism.
#[test]
fn scratch_of_claimed_calls_is_reused() {
    if not_checked_on_gpu() {
        return;
    }
    let peaks = on_ranks(Settings::new(1), |rank| {
        let (part, mut whole) = (part_of(rank), room(rank));
        (0..CALLS).for_each(|_| gather(rank, &part, &mut whole));
        check_rows(&whole);
        peak(rank)
    });
    assert_eq!(peaks.unwrap(), [SCRATCH; 2]);
}

/// Calls in flight together, as in gradient reductions: their stream runs them one after the other.
#[test]
fn scratch_of_calls_in_flight_is_shared() {
    if not_checked_on_gpu() {
        return;
    }
    let peaks = on_ranks(Settings::new(1), |rank| {
        let (part, group) = (Arc::new(part_of(rank)), rank.group(AxisSet::of(AxisId::Tp)));
        let (site, blocks) = (Site::new("x"), Blocks::even(ROWS, PART, 2));
        let start = |whole| group.start_all_gather(&site, Arc::clone(&part), whole, &blocks);
        let calls: Vec<_> = (0..CALLS).map(|_| start(room(rank))).collect();
        calls.into_iter().for_each(|call| check_rows(&call.wait().unwrap()));
        peak(rank)
    });
    assert_eq!(peaks.unwrap(), [SCRATCH; 2]);
}

#[test]
fn scratch_of_captured_calls_is_reused() {
    if not_checked_on_gpu() {
        return;
    }
    let peaks = on_ranks(Settings::new(1), |rank| {
        let (part, mut whole) = (part_of(rank), room(rank));
        // A capture uses only streams that were used before.
        gather(rank, &part, &mut whole);
        let mut pools = rank.comms().engine().graph_pools().unwrap();
        pools.push(Arc::clone(rank.allocator()));
        let pool = GraphPool::new(rank.allocator().device().unwrap(), &pools);
        let calls = |()| (0..CALLS).for_each(|_| gather(rank, &part, &mut whole));
        let ((), graph) = pool.capture(|| (), calls).unwrap();
        for _ in 0..2 {
            whole.view_mut().clear();
            let mut submit = || graph.replay();
            rank.comms().replay("x", &BTreeMap::new(), &mut submit).unwrap();
            check_rows(&whole);
        }
        peak(rank)
    });
    assert_eq!(peaks.unwrap(), [SCRATCH; 2]);
}

#[test]
fn scratch_counts_against_the_memory_limit() {
    if not_checked_on_gpu() {
        return;
    }
    let operands = SCRATCH / 2 + SCRATCH;
    let run = |limit| {
        let settings = Settings { memory_limit: Some(limit), ..Settings::new(1) };
        on_ranks(settings, |rank| gather(rank, &part_of(rank), &mut room(rank)))
    };
    run(operands + SCRATCH).unwrap_or_else(|error| panic!("{error}"));
    let error = run(operands + SCRATCH - 1).unwrap_err().to_string();
    assert!(error.contains("out of memory: ") && error.contains("communication"), "{error}");
}
