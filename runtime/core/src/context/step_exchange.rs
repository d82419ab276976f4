//! The exchange of each step: ranks compare their updates and losses, and learn that one of them cannot train on
//! another step.

use std::cell::Cell;

use meshwright_comm::{Blocks, Communicator, RankComms, Site};

use super::failure::fail;
use super::step_losses::LossSum;
use super::update_history::{UpdateHistory, describe_difference};

/// Number of `u32` words that a rank sends: its updates, losses and step, and the announcement of its last step.
const WORDS: usize = UpdateHistory::WORDS + LossSum::WORDS + 3;

/// Step of a rank whose step does not matter.
const NO_STEP: u64 = u64::MAX;

/// The state of a rank that each step exchanges.
#[derive(Default)]
pub(crate) struct StepExchange {
    pub(super) updates: UpdateHistory,
    /// True after the first exchange.
    has_run: Cell<bool>,
    /// True if this rank cannot train on another step.
    announces_last_step: Cell<bool>,
    /// True if a rank announced its last step before the latest exchange.
    is_last_step: Cell<bool>,
}

impl StepExchange {
    /// Returns true if the ranks have compared their updates before, as they do in every step.
    pub(super) fn has_run(&self) -> bool {
        self.has_run.get()
    }

    /// Announces that this rank cannot train on another step.
    pub(super) fn announce_last_step(&self) {
        self.announces_last_step.set(true);
    }

    /// Returns true if a rank announced its last step before the latest exchange; the same on all ranks.
    pub(super) fn is_last_step(&self) -> bool {
        self.is_last_step.get()
    }

    /// Compares the updates that all ranks have applied so far, the losses of the gradients that are reduced, and in
    /// which `step` they are, if it matters. The exchange does not count as communication of the step.
    ///
    /// # Panics
    /// If a rank has left out or repeated an update, has applied another one, or is in another step, on all ranks
    /// alike; and if a loss differs between ranks on which it is the same by its type.
    #[track_caller]
    pub(super) fn run(&self, comms: &RankComms, losses: LossSum, step: Option<u64>) {
        self.has_run.set(true);
        let world = comms.uncounted_world();
        let losses = losses.of_last_stage(comms.shape());
        if world.size() == 1 {
            self.is_last_step.set(self.announces_last_step.get());
            return;
        }
        let site = Site::new("check of updates");
        let mut all = vec![0; WORDS * world.size()];
        world
            .all_gather(
                &site,
                self.words(&losses, step).as_slice().into(),
                all.as_mut_slice().into(),
                &Blocks::even(1, WORDS, world.size()),
            )
            .unwrap_or_else(|error| fail(error));
        let by_member: Vec<Words> = all.chunks_exact(WORDS).map(Words::split).collect();
        self.is_last_step.set(by_member.iter().any(|words| words.announcement != [0]));
        let updates = |member: usize| by_member[member].updates;
        if let Some(other) = (0..world.size()).find(|member| updates(*member) != updates(0)) {
            panic!("{}", self.gather_difference(&world, &site, other));
        }
        let steps = || by_member.iter().map(|words| words.step()).zip(world.members());
        let known = || steps().filter_map(|(step, member)| Some((step?, *member)));
        if let Some((first, one)) = known().next()
            && let Some((step, other)) = known().find(|(step, _)| *step != first)
        {
            panic!(
                "rank {one} trains in step {first}, and rank {other} in step {step}, so they draw different dropout \
                 masks: every rank calls `set_step` with the same step"
            );
        }
        for (other, words) in world.members().iter().zip(&by_member) {
            losses.compare_with(words.losses, *other, comms.rank(), comms.shape());
        }
    }

    fn words(&self, losses: &LossSum, step: Option<u64>) -> Vec<u32> {
        let announces = u32::from(self.announces_last_step.get());
        let step = step.unwrap_or(NO_STEP);
        let step = [(step >> 32) as u32, step as u32];
        [&self.updates.words()[..], &losses.words(), &step, &[announces]].concat()
    }

    /// Describes the updates of the first group rank and of the group rank `other`. Every rank calls it.
    fn gather_difference(&self, world: &Communicator, site: &Site, other: usize) -> String {
        let texts = world
            .all_gather_texts(site, &self.updates.describe())
            .unwrap_or_else(|error| fail(error));
        let [one_rank, other_rank] = [0, other].map(|member| world.members()[member]);
        describe_difference([one_rank, other_rank], [&texts[0], &texts[other]])
    }
}

/// The words of one rank.
struct Words<'a> {
    updates: &'a [u32],
    losses: &'a [u32],
    step: &'a [u32],
    announcement: &'a [u32],
}

impl<'a> Words<'a> {
    fn split(all: &'a [u32]) -> Words<'a> {
        let (updates, rest) = all.split_at(UpdateHistory::WORDS);
        let (losses, rest) = rest.split_at(LossSum::WORDS);
        let (step, announcement) = rest.split_at(2);
        Words { updates, losses, step, announcement }
    }

    fn step(&self) -> Option<u64> {
        let step = u64::from(self.step[0]) << 32 | u64::from(self.step[1]);
        (step != NO_STEP).then_some(step)
    }
}
