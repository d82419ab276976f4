//! Messages that a received message proves to have arrived.

use std::collections::{BTreeMap, HashMap};

use super::{Action, Message, Schedule};

/// Messages of a rank that the sender of a message had used before it, for each message that the rank receives.
pub(crate) type Receipts = HashMap<Message, Vec<Message>>;

impl Schedule {
    /// Returns the receipts of a rank. The schedule has its messages.
    pub(crate) fn receipts(&self, rank: usize) -> Receipts {
        let mut receipts = Receipts::new();
        for actions in &self.ranks {
            // Messages that were used since the last one to their sender, by sender.
            let mut used: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
            for action in actions {
                let inputs = action.computes().iter().filter_map(|next| self.input_message(*next));
                for message in inputs {
                    used.entry(self.message_ranks(message).0).or_default().push(message);
                }
                if let Action::Send(answer) = action
                    && self.message_ranks(*answer).1 == rank
                {
                    receipts.insert(*answer, used.remove(&rank).unwrap_or_default());
                }
            }
        }
        receipts
    }
}
