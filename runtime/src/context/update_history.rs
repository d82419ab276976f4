//! Updates of parameters, which have to be the same on all ranks.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::comm::{Blocks, RankComms, Site};

use super::failure::fail;

/// Number of `u32` words that describe the updates of a rank.
const WORDS: usize = 6;

/// The updates that a rank has applied so far.
#[derive(Default)]
pub(crate) struct UpdateHistory {
    count: Cell<u32>,
    /// Hash of the rules, learning rates and factors of all updates.
    hash: RefCell<DefaultHasher>,
    /// Learning rate, and factor on the gradients, of the last update.
    last: Cell<(f64, f32)>,
}

impl UpdateHistory {
    /// Notes an update by the rule `rule`, of gradients that are multiplied by `factor`.
    pub(super) fn add_update(&self, rule: &str, lr: f64, factor: f32) {
        (rule, lr.to_bits(), factor.to_bits()).hash(&mut *self.hash.borrow_mut());
        self.count.set(self.count.get() + 1);
        self.last.set((lr, factor));
    }

    /// Compares the updates that all ranks have applied so far. The exchange does not count as communication of the step.
    ///
    /// # Panics
    /// If a rank has left out or repeated an update, or has applied another one; on all ranks alike.
    #[track_caller]
    pub(super) fn compare(&self, comms: &RankComms) {
        let world = comms.uncounted_world();
        if world.size() == 1 {
            return;
        }
        let mut all = vec![0; WORDS * world.size()];
        world
            .all_gather(
                &Site::new("check of updates"),
                self.words().as_slice().into(),
                all.as_mut_slice().into(),
                &Blocks::even(1, WORDS, world.size()),
            )
            .unwrap_or_else(|error| fail(error));
        let by_member: Vec<&[u32]> = all.chunks_exact(WORDS).collect();
        if let Some(other) = by_member.iter().position(|words| *words != by_member[0]) {
            let [one_rank, other_rank] = [0, other].map(|member| world.members()[member]);
            panic!(
                "ranks {one_rank} and {other_rank} have applied different updates so far: {}; and {}: every rank applies the \
                 same updates, of gradients that are clipped alike; decide on an update by numbers that all ranks have, as \
                 `Loss::reduce` and `Gradients::norm` return",
                describe(by_member[0]),
                describe(by_member[other]),
            );
        }
    }

    fn words(&self) -> [u32; WORDS] {
        let (lr, factor) = self.last.get();
        let [hash, lr] = [self.hash.borrow().finish(), lr.to_bits()];
        let halves = |word: u64| [(word >> 32) as u32, word as u32];
        let ([hash_high, hash_low], [lr_high, lr_low]) = (halves(hash), halves(lr));
        [self.count.get(), hash_high, hash_low, lr_high, lr_low, factor.to_bits()]
    }
}

/// Describes the updates behind the words of a rank.
fn describe(words: &[u32]) -> String {
    let lr = f64::from_bits(u64::from(words[3]) << 32 | u64::from(words[4]));
    let factor = f32::from_bits(words[5]);
    match words[0] {
        0 => "none".to_owned(),
        count => {
            format!("{count}, the last with learning rate {lr} and {factor} times the gradients")
        }
    }
}
