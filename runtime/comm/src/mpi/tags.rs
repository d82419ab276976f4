//! CallTags of messages: a hash of the call, which the receiver of each message compares with that of its own call.
//!
//! Calls are always compared, without a message for it, and before a result is used.

use std::collections::HashMap;
use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use meshwright_backend::DType;

use crate::{Call, CommOp, MessageId};

/// Number of calls that are remembered.
const REMEMBERED: usize = 4096;

/// The tags of the calls of a rank.
pub struct CallTags {
    /// The largest tag that the library allows.
    largest: c_int,
    /// Different calls so far, to name that of another rank.
    known: HashMap<u64, Arc<Call>>,
}

impl CallTags {
    /// Creates tags up to `largest`.
    pub fn new(largest: c_int) -> CallTags {
        CallTags { largest, known: HashMap::new() }
    }

    /// Returns the tag of a collective, the `number`-th of its group and kind.
    pub fn of_collective(&mut self, call: &Arc<Call>, number: u64) -> c_int {
        let hash = call_hash(call);
        if self.known.len() < REMEMBERED {
            self.known.entry(hash).or_insert_with(|| Arc::clone(call));
        }
        self.collective_tag(hash, number)
    }

    /// Returns a call of this rank that has this tag as the `number`-th call.
    pub fn find_call(&self, tag: c_int, number: u64) -> Option<&Call> {
        let known = self.known.iter().find(|(hash, _)| self.collective_tag(**hash, number) == tag);
        known.map(|(_, call)| &**call)
    }

    /// Returns the tag of a message: its dtype and its identity.
    pub fn of_message(&self, call: &Call) -> c_int {
        let identity = call.site.message().map_or(0, |id| self.identity_number(&id));
        let dtype = match call.dtype {
            None | Some(DType::F32) => 0,
            Some(DType::Bf16) => 1,
            Some(DType::U32) => 2,
            Some(DType::F64) => 3,
        };
        identity * 4 + dtype
    }

    /// Returns true if a message with the tag `sent` may be the one of the tag `expected`. Either may be without an
    /// identity.
    pub fn match_messages(sent: c_int, expected: c_int) -> bool {
        let same_identity = sent / 4 == expected / 4 || sent / 4 == 0 || expected / 4 == 0;
        sent % 4 == expected % 4 && same_identity
    }

    /// A number from 1 for the identity of a message.
    fn identity_number(&self, id: &MessageId) -> c_int {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let identities = (self.largest / 4).max(2) as u64 - 1;
        1 + (hasher.finish() % identities) as c_int
    }

    fn collective_tag(&self, hash: u64, number: u64) -> c_int {
        let mixed =
            (hash ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((mixed >> 20) % (self.largest as u64 + 1)) as c_int
    }
}

/// Returns a hash of all that the members must agree on.
fn call_hash(call: &Call) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.op.name().hash(&mut hasher);
    call.dtype.hash(&mut hasher);
    call.site.field().hash(&mut hasher);
    match &call.op {
        CommOp::AllReduce { op, count } => (op, count).hash(&mut hasher),
        CommOp::AllGather { blocks } | CommOp::ReduceScatter { blocks } => {
            (blocks.outer, &blocks.lens).hash(&mut hasher);
        }
        CommOp::Broadcast { root, count } => (root.group_rank, count).hash(&mut hasher),
        CommOp::Reduce { root, op, count } => (root.group_rank, op, count).hash(&mut hasher),
        CommOp::Scatter { root, counts } | CommOp::Gather { root, counts } => {
            (root.group_rank, counts).hash(&mut hasher);
        }
        // The counts of an all-to-all differ between members: the lengths of its messages are compared.
        CommOp::AllToAll { .. } | CommOp::Barrier | CommOp::Send { .. } | CommOp::Recv { .. } => {}
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blocks, ReduceOp, Site};
    use meshwright_mesh::AxisSet;

    fn call(op: CommOp, field: &str) -> Arc<Call> {
        let (dtype, site) = (Some(DType::F32), Site::new(field));
        let axes = AxisSet::ALL;
        Arc::new(Call {
            op,
            dtype,
            on_device: false,
            axes,
            asynchronous: false,
            site,
            bytes: 0,
            index: 0,
        })
    }

    #[test]
    fn different_calls_have_different_tags() {
        let mut tags = CallTags::new(c_int::MAX);
        let sum = |count| CommOp::AllReduce { op: ReduceOp::Sum, count };
        let own = call(sum(8), "a");
        let tag = tags.of_collective(&own, 5);
        let max = CommOp::AllReduce { op: ReduceOp::Max, count: 8 };
        let gather = CommOp::AllGather { blocks: Blocks::even(1, 8, 2) };
        for other in [
            call(sum(9), "a"),
            call(sum(8), "b"),
            call(max, "a"),
            call(gather, "a"),
            call(CommOp::Barrier, "a"),
        ] {
            let other_tag = tags.of_collective(&other, 5);
            assert_ne!(tag, other_tag);
            assert_eq!(tags.find_call(other_tag, 5).unwrap().op, other.op);
        }
        assert_ne!(tag, tags.of_collective(&own, 6));
        assert_eq!(tag, CallTags::new(c_int::MAX).of_collective(&call(sum(8), "a"), 5));
        assert!(tags.find_call(tag, 7).is_none());
    }

    #[test]
    fn messages_match_by_dtype_and_identity() {
        let tags = CallTags::new(32_767);
        let tag = |dtype, micro_batch: Option<usize>| {
            let id = |micro_batch| MessageId {
                kind: "activation",
                from_stage: 0,
                to_stage: 1,
                micro_batch,
                part: 0,
            };
            let site = Site::new("x");
            let site = micro_batch.map_or(site.clone(), |batch| site.with_message(id(batch)));
            let mut call = (*call(CommOp::Barrier, "x")).clone();
            (call.dtype, call.site) = (Some(dtype), site);
            tags.of_message(&call)
        };
        let (first, second) = (tag(DType::F32, Some(0)), tag(DType::F32, Some(1)));
        let (none, narrow) = (tag(DType::F32, None), tag(DType::Bf16, Some(0)));
        assert!([first, second, none, narrow].iter().all(|tag| (0..=32_767).contains(tag)));
        assert!(CallTags::match_messages(first, first) && CallTags::match_messages(none, first));
        assert!(CallTags::match_messages(first, none));
        assert!(
            !CallTags::match_messages(first, second) && !CallTags::match_messages(first, narrow)
        );
        assert!(!CallTags::match_messages(none, tag(DType::F64, None)));
    }
}
