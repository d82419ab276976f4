//! Messages in rounds, for engines whose waiting messages may hold up others.

use std::collections::{BTreeMap, HashMap};

use super::lower::{add_reductions, unpaired, without_messages};
use super::{Action, LOOKAHEAD, Message, Schedule, StageCosts, Stuck, lower_schedule, simulate};

/// A schedule whose messages are exchanged in rounds: each rank exchanges all messages of a round together, and the
/// rounds in ascending order.
///
/// No order of the engine's own can make ranks wait for each other: if all rounds before one are over on all ranks,
/// each rank has all that it computes before that one, so its two ends meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lockstep {
    program: Schedule,
    rounds: HashMap<Message, usize>,
}

impl Lockstep {
    /// The schedule with its messages and gradient reductions. The messages of a round follow each other on each rank.
    pub fn program(&self) -> &Schedule {
        &self.program
    }

    /// The round of a message between two ranks; none for other messages.
    pub fn round_of(&self, message: Message) -> Option<usize> {
        self.rounds.get(&message).copied()
    }

    /// Returns true if both actions are messages of one round.
    pub fn are_in_one_round(&self, first: &Action, second: &Action) -> bool {
        let round = |action: &Action| self.round_of(action.message()?);
        round(first).is_some_and(|of_first| round(second) == Some(of_first))
    }
}

/// Puts the messages of a schedule into rounds, one for each time at which computations that send a message end, if
/// stages have these costs. Messages that the schedule has already are moved.
///
/// A round in which a rank sends follows the computation of its last message. A round in which it only receives is
/// before the computation that runs at that time, so the message arrives while it computes. Messages take some time in
/// these costs, so the ranks of a pipeline compute at staggered times: a rank that sent and received in one round would
/// wait for the computations of both neighbors, and so on along the pipeline.
///
/// # Errors
/// If some ranks wait for each other.
pub fn lockstep(schedule: &Schedule, costs: &StageCosts) -> Result<Lockstep, Stuck> {
    let computations = without_messages(&unpaired(schedule));
    let simulation = simulate(&lower_schedule(&computations, LOOKAHEAD), costs)?;
    // Costs are whole numbers.
    let whole = |time: f64| time as usize;
    let mut rounds = HashMap::new();
    for span in simulation.spans.iter().flatten() {
        if let Some(message) = computations.output_message(span.compute) {
            rounds.insert(message, whole(span.end));
        }
    }
    let ends = simulation.spans.iter().map(|spans| {
        spans.iter().map(|span| (span.compute, whole(span.end))).collect::<HashMap<_, _>>()
    });
    let of_rank = |(rank, ends): (usize, HashMap<_, usize>)| {
        let mut waiting = messages_of_rank(&computations, &rounds, rank);
        let mut actions = Vec::new();
        for action in add_reductions(computations.ranks[rank].clone()) {
            if let Some(end) = action.computes().first().map(|compute| ends[compute]) {
                let sends = |messages: &Vec<Action>| {
                    messages.iter().any(|message| matches!(message, Action::Send(_)))
                };
                // A message that is sent at this end is that of this computation.
                let is_before = |(round, messages): (&usize, &Vec<Action>)| {
                    *round < end || (*round == end && !sends(messages))
                };
                while waiting.first_key_value().is_some_and(is_before) {
                    actions.extend(waiting.pop_first().into_iter().flat_map(|(_, all)| all));
                }
            }
            actions.push(action);
        }
        actions.extend(waiting.into_values().flatten());
        actions
    };
    let ranks = ends.enumerate().map(of_rank).collect();
    Ok(Lockstep { program: Schedule { ranks, ..computations.clone() }, rounds })
}

/// The messages of a rank by their rounds. The messages of a round have one order on both ranks.
fn messages_of_rank(
    schedule: &Schedule,
    rounds: &HashMap<Message, usize>,
    rank: usize,
) -> BTreeMap<usize, Vec<Action>> {
    let mut sorted: Vec<(&Message, &usize)> = rounds.iter().collect();
    sorted.sort_unstable();
    let mut of_rank: BTreeMap<usize, Vec<Action>> = BTreeMap::new();
    for (message, round) in sorted {
        let (from, to) = schedule.message_ranks(*message);
        let action = match rank {
            _ if rank == from => Action::Send(*message),
            _ if rank == to => Action::Recv(*message),
            _ => continue,
        };
        of_rank.entry(*round).or_default().push(action);
    }
    of_rank
}
