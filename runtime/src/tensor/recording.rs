//! Passes over micro-batches, forward and backward, that are recorded on a device once and then done again at once.
//!
//! Of what a pass does on the device, only the tokens differ from step to step; they are uploaded before it. What the host
//! does in it besides, it does not do again: counters are advanced by what the recorded pass added, and parameters are where
//! the pass leaves them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::{Category, DType, Place, Recording, Recordings};
use crate::comm::CommStats;
use crate::layout::{AxisSet, Dims, Shape};

use super::rank::fail;
use super::unit::Inputs;
use super::{Gradients, Metric, Rank, Tokens};

/// What recorded passes share: a rank, and the memory that they use.
pub(crate) struct Passes {
    rank: Rank,
    recordings: Arc<Recordings>,
}

/// What is to be done in a pass.
pub(crate) struct Pass<'a> {
    /// Sizes of the global batch.
    pub sizes: &'a [usize],
    /// The first row of this rank's block.
    pub first: usize,
    pub tokens: &'a [u32],
    pub targets: &'a [u32],
    /// What messages call it.
    pub name: &'a str,
}

/// A pass that can be done again, of tokens shaped `S`.
pub(crate) struct RecordedPass<S> {
    recording: Recording,
    tokens: Place,
    targets: Place,
    /// Where the targets were ignored.
    ignored: Vec<bool>,
    /// The sum of the loss.
    sum: Place,
    /// Elements that the loss counts.
    count: u64,
    units: Vec<Inputs>,
    added: Added,
    shape: std::marker::PhantomData<S>,
}

/// What a pass adds to the counters of a rank.
struct Added {
    flops: u64,
    recomputed: u64,
    sent: BTreeMap<AxisSet, CommStats>,
}

/// Counts what makes passes differ from step to step besides their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Varies {
    waits: u64,
    step_reads: u64,
}

impl Varies {
    /// What was counted so far on `rank`.
    pub(crate) fn now(rank: &Rank) -> Varies {
        let waits = rank.meter().device().map_or(0, |device| device.waits());
        Varies { waits, step_reads: rank.step_reads() }
    }

    /// Why what was done since `before` cannot be done again as it was recorded, if it cannot.
    pub(crate) fn since(self, before: Varies) -> Option<&'static str> {
        if self.step_reads > before.step_reads {
            return Some("the number of the step is part, as it is where dropout draws");
        }
        (self.waits > before.waits).then_some("the host reads numbers in every step")
    }
}

impl Passes {
    /// Without any yet; none where the rank's device, or what connects it with others, cannot be recorded.
    pub(crate) fn new(rank: &Rank) -> Option<Passes> {
        let device = rank.meter().device()?;
        let mut meters = rank.comms().graph_pools()?;
        meters.push(Arc::clone(rank.meter()));
        Some(Passes { rank: rank.clone(), recordings: Recordings::new(device, &meters) })
    }

    /// Whether what was recorded can be done again on this rank.
    pub(crate) fn are_whole(&self) -> bool {
        self.recordings.are_whole()
    }

    /// Whether what was recorded can be done again on all ranks. Every rank calls it.
    pub(crate) fn are_whole_everywhere(&self) -> bool {
        self.agree(self.are_whole())
    }

    /// Whether there are other ranks, which do what this one does.
    pub(crate) fn are_of_several_ranks(&self) -> bool {
        self.rank.comms().shape().world_size() > 1
    }

    fn agree(&self, yes: bool) -> bool {
        self.rank.comms().agree(yes).unwrap_or_else(|error| fail(error))
    }

    /// Records `work` on the tokens and targets of `pass`, and does it. It gives the loss, and leaves nothing under way.
    /// Every rank calls it.
    ///
    /// # Errors
    /// Why nothing was recorded; then the step has to begin anew.
    pub(crate) fn record<S: Shape>(
        &self,
        pass: &Pass<'_>,
        work: impl FnOnce(&Tokens<S>, &Tokens<S>) -> Metric<S>,
    ) -> Result<(Metric<S>, RecordedPass<S>), String> {
        let rank = &self.rank;
        self.settle();
        let mut inputs = Vec::new();
        let before = Counters::of(rank);
        let prepare = || {
            inputs.extend(rank.units().iter().map(|unit| unit.inputs(&self.recordings)));
            let of = |ids| Tokens::from_rows(rank, pass.sizes, pass.first, ids);
            [of(pass.tokens), of(pass.targets)]
        };
        let recorded = self.recordings.record(prepare, |[tokens, targets]| {
            let places = [&tokens, &targets].map(|ids| self.recordings.place_of(ids.ids().view()));
            let metric = work(&tokens, &targets);
            rank.offloading().settle(rank);
            let sum = metric.place(&self.recordings);
            (places, sum, metric.count())
        });
        let recorded = recorded.and_then(|(places, recording)| {
            let ([tokens, targets], sum, count) = places;
            if !self.are_whole() {
                return Err("there is not enough memory for that".to_owned());
            }
            Ok(RecordedPass {
                recording,
                tokens,
                targets,
                ignored: ignored::<S>(pass.targets).collect(),
                sum: sum.ok_or("the loss is not a number of the device")?,
                count,
                units: inputs,
                added: Counters::of(rank).since(&before),
                shape: std::marker::PhantomData,
            })
        });
        // The calls of a recording are not answered by those of a rank that has none.
        let everywhere = self.agree(recorded.is_ok());
        let recorded = recorded?;
        if !everywhere {
            return Err("another rank could not record them".to_owned());
        }
        let uncounted = recorded.added.sent.keys().map(|axes| (*axes, CommStats::default()));
        self.submit(&recorded, pass.name, &uncounted.collect());
        Ok((self.loss_of(&recorded), recorded))
    }

    /// Does a recorded pass again, on other tokens. None where parameters are not where they were.
    pub(crate) fn replay<S: Dims>(
        &self,
        recorded: &RecordedPass<S>,
        pass: &Pass<'_>,
    ) -> Option<Metric<S>> {
        let rank = &self.rank;
        self.settle();
        let units = rank.units();
        let all = units.len() == recorded.units.len();
        if !all || !units.iter().zip(&recorded.units).all(|(unit, inputs)| unit.hand_over(inputs)) {
            return None;
        }
        recorded.tokens.write(pass.tokens);
        recorded.targets.write(pass.targets);
        let Added { flops, recomputed, sent } = &recorded.added;
        self.submit(recorded, pass.name, sent);
        rank.backend().count_flops(*flops);
        rank.regions().count_flops(*recomputed);
        Some(self.loss_of(recorded))
    }

    /// The gradients that passes have left in the units, which counted so many elements.
    pub(crate) fn gradients<S: Dims, State>(&self, count: u64) -> Gradients<State> {
        Gradients::there::<S>(&self.rank, count)
    }

    /// Nothing is under way: recorded work waits for nothing that is not recorded.
    fn settle(&self) {
        self.rank.units().iter().for_each(|unit| unit.settle());
        self.rank.offloading().settle(&self.rank);
    }

    fn submit<S>(
        &self,
        recorded: &RecordedPass<S>,
        name: &str,
        sent: &BTreeMap<AxisSet, CommStats>,
    ) {
        let mut submit = || recorded.recording.replay();
        self.rank.comms().replay(name, sent, &mut submit).unwrap_or_else(|error| fail(error));
    }

    /// A copy of the loss that was computed last, since the next time it is overwritten.
    fn loss_of<S: Dims>(&self, recorded: &RecordedPass<S>) -> Metric<S> {
        let mut sum = self.rank.meter().alloc(DType::F32, 1, Category::Activations);
        recorded.sum.copy_to(&mut sum);
        Metric::of_buffer(&self.rank, Arc::new(sum), recorded.count)
    }
}

impl<S: Dims> RecordedPass<S> {
    /// Elements that the loss counts.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether it can be done on these targets, of which the same have to count.
    pub(crate) fn takes(&self, targets: &[u32]) -> bool {
        ignored::<S>(targets).eq(self.ignored.iter().copied())
    }
}

fn ignored<S: Dims>(targets: &[u32]) -> impl Iterator<Item = bool> {
    targets.iter().map(|id| *id == Tokens::<S>::IGNORED)
}

/// The counters of a rank.
struct Counters {
    flops: u64,
    recomputed: u64,
    stats: BTreeMap<AxisSet, CommStats>,
}

impl Counters {
    fn of(rank: &Rank) -> Counters {
        Counters {
            flops: rank.backend().flops(),
            recomputed: rank.recomputed_flops(),
            stats: rank.comms().stats(),
        }
    }

    fn since(&self, before: &Counters) -> Added {
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
