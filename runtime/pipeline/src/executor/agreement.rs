//! The check that all ranks of a pipeline run one schedule, with the same buffers at both ends of each channel.
//!
//! On each channel messages match in the order of issue. The verifier has compared the order of sends with that of
//! receives, so messages match if all ranks run the verified schedule. Hashes are exchanged once, before the first
//! pass.

use std::collections::HashMap;
use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_64;

use crate::schedule::{Action, Message, Schedule, csv};
use meshwright_backend::{View, ViewMut};
use meshwright_comm::{Blocks, Communicator, Site};

use super::{ExecutorError, MessagePart};

/// The buffers of the messages that a rank sends, receives or passes on, which all ranks agree on.
pub struct MessageParts(pub(super) HashMap<Message, Vec<MessagePart>>);

impl MessageParts {
    /// Creates the message parts of this rank, if the schedules and boundaries of all ranks agree.
    ///
    /// # Errors
    /// As [`check_schedules`].
    pub(super) fn agree_over_ranks(
        comm: &Communicator,
        program: &Schedule,
        parts: impl Fn(Message) -> Vec<MessagePart>,
    ) -> Result<MessageParts, ExecutorError> {
        let own = program.ranks[comm.rank()].iter().flat_map(|action| action.computes());
        let messages = own.flat_map(|compute| {
            let stages = program.stages();
            [compute.input_message(stages), compute.output_message(stages)]
        });
        let parts = messages.flatten().map(|message| (message, parts(message))).collect();
        check_schedules(comm, program, &parts)?;
        Ok(MessageParts(parts))
    }
}

/// Compares the schedules and boundaries of all ranks.
///
/// # Errors
/// The first difference, the same on all ranks, and communication errors.
fn check_schedules(
    comm: &Communicator,
    program: &Schedule,
    parts: &HashMap<Message, Vec<MessagePart>>,
) -> Result<(), ExecutorError> {
    if comm.is_dry_run() {
        return Ok(());
    }
    let (own, ranks) = (comm.rank(), comm.size());
    let hashes = rank_hashes(own, program, parts);
    let row = words_of(&hashes);
    let mut gathered = vec![0u32; row.len() * ranks];
    let blocks = Blocks::even(1, row.len(), ranks);
    let site = Site::new("pipeline schedule");
    comm.all_gather(&site, View::from(&row[..]), ViewMut::from(&mut gathered[..]), &blocks)?;
    let rows: Vec<&[u32]> = gathered.chunks(row.len()).collect();
    let hash = |rank: usize, index: usize| &rows[rank][2 * index..2 * index + 2];
    if let Some(rank) = (1..ranks).find(|rank| hash(*rank, 0) != hash(0, 0)) {
        return Err(ExecutorError::Schedules { rank });
    }
    for from in 0..ranks {
        for to in 0..ranks {
            if hash(from, 1 + to) != hash(to, 1 + ranks + from) {
                return Err(ExecutorError::Boundary { from, to });
            }
        }
    }
    Ok(())
}

/// Computes the hash of the schedule, and for each rank the hashes of the messages to it and from it.
fn rank_hashes(
    own: usize,
    program: &Schedule,
    parts: &HashMap<Message, Vec<MessagePart>>,
) -> Vec<u64> {
    let ranks = program.ranks.len();
    let mut texts = vec![String::new(); 1 + 2 * ranks];
    texts[0] = format!("{:?}\n{}", program.placement, csv::write(program));
    for action in &program.ranks[own] {
        let (index, message) = match action {
            Action::Send(message) => (1 + program.message_ranks(*message).1, *message),
            Action::Recv(message) => (1 + ranks + program.message_ranks(*message).0, *message),
            _ => continue,
        };
        let (text, sent) = (&mut texts[index], Action::Send(message));
        writeln!(text, "{sent} {:?}", parts[&message]).expect("a string takes any text");
    }
    texts.iter().map(|text| xxh3_64(text.as_bytes())).collect()
}

/// The halves of each hash.
fn words_of(hashes: &[u64]) -> Vec<u32> {
    hashes.iter().flat_map(|hash| [*hash as u32, (*hash >> 32) as u32]).collect()
}
