//! Updates of parameters, which have to be the same on all ranks.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// The updates that a rank has applied so far.
#[derive(Default)]
pub(super) struct UpdateHistory {
    count: Cell<u32>,
    /// Hash of all updates.
    hash: RefCell<DefaultHasher>,
    last: RefCell<Option<Update>>,
    /// Number of updates of averages of the parameters.
    averages: Cell<u32>,
    /// Decay of the last one.
    last_decay: Cell<f64>,
}

/// The updates that a rank has applied, to be compared with the updates of other ranks.
pub struct AppliedUpdates {
    words: [u32; UpdateHistory::WORDS],
    description: String,
}

impl AppliedUpdates {
    /// Returns the difference between the updates of ranks 0 to `all.len()`, if there is one.
    #[doc(hidden)]
    pub fn difference(all: &[AppliedUpdates]) -> Option<String> {
        let other = all.iter().position(|updates| updates.words != all[0].words)?;
        Some(describe_difference([0, other], [0, other].map(|rank| &*all[rank].description)))
    }
}

/// Describes how the updates of two ranks differ.
pub(super) fn describe_difference([one, other]: [usize; 2], updates: [&str; 2]) -> String {
    format!(
        "ranks {one} and {other} have applied different updates so far: {}; and {}: every rank applies the same \
         updates, by a rule with the same options, of gradients that are clipped alike; decide on an update by numbers \
         that all ranks have, as `Loss::reduce` and `Gradients::norm` return",
        updates[0], updates[1],
    )
}

/// An update of parameters.
struct Update {
    /// Name of the rule, with its options.
    rule: Rc<str>,
    lr: f64,
    /// Factor on the gradients.
    factor: f32,
    /// Number of the update in its optimizer: 1 for the first.
    number: u64,
}

impl UpdateHistory {
    /// Number of words that [`words`](Self::words) returns.
    pub const WORDS: usize = 3;

    /// Notes update `number` by `rule`, a name with options, of gradients that are multiplied by `factor`.
    pub fn add_update(&self, rule: &Rc<str>, lr: f64, factor: f32, number: u64) {
        (&**rule, lr.to_bits(), factor.to_bits(), number).hash(&mut *self.hash.borrow_mut());
        self.count.set(self.count.get() + 1);
        self.last.replace(Some(Update { rule: Rc::clone(rule), lr, factor, number }));
    }

    /// Notes an update of an average of the parameters, which keeps `decay` of the old average.
    pub fn add_average(&self, decay: f64) {
        ("average", decay.to_bits()).hash(&mut *self.hash.borrow_mut());
        self.averages.set(self.averages.get() + 1);
        self.last_decay.set(decay);
    }

    /// Returns words that are equal on two ranks if they have applied the same updates.
    pub fn words(&self) -> [u32; Self::WORDS] {
        let hash = self.hash.borrow().finish();
        [self.count.get(), (hash >> 32) as u32, hash as u32]
    }

    /// Returns the updates so far.
    pub fn applied(&self) -> AppliedUpdates {
        AppliedUpdates { words: self.words(), description: self.describe() }
    }

    /// Describes the number of updates and the last one.
    pub fn describe(&self) -> String {
        let count = self.count.get();
        let mut text = match &*self.last.borrow() {
            None => "none".to_owned(),
            Some(Update { rule, lr, factor, number }) => format!(
                "{count}, the last with learning rate {lr} and {factor} times the gradients, by {rule}, as its step \
                 {number}"
            ),
        };
        if self.averages.get() > 0 {
            let (averages, decay) = (self.averages.get(), self.last_decay.get());
            text += &format!(", and {averages} of an average, the last with decay {decay}");
        }
        text
    }
}
