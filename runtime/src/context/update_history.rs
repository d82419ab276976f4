//! Updates of parameters, which have to be the same on all ranks, and the exchange of each step that compares them. It also
//! tells all ranks that one of them cannot train on another step.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use crate::comm::{Blocks, Communicator, RankComms, Site};

use super::failure::fail;

/// Number of `u32` words that a rank sends: those of its updates, and the announcement of its last step.
const WORDS: usize = UPDATE_WORDS + 1;
const UPDATE_WORDS: usize = 3;

/// The updates that a rank has applied so far.
#[derive(Default)]
pub(crate) struct UpdateHistory {
    count: Cell<u32>,
    /// Hash of all updates.
    hash: RefCell<DefaultHasher>,
    last: RefCell<Option<Update>>,
    /// True after the first comparison.
    is_compared: Cell<bool>,
    /// True if this rank cannot train on another step.
    announces_last_step: Cell<bool>,
    /// True if a rank announced its last step before the latest comparison.
    is_last_step: Cell<bool>,
}

/// An update of parameters.
struct Update {
    /// Name of the rule, with its options.
    rule: Rc<str>,
    lr: f64,
    /// Factor on the gradients.
    factor: f32,
}

impl UpdateHistory {
    /// Notes an update by `rule`, a name with options, of gradients that are multiplied by `factor`.
    pub(super) fn add_update(&self, rule: &Rc<str>, lr: f64, factor: f32) {
        (&**rule, lr.to_bits(), factor.to_bits()).hash(&mut *self.hash.borrow_mut());
        self.count.set(self.count.get() + 1);
        self.last.replace(Some(Update { rule: Rc::clone(rule), lr, factor }));
    }

    /// Returns true if the ranks have compared their updates before, as they do in every step.
    pub(super) fn is_compared(&self) -> bool {
        self.is_compared.get()
    }

    /// Announces that this rank cannot train on another step.
    pub(super) fn announce_last_step(&self) {
        self.announces_last_step.set(true);
    }

    /// Returns true if a rank announced its last step before the latest comparison; the same on all ranks.
    pub(super) fn is_last_step(&self) -> bool {
        self.is_last_step.get()
    }

    /// Compares the updates that all ranks have applied so far. The exchange does not count as communication of the step.
    ///
    /// # Panics
    /// If a rank has left out or repeated an update, or has applied another one; on all ranks alike.
    #[track_caller]
    pub(super) fn compare(&self, comms: &RankComms) {
        self.is_compared.set(true);
        let world = comms.uncounted_world();
        if world.size() == 1 {
            self.is_last_step.set(self.announces_last_step.get());
            return;
        }
        let site = Site::new("check of updates");
        let mut all = vec![0; WORDS * world.size()];
        world
            .all_gather(
                &site,
                self.words().as_slice().into(),
                all.as_mut_slice().into(),
                &Blocks::even(1, WORDS, world.size()),
            )
            .unwrap_or_else(|error| fail(error));
        let by_member: Vec<_> =
            all.chunks_exact(WORDS).map(|words| words.split_at(UPDATE_WORDS)).collect();
        self.is_last_step.set(by_member.iter().any(|(_, last)| *last != [0]));
        if let Some(other) = by_member.iter().position(|(words, _)| *words != by_member[0].0) {
            panic!("{}", self.describe_difference(&world, &site, other));
        }
    }

    /// Describes the updates of the first group rank and of the group rank `other`. Every rank calls it.
    fn describe_difference(&self, world: &Communicator, site: &Site, other: usize) -> String {
        let texts =
            world.all_gather_texts(site, &self.describe()).unwrap_or_else(|error| fail(error));
        let [one_rank, other_rank] = [0, other].map(|member| world.members()[member]);
        format!(
            "ranks {one_rank} and {other_rank} have applied different updates so far: {}; and {}: every rank applies the \
             same updates, by a rule with the same options, of gradients that are clipped alike; decide on an update by \
             numbers that all ranks have, as `Loss::reduce` and `Gradients::norm` return",
            texts[0], texts[other],
        )
    }

    fn words(&self) -> [u32; WORDS] {
        let hash = self.hash.borrow().finish();
        let announces = u32::from(self.announces_last_step.get());
        [self.count.get(), (hash >> 32) as u32, hash as u32, announces]
    }

    /// Describes the number of updates and the last one.
    fn describe(&self) -> String {
        let count = self.count.get();
        match &*self.last.borrow() {
            None => "none".to_owned(),
            Some(Update { rule, lr, factor }) => format!(
                "{count}, the last with learning rate {lr} and {factor} times the gradients, by {rule}"
            ),
        }
    }
}
