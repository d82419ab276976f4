//! The identity of a point-to-point message.

use std::fmt;

/// The identity of a message between two pipeline stages, which [`Site::with_message`](super::Site::with_message) adds
/// to the site of a send or a receive.
///
/// Messages of one sender arrive in order, so a receive is matched with the message of the same index in that order.
/// If both have an identity, these must be equal: two messages of the same size that are sent in the wrong order are a
/// mismatch, not a wrong number. An engine that compares calls compares identities, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// The content, as error messages name it: `"activation"`.
    pub kind: &'static str,
    /// The stage that computes the content.
    pub from_stage: usize,
    /// The stage that needs the content.
    pub to_stage: usize,
    /// The micro-batch.
    pub micro_batch: usize,
    /// The index of the tensor among those that cross this boundary.
    pub part: usize,
}

/// `activation of micro-batch 3 from stage 1 to stage 2, part 0`.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { kind, from_stage, to_stage, micro_batch, part } = self;
        write!(
            f,
            "{kind} of micro-batch {micro_batch} from stage {from_stage} to stage {to_stage}, part {part}"
        )
    }
}
