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
    /// Number of words that [`words`](Self::words) returns.
    pub const WORDS: usize = 3;

    /// Notes an update by `rule`, a name with options, of gradients that are multiplied by `factor`.
    pub fn add_update(&self, rule: &Rc<str>, lr: f64, factor: f32) {
        (&**rule, lr.to_bits(), factor.to_bits()).hash(&mut *self.hash.borrow_mut());
        self.count.set(self.count.get() + 1);
        self.last.replace(Some(Update { rule: Rc::clone(rule), lr, factor }));
    }

    /// Returns words that are equal on two ranks if they have applied the same updates.
    pub fn words(&self) -> [u32; Self::WORDS] {
        let hash = self.hash.borrow().finish();
        [self.count.get(), (hash >> 32) as u32, hash as u32]
    }

    /// Describes the number of updates and the last one.
    pub fn describe(&self) -> String {
        let count = self.count.get();
        match &*self.last.borrow() {
            None => "none".to_owned(),
            Some(Update { rule, lr, factor }) => format!(
                "{count}, the last with learning rate {lr} and {factor} times the gradients, by {rule}"
            ),
        }
    }
}
