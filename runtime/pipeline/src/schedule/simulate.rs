//! The times of a schedule and its pipeline bubble, for given costs of its computations and messages.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use super::{Action, Compute, Message, Schedule, Work};

/// The costs of one chunk, in any unit of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// The forward pass.
    pub forward: f64,
    /// The part of the backward pass for the input.
    pub input: f64,
    /// The part of the backward pass for weights.
    pub weight: f64,
    /// The time of a message, during which its channel is busy and its ranks may compute.
    pub message: f64,
}

impl Default for Costs {
    /// One unit for each part of a chunk, and none for messages.
    fn default() -> Costs {
        Costs { forward: 1.0, input: 1.0, weight: 1.0, message: 0.0 }
    }
}

impl Costs {
    /// The time of a computation.
    pub fn cost_of(self, work: Work) -> f64 {
        match work {
            Work::Forward => self.forward,
            Work::Backward => self.input + self.weight,
            Work::BackwardInput => self.input,
            Work::BackwardWeight => self.weight,
        }
    }
}

/// The times of computations and messages, in any unit.
pub trait CostModel {
    /// Returns the time of a computation.
    fn time_of(&self, compute: Compute) -> f64;

    /// Returns the time of a message, during which its channel is busy and its ranks may compute.
    fn message(&self) -> f64;
}

/// A reference has the costs that it refers to.
impl<C: CostModel> CostModel for &C {
    fn time_of(&self, compute: Compute) -> f64 {
        (**self).time_of(compute)
    }

    fn message(&self) -> f64 {
        (**self).message()
    }
}

/// The same costs for all chunks.
impl CostModel for Costs {
    fn time_of(&self, compute: Compute) -> f64 {
        self.cost_of(compute.work)
    }

    fn message(&self) -> f64 {
        self.message
    }
}

/// The costs of the forward pass of each stage, in whole units, so that sums of them are exact. Each part of a backward
/// pass costs as much, and a message an eighth of the most expensive forward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageCosts {
    forward: Vec<u32>,
    /// True if backward computes the forward pass again.
    recomputes: bool,
}

impl StageCosts {
    /// Units of the most expensive stage, and of a message.
    const LARGEST: f64 = 1000.0;
    const MESSAGE: f64 = 125.0;

    /// Creates costs of stages that all cost the same.
    pub fn even(stages: usize) -> StageCosts {
        StageCosts::new(&vec![1.0; stages], false)
    }

    /// Creates the costs of stages in proportion to `costs`, in any unit. Each costs something. `recomputes` is true if
    /// backward computes the forward pass again.
    pub fn new(costs: &[f64], recomputes: bool) -> StageCosts {
        let largest = costs.iter().copied().fold(0.0, f64::max);
        let scaled = |cost: &f64| ((cost / largest * Self::LARGEST).round() as u32).max(1);
        StageCosts { forward: costs.iter().map(scaled).collect(), recomputes }
    }
}

impl CostModel for StageCosts {
    fn time_of(&self, compute: Compute) -> f64 {
        let recomputed = u32::from(self.recomputes);
        let parts = match compute.work {
            Work::Forward | Work::BackwardWeight => 1,
            Work::BackwardInput => 1 + recomputed,
            Work::Backward => 2 + recomputed,
        };
        f64::from(self.forward[compute.stage] * parts)
    }

    fn message(&self) -> f64 {
        Self::MESSAGE
    }
}

/// The time of one computation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScheduledSpan {
    /// The computation.
    pub compute: Compute,
    /// Start of the computation.
    pub start: f64,
    /// End of the computation.
    pub end: f64,
}

/// The times of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The computations of each rank.
    pub spans: Vec<Vec<ScheduledSpan>>,
    /// The largest number of receives that each rank has posted and not used yet.
    pub pending_receives: Vec<usize>,
}

impl Simulation {
    /// The time from the first computation to the end of the last one.
    pub fn makespan(&self) -> f64 {
        self.spans.iter().flatten().map(|span| span.end).fold(0.0, f64::max)
    }

    /// The time that a rank computes.
    pub fn work(&self, rank: usize) -> f64 {
        self.spans[rank].iter().map(|span| span.end - span.start).sum()
    }

    /// The time from the first to the last computation of a rank.
    pub fn span(&self, rank: usize) -> f64 {
        let first = self.spans[rank].first().map_or(0.0, |span| span.start);
        self.spans[rank].last().map_or(0.0, |span| span.end - first)
    }

    /// Returns the bubble: the fraction of the time of all ranks without computation.
    pub fn bubble(&self) -> f64 {
        let ranks = self.spans.len();
        let work: f64 = (0..ranks).map(|rank| self.work(rank)).sum();
        1.0 - work / (self.makespan() * ranks as f64)
    }
}

/// The ranks of a schedule that cannot end, each with its next action and the message or computation that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The rank, the number of its next action, the action, and the input that never comes.
    pub ranks: Vec<(usize, usize, Action, String)>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (rank, position, action, missing)) in self.ranks.iter().enumerate() {
            let separator = if number > 0 { "; " } else { "" };
            write!(
                f,
                "{separator}rank {rank}, action {position}, `{action}`, waits for {missing}"
            )?;
        }
        Ok(())
    }
}

/// Runs a [lowered](super::lower_schedule()) schedule with these costs.
///
/// A message begins when its send and its receive are posted and the messages before it on its channel have ended.
/// Ranks and channels are a Kahn process network: processes are deterministic, channels are queues, and only reads
/// wait. So whether all ranks end does not depend on the costs, and one run decides for all.
///
/// # Errors
/// If some ranks wait for each other.
pub fn simulate(lowered: &Schedule, costs: impl CostModel) -> Result<Simulation, Stuck> {
    let ranks = lowered.ranks.len();
    let mut run = SimulationRun {
        schedule: lowered,
        costs,
        done: HashMap::new(),
        arrived: HashMap::new(),
        channels: HashMap::new(),
        ranks: vec![SimulatedRank::default(); ranks],
    };
    loop {
        let moved: Vec<bool> = (0..ranks).map(|rank| run.advance_rank(rank)).collect();
        if !moved.contains(&true) {
            break;
        }
    }
    run.finish_step()
}

#[derive(Debug, Clone, Default)]
struct SimulatedRank {
    position: usize,
    /// Computations of the action at `position` that are done: of a pair, the first may be.
    done_in_action: usize,
    time: f64,
    spans: Vec<ScheduledSpan>,
    pending: usize,
    most_pending: usize,
}

#[derive(Debug, Default)]
struct Channel {
    sent: VecDeque<(Message, f64)>,
    received: VecDeque<(Message, f64)>,
    time: f64,
}

struct SimulationRun<'a, C> {
    schedule: &'a Schedule,
    costs: C,
    /// The end of each computation; a whole backward pass is entered as its input part.
    done: HashMap<Compute, f64>,
    arrived: HashMap<Message, f64>,
    channels: HashMap<(usize, usize), Channel>,
    ranks: Vec<SimulatedRank>,
}

impl<C: CostModel> SimulationRun<'_, C> {
    /// Carries out the actions of a rank until one has to wait. Returns true if it executed an action.
    fn advance_rank(&mut self, rank: usize) -> bool {
        let mut moved = false;
        while let Some(action) = self.schedule.ranks[rank].get(self.ranks[rank].position) {
            match action {
                Action::Send(message) => self.post_message(rank, *message, true),
                Action::Recv(message) => self.post_message(rank, *message, false),
                _ => {
                    for compute in &action.computes()[self.ranks[rank].done_in_action..] {
                        let Ok(ready) = self.ready_time(*compute) else { return moved };
                        self.compute(rank, *compute, ready);
                        moved = true;
                    }
                }
            }
            self.ranks[rank].position += 1;
            self.ranks[rank].done_in_action = 0;
            moved = true;
        }
        moved
    }

    fn post_message(&mut self, rank: usize, message: Message, is_send: bool) {
        let channel = self.channels.entry(self.schedule.message_ranks(message)).or_default();
        let state = &mut self.ranks[rank];
        if is_send {
            channel.sent.push_back((message, state.time));
        } else {
            channel.received.push_back((message, state.time));
            state.pending += 1;
            state.most_pending = state.most_pending.max(state.pending);
        }
        while let (Some((message, sent)), Some((_, posted))) =
            (channel.sent.front().copied(), channel.received.front().copied())
        {
            channel.sent.pop_front();
            channel.received.pop_front();
            channel.time = channel.time.max(sent).max(posted) + self.costs.message();
            self.arrived.insert(message, channel.time);
        }
    }

    /// Returns the time at which the inputs of a computation have arrived, or the name of the missing one.
    fn ready_time(&self, compute: Compute) -> Result<f64, String> {
        let Compute { work, stage, micro_batch } = compute;
        let of = |work, stage| {
            let input = Compute::new(work, stage, micro_batch);
            self.done.get(&input).copied().ok_or_else(|| format!("`{input}`"))
        };
        match self.schedule.input_message(compute) {
            Some(message) => {
                let missing = || format!("`{}`", Action::Send(message));
                let arrived = self.arrived.get(&message).copied().ok_or_else(missing)?;
                let own = if work == Work::Forward { 0.0 } else { of(Work::Forward, stage)? };
                Ok(arrived.max(own))
            }
            None => match work {
                Work::Forward if stage == 0 => Ok(0.0),
                Work::Forward => of(Work::Forward, stage - 1),
                Work::BackwardWeight => of(Work::BackwardInput, stage),
                _ if stage + 1 == self.schedule.stages() => of(Work::Forward, stage),
                _ => Ok(of(Work::BackwardInput, stage + 1)?.max(of(Work::Forward, stage)?)),
            },
        }
    }

    fn compute(&mut self, rank: usize, compute: Compute, ready: f64) {
        let received = self.schedule.input_message(compute).is_some();
        let state = &mut self.ranks[rank];
        let start = state.time.max(ready);
        state.time = start + self.costs.time_of(compute);
        state.spans.push(ScheduledSpan { compute, start, end: state.time });
        state.done_in_action += 1;
        state.pending = state.pending.saturating_sub(usize::from(received));
        let work = match compute.work {
            Work::Backward => Work::BackwardInput,
            work => work,
        };
        self.done.insert(Compute { work, ..compute }, state.time);
    }

    fn finish_step(self) -> Result<Simulation, Stuck> {
        let waiting = |rank: usize| {
            let SimulatedRank { position, done_in_action, .. } = self.ranks[rank];
            let action = self.schedule.ranks[rank].get(position)?;
            let missing = self.ready_time(action.computes()[done_in_action]).err()?;
            Some((rank, position, *action, missing))
        };
        let stuck: Vec<_> = (0..self.ranks.len()).filter_map(waiting).collect();
        if !stuck.is_empty() {
            return Err(Stuck { ranks: stuck });
        }
        let pending_receives = self.ranks.iter().map(|state| state.most_pending).collect();
        let spans = self.ranks.into_iter().map(|state| state.spans).collect();
        Ok(Simulation { spans, pending_receives })
    }
}
