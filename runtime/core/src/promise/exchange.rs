//! The exchange of each step: one sum over all ranks of a fixed number of words.
//!
//! Ranks sum the counts and losses of the step, learn that one of them cannot train on another step, and see if their
//! updates, steps and losses agree. Only if they do not, what each rank has is gathered, for the message.

use std::cell::Cell;

use xxhash_rust::xxh3::xxh3_64;

use crate::context::{Rank, fail};
use crate::layout::{AxisId, AxisSet};
use meshwright_comm::{Blocks, Communicator, Site};
use meshwright_mesh::MeshShape;

use super::digests::hash_of;
use super::documents::{GivenDocuments, StepDocuments};
use super::losses::LossSum;
use super::updates::{UpdateHistory, describe_difference};

/// Number of sums that show if fingerprints agree.
const CHECKS: usize = 4;

/// Number of `u32` words that describe the updates, losses, documents and step of a rank.
const WORDS: usize = UpdateHistory::WORDS + LossSum::WORDS + GivenDocuments::WORDS + 2;

/// Step of a rank whose step does not matter.
const NO_STEP: u64 = u64::MAX;

/// The state of a rank that each step exchanges.
#[derive(Default)]
pub(super) struct StepExchange {
    pub(super) updates: UpdateHistory,
    pub(super) documents: StepDocuments,
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

    /// Sums `sums` over all ranks, and compares the updates that they have applied so far, the losses of the gradients
    /// that are reduced, and in which `step` they are, if it matters. The exchange does not count as communication of
    /// the step.
    ///
    /// # Panics
    /// If a rank has left out or repeated an update, has applied another one, or is in another step, on all ranks
    /// alike; and if a loss differs between ranks on which it is the same by its type.
    #[track_caller]
    pub(super) fn run(&self, rank: &Rank, losses: LossSum, step: Option<u64>, sums: &mut [f64]) {
        let makes_checks = rank.makes_checks();
        self.has_run.set(true);
        let documents = self.documents.take();
        let (shape, world) = (rank.comms().shape(), rank.comms().uncounted_world());
        if world.size() == 1 {
            self.is_last_step.set(self.announces_last_step.get());
            return;
        }
        let apart = rank.local_axes();
        let losses = losses.of_last_stage(shape).varying_over(apart);
        let own = OwnWords { updates: self.updates.words(), losses, documents, step };
        let checks =
            if makes_checks { own.checks(shape, rank.index(), apart) } else { [0.0; CHECKS] };
        let announcement = f64::from(u8::from(self.announces_last_step.get()));
        let mut all = [&checks[..], &[announcement], sums].concat();
        let site = Site::new("losses and checks");
        world.all_reduce_f64(&site, &mut all).unwrap_or_else(|error| fail(error));
        sums.copy_from_slice(&all[CHECKS + 1..]);
        self.is_last_step.set(all[CHECKS] > 0.0);
        if all[..CHECKS] != [0.0; CHECKS] && !world.is_dry_run() {
            self.find_difference(&world, rank, &own);
        }
    }

    /// Gathers what all ranks have, and refuses a difference between ranks of one replica. There is none if losses
    /// differ by rounding only.
    #[track_caller]
    fn find_difference(&self, world: &Communicator, rank: &Rank, own: &OwnWords) {
        let (shape, site) = (rank.comms().shape(), Site::new("check of updates"));
        let mut all = vec![0; WORDS * world.size()];
        let blocks = Blocks::even(1, WORDS, world.size());
        world
            .all_gather(&site, own.words().as_slice().into(), all.as_mut_slice().into(), &blocks)
            .unwrap_or_else(|error| fail(error));
        let by_member: Vec<Words> = all.chunks_exact(WORDS).map(Words::split).collect();
        let replica =
            |member: &usize| shape.index_in_group(world.members()[*member], rank.local_axes());
        let updates = |member: usize| by_member[member].updates;
        let first_of = |replica_of: usize| {
            let is_of_replica = |member: &usize| replica(member) == replica(&replica_of);
            (0..world.size()).find(is_of_replica).unwrap_or(replica_of)
        };
        let differs = |member: &usize| updates(*member) != updates(first_of(*member));
        if let Some(other) = (0..world.size()).find(differs) {
            panic!("{}", self.gather_difference(world, &site, [first_of(other), other]));
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
        for (member, words) in by_member.iter().enumerate() {
            if replica(&member) == rank.replica() {
                let (other, index) = (world.members()[member], rank.index());
                own.documents.compare_with(words.documents, other, index, shape);
                own.losses.compare_with(words.losses, other, index, shape);
            }
        }
    }

    /// Describes the updates of two group ranks. Every rank calls it.
    fn gather_difference(
        &self,
        world: &Communicator,
        site: &Site,
        differing: [usize; 2],
    ) -> String {
        let texts = world
            .all_gather_texts(site, &self.updates.describe())
            .unwrap_or_else(|error| fail(error));
        describe_difference(
            differing.map(|member| world.members()[member]),
            differing.map(|member| &*texts[member]),
        )
    }
}

/// Updates, losses, documents and step of a rank, which are compared with others.
struct OwnWords {
    updates: [u32; UpdateHistory::WORDS],
    losses: LossSum,
    documents: GivenDocuments,
    step: Option<u64>,
}

impl OwnWords {
    /// Returns the contribution of `rank` to sums that are all 0 if the ranks agree that have equal positions along
    /// `apart`.
    fn checks(&self, shape: &MeshShape, rank: usize, apart: AxisSet) -> [f64; CHECKS] {
        let (losses, varies) = (self.losses.words(), self.losses.varies());
        // Only ranks of the last pipeline stage have losses.
        let weights = (shape.degree(AxisId::Pp) == 1).then(|| self.losses.weights());
        let everywhere = hash_of((self.updates, self.step, weights));
        let everywhere = check_words(shape, rank, apart, everywhere);
        let of_losses = check_words(shape, rank, varies, hash_of(losses));
        let documents = &self.documents;
        let of_documents =
            check_words(shape, rank, documents.varies().union(apart), documents.hash());
        std::array::from_fn(|word| (everywhere[word] + of_losses[word] + of_documents[word]) as f64)
    }

    fn words(&self) -> Vec<u32> {
        let step = self.step.unwrap_or(NO_STEP);
        let step = [(step >> 32) as u32, step as u32];
        [&self.updates[..], &self.losses.words(), &self.documents.words(), &step].concat()
    }
}

/// Returns the contribution of `rank` to sums over all ranks that are 0 if those with equal positions along `varies`
/// have the same fingerprint, and hardly ever otherwise.
///
/// Each word of the fingerprint is multiplied by a number of the rank, and these numbers sum to 0 over the ranks that
/// are compared: the differences of neighbors in a ring of pseudo-random numbers. Products have 33 bits, so the sums
/// over a hundred thousand ranks are exact in f64, in any order.
fn check_words(shape: &MeshShape, rank: usize, varies: AxisSet, fingerprint: u64) -> [i64; CHECKS] {
    let compared = AxisSet::ALL.difference(varies);
    let (index, ranks) = (shape.index_in_group(rank, compared), shape.degree_of(compared));
    let position = shape.index_in_group(rank, varies);
    let number = |index: usize| {
        xxh3_64(bytemuck::cast_slice(&[varies.number() as u64, position as u64, index as u64]))
    };
    let (own, next) = (number(index), number((index + 1) % ranks));
    let part = |of: u64, word: usize| (of >> (16 * word) & 0xffff) as i64;
    std::array::from_fn(|word| (part(own, word) - part(next, word)) * part(fingerprint, word))
}

/// The words of one rank.
struct Words<'a> {
    updates: &'a [u32],
    losses: &'a [u32],
    documents: &'a [u32],
    step: &'a [u32],
}

impl<'a> Words<'a> {
    fn split(all: &'a [u32]) -> Words<'a> {
        let (updates, rest) = all.split_at(UpdateHistory::WORDS);
        let (losses, rest) = rest.split_at(LossSum::WORDS);
        let (documents, step) = rest.split_at(GivenDocuments::WORDS);
        Words { updates, losses, documents, step }
    }

    fn step(&self) -> Option<u64> {
        let step = u64::from(self.step[0]) << 32 | u64::from(self.step[1]);
        (step != NO_STEP).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any set of ranks that differ from the others shows in the sums, on meshes of any axes.
    #[test]
    fn sums_are_zero_only_if_fingerprints_agree() {
        let [tp, dp] = [AxisId::Tp, AxisId::Dp].map(AxisSet::of);
        for (mesh, varies) in [
            ("tp=2", AxisSet::NONE),
            ("dp=3,tp=4", dp),
            ("pp=2,dp=2,tp=3", AxisSet::of(AxisId::Pp).union(dp)),
            ("dp=64", AxisSet::NONE),
            ("fsdp=8,tp=16", tp),
        ] {
            let shape: MeshShape = mesh.parse().unwrap();
            let sums = |fingerprint: &dyn Fn(usize) -> u64| {
                let mut sums = [0.0; CHECKS];
                for rank in 0..shape.world_size() {
                    let own = check_words(&shape, rank, varies, fingerprint(rank));
                    sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own as f64);
                }
                sums
            };
            let by_position = |rank| hash_of(shape.index_in_group(rank, varies));
            assert_eq!(sums(&by_position), [0.0; CHECKS], "{mesh}");
            for changed in 0..shape.world_size() {
                let one = |rank| if rank == changed { 7 } else { by_position(rank) };
                assert_ne!(sums(&one), [0.0; CHECKS], "{mesh}, rank {changed}");
                let bit = |rank| by_position(rank) ^ u64::from(rank == changed);
                assert_ne!(sums(&bit), [0.0; CHECKS], "{mesh}, a bit of rank {changed}");
            }
        }
    }
}
