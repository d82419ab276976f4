//! CUDA graphs of the forward and backward passes of one micro-batch, or of several that a pipeline schedule mixes:
//! they are captured once and replayed as one graph launch.
//!
//! Only the tokens of a pass and their documents differ from step to step; they are uploaded before it. The host's work
//! in a pass is not repeated: counters are advanced by the amounts that the captured pass has added, and parameters are
//! where the pass leaves them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::{Rank, fail};
use crate::fsdp::CapturedBuffers;
use crate::layout::{AxisSet, Dims};
use meshwright_backend::{CapturedGraph, Category, DType, GraphBuffer, GraphPool};
use meshwright_comm::CommStats;

use super::captured_input::{CapturedInput, InputCapture, InputPass};
use super::key_ranges::KeyBlocks;
use super::row_losses::RowSums;
use super::{Gradients, Metric};

/// CUDA graphs of a rank: they share its context, and the private memory pool.
pub struct PassGraphs {
    rank: Rank,
    recordings: Arc<GraphPool>,
}

/// Captured passes of micro-batches with losses over `S`, which can be replayed.
pub struct CapturedPass<S> {
    recording: CapturedGraph,
    /// Inputs by micro-batch.
    inputs: Vec<CapturedInput>,
    /// Losses by micro-batch.
    losses: Vec<CapturedLoss>,
    units: Vec<CapturedBuffers>,
    added: Added,
    shape: std::marker::PhantomData<S>,
}

/// The losses of a capture by micro-batch, the captured passes, and a result of the captured work.
pub(crate) type Captured<S, T> = (Vec<Metric<S>>, CapturedPass<S>, T);

/// The memory that receives the loss of a micro-batch from a graph.
struct CapturedLoss {
    /// Address of its sum. `None` on a rank that does not compute it.
    sum: Option<GraphBuffer>,
    /// Addresses of the sums of its rows, by term, and their numbers.
    rows: Vec<(GraphBuffer, usize)>,
    /// Number of elements that it counts.
    count: f64,
}

/// Amounts that a pass adds to the counters of a rank.
struct Added {
    flops: u64,
    recomputed: u64,
    sent: BTreeMap<AxisSet, CommStats>,
}

/// Counters of operations that make passes differ from step to step, in addition to their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassVariation {
    waits: u64,
    step_reads: u64,
}

impl PassVariation {
    /// Returns the current counters of `rank`.
    #[doc(hidden)]
    pub fn current(rank: &Rank) -> PassVariation {
        let waits = rank.allocator().device().map_or(0, |device| device.waits());
        PassVariation { waits, step_reads: rank.step_reads() }
    }

    /// Returns the reason why the work of some rank since `before` cannot be captured, or `None` if that of all ranks
    /// can. Every rank calls it: ranks of different pipeline stages run different work.
    #[doc(hidden)]
    pub fn obstacle_since(self, before: PassVariation, rank: &Rank) -> Option<&'static str> {
        if !all_agree(rank, self.step_reads == before.step_reads) {
            return Some("the operations depend on the number of the step, as dropout does");
        }
        let never_waits = all_agree(rank, self.waits == before.waits);
        (!never_waits).then_some("the host reads numbers in every step")
    }
}

impl PassGraphs {
    /// Creates the graphs of a rank, empty; `None` if its device, or its communication engine, does not support
    /// capture.
    #[doc(hidden)]
    pub fn new(rank: &Rank) -> Option<PassGraphs> {
        let device = rank.allocator().device()?;
        let mut allocators = rank.comms().graph_pools()?;
        allocators.push(Arc::clone(rank.allocator()));
        Some(PassGraphs { rank: rank.clone(), recordings: GraphPool::new(device, &allocators) })
    }

    /// Returns true if the captured graphs are valid on this rank.
    #[doc(hidden)]
    pub fn are_whole(&self) -> bool {
        self.recordings.is_valid()
    }

    /// Returns true if the captured graphs are valid on all ranks. Every rank calls it.
    #[doc(hidden)]
    pub fn are_whole_everywhere(&self) -> bool {
        all_agree(&self.rank, self.are_whole())
    }

    /// Returns true if there are other ranks, which capture and replay the same passes.
    #[doc(hidden)]
    pub fn are_of_several_ranks(&self) -> bool {
        self.rank.comms().shape().world_size() > 1
    }

    /// Captures `work` on the inputs of `passes`, which `capture` creates, and launches it. `work` returns the losses
    /// of these micro-batches. Returns them, with its other result; no collective is left in progress. Every rank calls
    /// it.
    ///
    /// # Errors
    /// The reason why nothing was captured; then the step has to be repeated.
    #[doc(hidden)]
    pub fn record_passes<X, S: Dims, T>(
        &self,
        name: &str,
        passes: &[InputPass<'_>],
        capture: impl Fn(&InputCapture<'_>) -> (X, CapturedInput),
        work: impl FnOnce(Vec<X>) -> (Vec<Metric<S>>, T),
    ) -> Result<Captured<S, T>, String> {
        let rank = &self.rank;
        self.wait_for_transfers();
        let mut units = Vec::new();
        let before = LaunchCounters::of_rank(rank);
        let key_blocks = rank.session_state::<KeyBlocks>();
        let known_key_blocks = key_blocks.count();
        let prepare = || -> (Vec<X>, Vec<CapturedInput>) {
            let recordings = &self.recordings;
            units.extend(rank.units().iter().map(|unit| unit.captured_buffers(recordings)));
            passes.iter().map(|pass| capture(&InputCapture { rank, recordings, pass })).unzip()
        };
        let recorded = self.recordings.capture(prepare, |(data, inputs)| {
            let (losses, result) = work(data);
            rank.offloading().finish_transfers(rank);
            let losses: Option<Vec<_>> =
                losses.iter().map(|loss| CapturedLoss::new(loss, &self.recordings)).collect();
            (inputs, losses, result)
        });
        let recorded = recorded.and_then(|((inputs, losses, result), recording)| {
            if !self.are_whole() {
                return Err("there is not enough memory for the graphs".to_owned());
            }
            if key_blocks.count() > known_key_blocks {
                // In each replay their ranges are the ranges of the captured documents.
                return Err(
                    "attention reads blocks of keys that earlier steps have not read".to_owned()
                );
            }
            let losses = losses.ok_or("the loss was not computed on the device")?;
            let added = LaunchCounters::of_rank(rank).added_since(&before);
            let shape = std::marker::PhantomData;
            Ok((CapturedPass { recording, inputs, losses, units, added, shape }, result))
        });
        // Collectives of a graph do not match those that another rank issues eagerly.
        let everywhere = all_agree(rank, recorded.is_ok());
        let (recorded, result) = recorded?;
        if !everywhere {
            return Err("another rank could not capture them".to_owned());
        }
        let uncounted = recorded.added.sent.keys().map(|axes| (*axes, CommStats::default()));
        self.launch_graph(&recorded, name, &uncounted.collect());
        Ok((self.losses_of(&recorded), recorded, result))
    }

    /// Replays captured passes on other input. Returns `None` if buffers of parameters have moved.
    #[doc(hidden)]
    pub fn replay<S: Dims>(
        &self,
        name: &str,
        recorded: &CapturedPass<S>,
        passes: &[InputPass<'_>],
    ) -> Option<Vec<Metric<S>>> {
        let rank = &self.rank;
        self.wait_for_transfers();
        let units = rank.units();
        let all = units.len() == recorded.units.len();
        if !all
            || !units
                .iter()
                .zip(&recorded.units)
                .all(|(unit, inputs)| unit.prepare_for_replay(inputs))
        {
            return None;
        }
        for (input, pass) in recorded.inputs.iter().zip(passes) {
            input.write_input(rank, pass);
        }
        let Added { flops, recomputed, sent } = &recorded.added;
        self.launch_graph(recorded, name, sent);
        rank.backend().count_flops(*flops);
        rank.segments().count_flops(*recomputed);
        Some(self.losses_of(recorded))
    }

    /// Returns the gradients that passes, which counted `count` elements, have left in the units. The counts are still
    /// to be summed over the axes of `S` and `along`.
    #[doc(hidden)]
    pub fn gradients<S: Dims, State>(&self, count: f64, along: AxisSet) -> Gradients<State> {
        Gradients::of_latest_backward(&self.rank, S::VARIES.union(along), count)
    }

    /// Waits for all transfers in progress: a graph can only wait for its own events.
    fn wait_for_transfers(&self) {
        self.rank.units().iter().for_each(|unit| unit.wait_for_values());
        self.rank.offloading().finish_transfers(&self.rank);
    }

    fn launch_graph<S>(
        &self,
        recorded: &CapturedPass<S>,
        name: &str,
        sent: &BTreeMap<AxisSet, CommStats>,
    ) {
        let mut launch = || recorded.recording.replay();
        self.rank.comms().replay(name, sent, &mut launch).unwrap_or_else(|error| fail(error));
    }

    /// Copies the losses that were computed last, which the next replay overwrites.
    fn losses_of<S: Dims>(&self, recorded: &CapturedPass<S>) -> Vec<Metric<S>> {
        let loss_of = |loss: &CapturedLoss| {
            let Some(place) = &loss.sum else { return Metric::without_contribution(&self.rank) };
            let copy = |place: &GraphBuffer, len| {
                let mut copy = self.rank.allocator().alloc(DType::F32, len, Category::Activations);
                place.copy_to(&mut copy);
                copy
            };
            let rows = loss.rows.iter().map(|(place, len)| copy(place, *len)).collect();
            let metric = Metric::of_buffer(&self.rank, Arc::new(copy(place, 1)), loss.count);
            metric.with_rows(RowSums::of_buffers(rows))
        };
        recorded.losses.iter().map(loss_of).collect()
    }
}

/// Returns true if the vote of each rank is `yes`. Every rank calls it.
fn all_agree(rank: &Rank, yes: bool) -> bool {
    rank.comms().all_agree(yes).unwrap_or_else(|error| fail(error))
}

impl CapturedLoss {
    /// Returns `None` if the host has computed the loss.
    fn new<S: Dims>(loss: &Metric<S>, recordings: &Arc<GraphPool>) -> Option<CapturedLoss> {
        let (sum, count) = (loss.graph_buffer(recordings), loss.count());
        let rows = loss.rows().graph_buffers(recordings);
        (sum.is_some() || count == 0.0).then_some(CapturedLoss { sum, rows, count })
    }
}

impl<S: Dims> CapturedPass<S> {
    /// Returns the number of elements that the losses count.
    #[doc(hidden)]
    pub fn count(&self) -> f64 {
        self.losses.iter().map(|loss| loss.count).sum()
    }

    /// Returns true if these micro-batches can be replayed: as many, which ignore the same targets.
    #[doc(hidden)]
    pub fn accepts_passes(&self, passes: &[InputPass<'_>]) -> bool {
        let mut inputs = self.inputs.iter().zip(passes);
        self.inputs.len() == passes.len() && inputs.all(|(input, pass)| input.takes_pass(pass))
    }
}

/// Counters of a rank.
struct LaunchCounters {
    flops: u64,
    recomputed: u64,
    stats: BTreeMap<AxisSet, CommStats>,
}

impl LaunchCounters {
    fn of_rank(rank: &Rank) -> LaunchCounters {
        LaunchCounters {
            flops: rank.backend().flops(),
            recomputed: rank.recomputed_flops(),
            stats: rank.comms().stats(),
        }
    }

    fn added_since(&self, before: &LaunchCounters) -> Added {
        let sent = self.stats.iter().map(|(axes, now)| {
            let before = before.stats.get(axes).copied().unwrap_or_default();
            let (bytes, calls) = (now.bytes - before.bytes, now.calls - before.calls);
            (*axes, CommStats { bytes, calls, ..CommStats::default() })
        });
        Added {
            flops: self.flops - before.flops,
            recomputed: self.recomputed - before.recomputed,
            sent: sent.filter(|(_, stats)| stats.calls > 0).collect(),
        }
    }
}
