//! Lowering: the messages between ranks become actions.

use std::collections::HashMap;

use super::{Action, Message, Schedule};

/// Number of computations between posting the receive of a message and its use.
///
/// One is enough to lose no time against posting all receives at the start, and keeps few of them pending.
pub const LOOKAHEAD: usize = 1;

/// Adds the sends, receives and gradient reductions to a schedule of computations.
///
/// - A send comes right after the computation that makes the message. Messages within a rank are none.
/// - On each channel receives are posted in the order of the sends. The order of their use is another one in some
///   schedules, where activations and gradients share a channel: posted in that order, messages of equal size would be
///   taken for each other.
/// - A receive is posted `lookahead` computations before its use, or earlier if the order of messages on its channel
///   requires it.
/// - Computations that may overlap become single ones, so that the message of the first does not wait for the second.
/// - The gradients of a stage are reduced after its last weight gradients.
///
/// Messages and reductions that the schedule has already are kept, and the former are not added to. Computations keep
/// the stages of the schedule.
pub fn lower_schedule(schedule: &Schedule, lookahead: usize) -> Schedule {
    let with_messages = if schedule.is_lowered() {
        schedule.ranks.clone()
    } else {
        add_messages(&unpaired(schedule), lookahead)
    };
    let ranks = with_messages.into_iter().map(add_reductions).collect();
    Schedule { ranks, ..schedule.clone() }
}

/// Returns the schedule with single computations in place of those that may overlap.
pub(super) fn unpaired(schedule: &Schedule) -> Schedule {
    let single = |action: &Action| match action {
        Action::Overlap(both) => both.map(Action::from).to_vec(),
        action => vec![*action],
    };
    let ranks = schedule.ranks.iter().map(|actions| actions.iter().flat_map(single).collect());
    Schedule { ranks: ranks.collect(), ..schedule.clone() }
}

/// Returns the schedule without its messages.
pub(super) fn without_messages(schedule: &Schedule) -> Schedule {
    let computations = |actions: &Vec<Action>| -> Vec<Action> {
        actions.iter().filter(|action| action.message().is_none()).copied().collect()
    };
    Schedule { ranks: schedule.ranks.iter().map(computations).collect(), ..schedule.clone() }
}

fn add_messages(schedule: &Schedule, lookahead: usize) -> Vec<Vec<Action>> {
    let receives = (0..schedule.ranks.len()).map(|rank| receives_of(schedule, rank, lookahead));
    let with_receives = schedule.ranks.iter().zip(receives);
    let lowered = with_receives.map(|(actions, mut receives)| {
        let mut lowered = Vec::new();
        for (position, action) in actions.iter().enumerate() {
            let posted = receives.remove(&position).unwrap_or_default();
            lowered.extend(posted.into_iter().map(Action::Recv));
            lowered.push(*action);
            let made = action.computes().iter().filter_map(|made| schedule.output_message(*made));
            lowered.extend(made.map(Action::Send));
        }
        lowered
    });
    lowered.collect()
}

/// The receives of a rank, by the position of the action before which they are posted.
fn receives_of(schedule: &Schedule, rank: usize, lookahead: usize) -> HashMap<usize, Vec<Message>> {
    let mut used_at = HashMap::new();
    for (position, action) in schedule.ranks[rank].iter().enumerate() {
        let needed = action.computes().iter().filter_map(|next| schedule.input_message(*next));
        used_at.extend(needed.map(|message| (message, position)));
    }
    let mut posted: HashMap<usize, Vec<Message>> = HashMap::new();
    for sender in 0..schedule.ranks.len() {
        let made = schedule.ranks[sender].iter().flat_map(|action| action.computes());
        let sent = made.filter_map(|compute| schedule.output_message(*compute));
        let on_channel: Vec<Message> =
            sent.filter(|message| schedule.message_ranks(*message) == (sender, rank)).collect();
        // From the last one on: a receive is posted no later than those after it on its channel.
        let mut limit = usize::MAX;
        let mut places = Vec::with_capacity(on_channel.len());
        for message in on_channel.into_iter().rev() {
            // A message that is not used is found by the verifier.
            let Some(used) = used_at.get(&message) else { continue };
            limit = limit.min(used.saturating_sub(lookahead));
            places.push((limit, message));
        }
        for (position, message) in places.into_iter().rev() {
            posted.entry(position).or_default().push(message);
        }
    }
    posted
}

/// Adds the gradient reductions that the actions of a rank lack.
pub(super) fn add_reductions(actions: Vec<Action>) -> Vec<Action> {
    let mut last_weights: HashMap<usize, usize> = HashMap::new();
    for (position, action) in actions.iter().enumerate() {
        let weights = action.computes().iter().filter(|next| next.work.gives_weight_gradients());
        last_weights.extend(weights.map(|compute| (compute.stage, position)));
    }
    for action in &actions {
        if let Action::ReduceGrad(stage) = action {
            last_weights.remove(stage);
        }
    }
    let mut reductions: HashMap<usize, Vec<usize>> = HashMap::new();
    for (stage, position) in last_weights {
        reductions.entry(position).or_default().push(stage);
    }
    let mut reduced = Vec::with_capacity(actions.len());
    let mut due = Vec::new();
    for (position, action) in actions.into_iter().enumerate() {
        // The gradient for the previous stage is sent first.
        if !matches!(action, Action::Send(_)) {
            reduced.append(&mut due);
        }
        reduced.push(action);
        let mut stages = reductions.remove(&position).unwrap_or_default();
        stages.sort_unstable();
        due.extend(stages.into_iter().map(Action::ReduceGrad));
    }
    reduced.append(&mut due);
    reduced
}
