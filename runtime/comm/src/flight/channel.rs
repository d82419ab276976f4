//! The sequences of calls that ranks have in common: collectives of a group, and messages from one rank to another.

use std::collections::BTreeMap;

use super::file::{FlightCall, RankRecord, Sequence};

/// A sequence of calls in which the calls with the same number belong together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelKey {
    pub axes: String,
    /// World ranks of the group; of a message, sender and receiver.
    pub members: Vec<usize>,
    pub kind: ChannelKind,
}

/// The kind of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelKind {
    Blocking,
    Asynchronous,
    Message,
}

/// The calls of one rank in a channel.
#[derive(Debug, Default)]
pub struct RankCalls<'a> {
    /// Number of calls so far.
    pub count: u64,
    /// The recorded ones, by number.
    pub calls: BTreeMap<u64, &'a FlightCall>,
}

/// All channels of a run, with the calls of each rank that has a file.
pub type Channels<'a> = BTreeMap<ChannelKey, BTreeMap<usize, RankCalls<'a>>>;

/// Returns the channel of a call of `rank`; `None` if its group is not in the file.
pub fn channel_of(record: &RankRecord, call: &FlightCall) -> Option<ChannelKey> {
    let (axes, rank) = (call.axes.clone(), record.rank);
    let message = |from, to| {
        let (axes, kind) = (axes.clone(), ChannelKind::Message);
        ChannelKey { axes, members: vec![from, to], kind }
    };
    let collective = |kind| {
        let group = record.groups.iter().find(|group| group.axes == axes)?;
        Some(ChannelKey { axes: axes.clone(), members: group.members.clone(), kind })
    };
    match call.sequence {
        Sequence::Blocking => collective(ChannelKind::Blocking),
        Sequence::Asynchronous => collective(ChannelKind::Asynchronous),
        Sequence::Sent => Some(message(rank, call.peer?)),
        Sequence::Received => Some(message(call.peer?, rank)),
    }
}

/// Sorts the calls of all ranks by their channels.
pub fn channels(records: &[RankRecord]) -> Channels<'_> {
    let mut channels = Channels::new();
    for record in records {
        for group in &record.groups {
            let key =
                |members: Vec<usize>, kind| ChannelKey { axes: group.axes.clone(), members, kind };
            let members = || group.members.clone();
            let mut counts = vec![
                (key(members(), ChannelKind::Blocking), group.blocking),
                (key(members(), ChannelKind::Asynchronous), group.asynchronous),
            ];
            for (peer, [sent, received]) in group.members.iter().zip(&group.messages) {
                // A message of a rank to itself has one number for both ends.
                counts.push((key(vec![record.rank, *peer], ChannelKind::Message), *sent));
                if *peer != record.rank {
                    counts.push((key(vec![*peer, record.rank], ChannelKind::Message), *received));
                }
            }
            for (key, count) in counts {
                channels.entry(key).or_default().entry(record.rank).or_default().count = count;
            }
        }
        for call in &record.calls {
            let Some(key) = channel_of(record, call) else { continue };
            if key.kind == ChannelKind::Message && key.members[0] == key.members[1] {
                continue;
            }
            let own = channels.entry(key).or_default().entry(record.rank).or_default();
            own.count = own.count.max(call.number);
            own.calls.insert(call.number, call);
        }
    }
    channels
}
