//! The verifier: a schedule runs only if each micro-batch passes each stage exactly once, messages match, and all ranks
//! come to an end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::lower::without_messages;
use super::{
    Action, Compute, Costs, LOOKAHEAD, Lockstep, Message, Peak, Schedule, StageCosts, Stuck, Work,
    lockstep, lower_schedule, peaks, simulate,
};

/// A fault of a schedule, with its rank and action if known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Finding(String);

/// A schedule that [`verify`] has passed, with its messages and gradient reductions.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    lowered: Schedule,
    without_lookahead: Schedule,
    lockstep: Lockstep,
    peaks: Vec<Peak>,
}

impl Verified {
    /// The schedule with its messages and gradient reductions.
    pub fn lowered(&self) -> &Schedule {
        &self.lowered
    }

    /// The [lowered](Self::lowered) schedule with each receive posted as late as possible: after everything that the
    /// rank computes and sends before. Messages that the schedule was given with are moved.
    pub fn without_lookahead(&self) -> &Schedule {
        &self.without_lookahead
    }

    /// Returns the schedule with the messages in rounds that suit stages of these costs.
    ///
    /// # Errors
    /// Faults of the rounds.
    pub fn with_stage_costs(self, costs: &StageCosts) -> Result<Verified, Vec<Finding>> {
        Ok(Verified { lockstep: verified_rounds(&self.lowered, costs)?, ..self })
    }

    /// The schedule with its messages in rounds.
    pub fn lockstep(&self) -> &Lockstep {
        &self.lockstep
    }

    /// The peak of each rank.
    pub fn peaks(&self) -> &[Peak] {
        &self.peaks
    }
}

/// Checks a schedule of computations, or one with messages, and completes it.
///
/// # Errors
/// All faults of the first kind that is found, in this order: shape and indices; computations that are missing, double
/// or out of order; messages; progress; gradient reductions; and, for a schedule with a name, differences from its
/// generator. The last one is needed since a swapped pair of actions may give another valid schedule.
pub fn verify(schedule: &Schedule) -> Result<Verified, Vec<Finding>> {
    check_findings(shape(schedule))?;
    check_findings(completeness(schedule))?;
    check_findings(check_order(schedule))?;
    let lowered = lower_schedule(schedule, LOOKAHEAD);
    let without_lookahead = lower_schedule(&without_messages(schedule), 0);
    for lowered in [&lowered, &without_lookahead] {
        check_findings(messages(lowered))?;
        simulate(lowered, Costs::default()).map_err(waiting_ranks)?;
    }
    check_findings(reductions(&lowered))?;
    check_findings(name(schedule))?;
    let lockstep = verified_rounds(schedule, &StageCosts::even(schedule.stages()))?;
    Ok(Verified { peaks: peaks(&lowered), lowered, without_lookahead, lockstep })
}

/// Puts the messages of a schedule into rounds, and checks them.
fn verified_rounds(schedule: &Schedule, costs: &StageCosts) -> Result<Lockstep, Vec<Finding>> {
    let lockstep = lockstep(schedule, costs).map_err(waiting_ranks)?;
    check_findings(messages(lockstep.program()))?;
    simulate(lockstep.program(), Costs::default()).map_err(waiting_ranks)?;
    check_findings(check_rounds(&lockstep))?;
    Ok(lockstep)
}

fn waiting_ranks(stuck: Stuck) -> Vec<Finding> {
    vec![Finding(format!("the ranks wait for each other: {stuck}"))]
}

fn check_findings(findings: Vec<Finding>) -> Result<(), Vec<Finding>> {
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn finding_at(
    rank: usize,
    position: usize,
    action: impl std::fmt::Display,
    fault: &str,
) -> Finding {
    Finding(format!("rank {rank}, action {position}, `{action}`: {fault}"))
}

/// The actions with their rank and position.
fn action_places(schedule: &Schedule) -> impl Iterator<Item = (usize, usize, &Action)> {
    schedule.ranks.iter().enumerate().flat_map(|(rank, actions)| {
        actions.iter().enumerate().map(move |(position, action)| (rank, position, action))
    })
}

/// The computations with their rank and the position of their action.
fn computes(schedule: &Schedule) -> impl Iterator<Item = (usize, usize, Compute)> {
    action_places(schedule).flat_map(|(rank, position, action)| {
        action.computes().iter().map(move |compute| (rank, position, *compute))
    })
}

/// Checks that ranks, stages and micro-batches are in range, and that each stage is on its rank.
fn shape(schedule: &Schedule) -> Vec<Finding> {
    let Schedule { ranks, placement, micro_batches, .. } = schedule;
    let mut findings = Vec::new();
    // A file with one large number is refused here, not by a list of everything that it lacks.
    let forwards = computes(schedule).filter(|(_, _, next)| next.work == Work::Forward).count();
    if placement.len().saturating_mul(*micro_batches) > 2 * forwards.max(1) {
        let stages = placement.len();
        findings.push(Finding(format!(
            "{stages} stages and {micro_batches} micro-batches need a forward pass each: there are {forwards}"
        )));
    }
    if placement.is_empty() || *micro_batches == 0 {
        findings.push(Finding("the schedule has no stages or no micro-batches".into()));
    }
    for (stage, rank) in placement.iter().enumerate().filter(|(_, rank)| **rank >= ranks.len()) {
        let count = ranks.len();
        findings.push(Finding(format!("stage {stage} is on rank {rank} of {count} ranks")));
    }
    for rank in (0..ranks.len()).filter(|rank| !placement.contains(rank)) {
        findings.push(Finding(format!("rank {rank} has no stage")));
    }
    let placed = |stage: usize, rank: usize| match placement.get(stage) {
        None => Some(format!("there are {} stages", placement.len())),
        Some(own) if *own != rank => Some(format!("stage {stage} is on rank {own}")),
        Some(_) => None,
    };
    for (rank, position, action) in action_places(schedule) {
        let stages: Vec<usize> = match action {
            Action::Send(message) => vec![message.from_stage()],
            Action::Recv(message) => vec![message.to_stage()],
            Action::Unshard(stage) | Action::Reshard(stage) | Action::ReduceGrad(stage) => {
                vec![*stage]
            }
            _ => action.computes().iter().map(|compute| compute.stage).collect(),
        };
        let mut faults: Vec<String> =
            stages.into_iter().filter_map(|stage| placed(stage, rank)).collect();
        let message = action.message();
        if let Some(message) = message
            && message.from_stage().max(message.to_stage()) >= placement.len()
        {
            faults.push(format!("there are {} stages", placement.len()));
        }
        let batches = action.computes().iter().map(|compute| compute.micro_batch);
        let batches = batches.chain(message.map(Message::micro_batch));
        if let Some(batch) = batches.into_iter().find(|batch| batch >= micro_batches) {
            faults.push(format!("micro-batch {batch} of {micro_batches}"));
        }
        findings.extend(faults.first().map(|fault| finding_at(rank, position, action, fault)));
    }
    findings
}

/// Checks that each stage and micro-batch has one forward pass, and one backward pass, whole or in two parts.
fn completeness(schedule: &Schedule) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut first: HashMap<Compute, usize> = HashMap::new();
    for (rank, position, compute) in computes(schedule) {
        if let Some(earlier) = first.insert(compute, position) {
            let fault = format!("action {earlier} is the same");
            findings.push(finding_at(rank, position, compute, &fault));
        }
    }
    for stage in 0..schedule.stages() {
        let rank = schedule.placement[stage];
        for micro_batch in 0..schedule.micro_batches {
            let [forward, whole, input, weight] =
                [Work::Forward, Work::Backward, Work::BackwardInput, Work::BackwardWeight]
                    .map(|work| Compute::new(work, stage, micro_batch));
            let mut missing = |compute: Compute| {
                findings.push(Finding(format!("rank {rank}: `{compute}` is missing")))
            };
            let has = |compute| first.contains_key(&compute);
            if !has(forward) {
                missing(forward);
            }
            match [whole, input, weight].map(has) {
                [false, false, false] => missing(whole),
                [false, true, false] => missing(weight),
                [false, false, true] => missing(input),
                [false, true, true] | [true, false, false] => {}
                [true, has_input, _] => {
                    let part = if has_input { input } else { weight };
                    let fault = format!("`{whole}` computes that, too");
                    findings.push(finding_at(rank, first[&part], part, &fault));
                }
            }
        }
    }
    findings
}

/// Finds stages whose forward pass does not come before its backward pass, and the input part before the weight part.
fn check_order(schedule: &Schedule) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: BTreeSet<Compute> = BTreeSet::new();
    for (rank, position, compute) in computes(schedule) {
        let needed = match compute.work {
            Work::Forward => None,
            Work::Backward | Work::BackwardInput => Some(Work::Forward),
            Work::BackwardWeight => Some(Work::BackwardInput),
        };
        if let Some(work) = needed {
            let needed = Compute { work, ..compute };
            if !seen.contains(&needed) {
                findings.push(finding_at(
                    rank,
                    position,
                    compute,
                    &format!("comes before `{needed}`"),
                ));
            }
        }
        seen.insert(compute);
    }
    findings
}

/// The messages on a channel, each with the position of its action.
#[derive(Default)]
struct ChannelEnds {
    sent: Vec<(usize, Message)>,
    received: Vec<(usize, Message)>,
}

/// Checks that each send is after its computation, each receive before its use, and that both ends of a channel have
/// one order.
fn messages(lowered: &Schedule) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut made: BTreeSet<Message> = BTreeSet::new();
    let mut posted: BTreeSet<Message> = BTreeSet::new();
    let mut sent: BTreeSet<Message> = BTreeSet::new();
    let mut channels: BTreeMap<(usize, usize), ChannelEnds> = BTreeMap::new();
    for (rank, position, action) in action_places(lowered) {
        let mut fault = |fault: &str| findings.push(finding_at(rank, position, action, fault));
        for compute in action.computes() {
            made.extend(lowered.output_message(*compute));
            if let Some(message) = lowered.input_message(*compute)
                && !posted.contains(&message)
            {
                fault(&format!("`{}` is not posted before it", Action::Recv(message)));
            }
        }
        let Some(message) = action.message() else { continue };
        let is_send = matches!(action, Action::Send(_));
        let channel = lowered.message_ranks(message);
        if channel.0 == channel.1 {
            fault("both stages are on this rank, which needs no message");
            continue;
        }
        if is_send && !made.contains(&message) {
            fault("comes before the computation that makes it");
        }
        let known = if is_send { &mut sent } else { &mut posted };
        if !known.insert(message) {
            fault("comes a second time");
        }
        let ends = channels.entry(channel).or_default();
        let end = if is_send { &mut ends.sent } else { &mut ends.received };
        end.push((position, message));
    }
    for message in made.difference(&sent) {
        let rank = lowered.message_ranks(*message).0;
        findings.push(Finding(format!("rank {rank}: `{}` is missing", Action::Send(*message))));
    }
    for message in posted.difference(&sent).filter(|message| !made.contains(message)) {
        let rank = lowered.message_ranks(*message).1;
        let action = Action::Recv(*message);
        findings.push(Finding(format!(
            "rank {rank}: `{action}` is posted, but its message is never sent"
        )));
    }
    for ((from, to), ChannelEnds { sent, received }) in &channels {
        let differs = sent.iter().zip(received).find(|((_, sent), (_, got))| sent != got);
        if let Some(((position, sent), (at_receiver, got))) = differs {
            let (send, receive) = (Action::Send(*sent), Action::Recv(*got));
            let fault = format!(
                "rank {from} sends `{send}` next (its action {position}): receives are posted in the sender's order"
            );
            findings.push(finding_at(*to, *at_receiver, receive, &fault));
        } else if sent.len() != received.len() {
            let counts = (sent.len(), received.len());
            let text = "sends, and receives there:";
            findings.push(Finding(format!("rank {from} to rank {to}: {text} {counts:?}")));
        }
    }
    findings
}

/// Checks that each rank exchanges its messages in ascending rounds.
fn check_rounds(lockstep: &Lockstep) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut last = vec![0; lockstep.program().ranks.len()];
    for (rank, position, action) in action_places(lockstep.program()) {
        let Some(message) = action.message() else { continue };
        match lockstep.round_of(message) {
            Some(round) if round >= last[rank] => last[rank] = round,
            _ => findings.push(finding_at(
                rank,
                position,
                action,
                "is not in the order of the rounds",
            )),
        }
    }
    findings
}

/// Checks that the gradients of each stage are reduced once, after its last weight gradients.
fn reductions(lowered: &Schedule) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut reduced: BTreeSet<usize> = BTreeSet::new();
    for (rank, position, action) in action_places(lowered) {
        let weights = action.computes().iter().filter(|next| next.work.gives_weight_gradients());
        for compute in weights.filter(|compute| reduced.contains(&compute.stage)) {
            let reduction = Action::ReduceGrad(compute.stage);
            findings.push(finding_at(
                rank,
                position,
                compute,
                &format!("comes after `{reduction}`"),
            ));
        }
        if let Action::ReduceGrad(stage) = action
            && !reduced.insert(*stage)
        {
            findings.push(finding_at(rank, position, action, "comes a second time"));
        }
    }
    findings
}

/// A schedule with a name is the one that its generator makes.
fn name(schedule: &Schedule) -> Vec<Finding> {
    let Some(kind) = schedule.kind else { return Vec::new() };
    let (ranks, stages) = (schedule.ranks.len(), schedule.stages());
    if !stages.is_multiple_of(ranks) {
        return vec![Finding(format!("{kind} has the same number of stages on each rank"))];
    }
    let expected = match kind.generate(ranks, stages / ranks, schedule.micro_batches) {
        Ok(expected) => expected,
        Err(error) => return vec![Finding(error.to_string())],
    };
    // Of one rank alone, reductions are all that lowering adds.
    let is_complete = action_places(schedule).any(|(_, _, action)| action.computes().is_empty());
    let expected = if is_complete { lower_schedule(&expected, LOOKAHEAD) } else { expected };
    if expected.placement != schedule.placement {
        let placement = &expected.placement;
        return vec![Finding(format!("{kind} has its stages on the ranks {placement:?}"))];
    }
    let mut findings = Vec::new();
    for (rank, (own, expected)) in schedule.ranks.iter().zip(&expected.ranks).enumerate() {
        let len = own.len().max(expected.len());
        let differs = (0..len).find(|at| own.get(*at) != expected.get(*at));
        let Some(position) = differs else { continue };
        let text = |action: Option<&Action>| match action {
            Some(action) => format!("`{action}`"),
            None => "nothing".to_owned(),
        };
        let (own, expected) = (text(own.get(position)), text(expected.get(position)));
        let fault = format!("rank {rank}, action {position}: {own}, where {kind} has {expected}");
        findings.push(Finding(fault));
    }
    findings
}
