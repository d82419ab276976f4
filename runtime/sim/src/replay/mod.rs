//! Replay of the logs of all positions along `pp` together.
//!
//! Positions advance until they wait for a call that another position has not issued yet. No schedule, ZeRO stage or
//! style of context parallelism is known here: all of it is in the logs. The rules are those of streams:
//!
//! - A call starts after the kernels that its host has issued before it, and after the calls before it on its stream:
//!   one for each set of axes, and one for each pair of positions and direction.
//! - Kernels after a wait start after the end of its call. A wait for a send makes nothing wait, as the sent buffer is
//!   not read again.
//! - A message begins when both sides have issued it; a collective over `pp`, when all positions have. Messages of a
//!   round are issued when the round begins, and are over with it.
//! - A wait for a call of the step before is a wait for the call of that number in the step that was replayed before.

mod computation;
mod joint;
mod position_time;
mod program;
mod rounds;
mod streams;
mod trace;

use std::sync::Arc;

use crate::error::{BlockedPosition, SimError};
use crate::options::SimOptions;
use crate::record::{CommOpKind, StepLog};
use crate::time::Times;

use joint::{JointCall, JointKind};
use program::{CallRun, OpKind, Program};
use rounds::{BegunRound, Rounds};
use streams::{Interval, Streams};
use trace::StepTrace;

pub use computation::Computation;
pub use position_time::PositionTime;
pub use trace::{SimLane, SimSpan};

/// Steps that are replayed. The last one is the result: it waits for calls of the one before.
const STEPS: usize = 2;

/// The replayed step.
pub struct ReplayedStep {
    /// Seconds from the end of the step before, at the last position, to the end of this one.
    pub seconds: f64,
    pub positions: Vec<PositionTime>,
    /// The spans, if they are asked for, from the first position's begin on.
    pub spans: Vec<SimSpan>,
}

impl ReplayedStep {
    /// Returns the mean fraction of the step in which a position does not wait for others.
    pub fn busy_fraction(&self) -> f64 {
        let idle = self.positions.iter().map(|position| position.waiting + position.end_idle);
        1.0 - idle.sum::<f64>()
            / (self.seconds * self.positions.len() as f64).max(f64::MIN_POSITIVE)
    }
}

/// Replays a step that follows another one.
///
/// # Errors
/// On faulty logs: see [`SimError`].
pub fn replay(
    logs: &[Arc<StepLog>],
    times: &mut Times<'_>,
    options: &SimOptions,
) -> Result<ReplayedStep, SimError> {
    let (programs, joints) = program::compile(logs, times)?;
    let channels = joints.iter().map(|joint| joint.channel + 1).max().unwrap_or(0);
    let mut replay = Replay {
        positions: programs.iter().map(Position::new).collect(),
        states: vec![JointState::default(); joints.len() * STEPS],
        rounds: Rounds::new(&programs, joints.len(), STEPS),
        channels: vec![0.0; channels],
        launch: times.of_launch(options.cuda_graphs),
        trace: options.spans.then(|| StepTrace::new(logs)),
        programs: &programs,
        joints: &joints,
        options,
    };
    while (0..logs.len()).fold(false, |moved, position| replay.advance_position(position) | moved) {
    }
    replay.finish()
}

struct Replay<'a> {
    programs: &'a [Program],
    joints: &'a [JointCall],
    options: &'a SimOptions,
    positions: Vec<Position>,
    /// The joint calls of each step.
    states: Vec<JointState>,
    rounds: Rounds,
    /// Ends of the channels.
    channels: Vec<f64>,
    /// Seconds of a launch by the host.
    launch: f64,
    trace: Option<StepTrace<'a>>,
}

/// The state of a position.
struct Position {
    step: usize,
    /// Index of the next operation of the step.
    next: usize,
    streams: Streams,
    /// Ends of the calls of this step and the one before, by index.
    ends: [Vec<f64>; STEPS],
    /// Ends of the steps.
    step_ends: [f64; STEPS],
}

/// The positions that have issued a joint call, and its start and end once all have.
#[derive(Clone, Copy, Default)]
struct JointState {
    arrived: usize,
    /// Time at which the last of them was ready.
    ready: f64,
    run: Option<Interval>,
}

impl Position {
    fn new(program: &Program) -> Position {
        let ends = [(); STEPS].map(|()| vec![0.0; program.calls.len()]);
        let streams = Streams::new(program.streams);
        Position { step: 0, next: 0, streams, ends, step_ends: [0.0; STEPS] }
    }
}

impl Replay<'_> {
    /// Runs operations of a position until one has to wait for another position, or all steps are done. Returns true if
    /// it ran an operation.
    fn advance_position(&mut self, idx: usize) -> bool {
        let program = &self.programs[idx];
        let mut moved = false;
        while self.positions[idx].step < STEPS {
            let position = &mut self.positions[idx];
            let Some(op) = program.ops.get(position.next) else {
                position.step_ends[position.step] = position.streams.compute;
                position.step += 1;
                position.next = 0;
                if position.step < STEPS {
                    position.streams.spent = PositionTime::default();
                }
                continue;
            };
            match op.kind {
                OpKind::Kernel { seconds, computation, host_waits } => {
                    let streams = &mut position.streams;
                    streams.host += self.launch;
                    let interference = self.options.software.interference;
                    let run = streams.launch(computation, seconds, interference);
                    if host_waits {
                        streams.host = streams.compute;
                    }
                    self.trace_event(idx, op.event, SimLane::Compute, run);
                }
                OpKind::Transfer { seconds, is_fetch } => {
                    position.streams.host += self.launch;
                    let run = position.streams.transfer(seconds, is_fetch);
                    self.trace_event(idx, op.event, SimLane::Transfer, run);
                }
                OpKind::Issue(call) => self.issue_call(idx, op.event, call),
                OpKind::Await { call, of_previous_step } => {
                    if !self.await_call(idx, call, of_previous_step) {
                        return moved;
                    }
                }
            }
            self.positions[idx].next += 1;
            moved = true;
        }
        moved
    }

    fn issue_call(&mut self, idx: usize, event: usize, call_idx: usize) {
        let Position { step, streams, ends, .. } = &mut self.positions[idx];
        let (step, call) = (*step, &self.programs[idx].calls[call_idx]);
        streams.host += self.launch;
        let earliest = if self.options.cuda_graphs { streams.branch } else { 0.0 };
        match call.run {
            CallRun::Free => {}
            CallRun::Alone { stream, seconds } => {
                let run = streams.run_collective(stream, earliest, seconds);
                streams.branch = streams.branch.max(run.1);
                ends[step][call_idx] = run.1;
                let lane =
                    SimLane::Collective { axes: call.axes, is_asynchronous: call.is_asynchronous };
                self.trace_event(idx, event, lane, run);
            }
            CallRun::Joint(joint) => {
                let ready = streams.compute.max(streams.host).max(earliest);
                match call.round {
                    None => self.join_call(step, joint, ready),
                    Some(round) => {
                        self.rounds.issue(idx, (step, round), ready);
                        self.begin_rounds(idx);
                    }
                }
            }
        }
    }

    /// Begins the rounds of a position, and of those that messages lead to, as far as they come.
    fn begin_rounds(&mut self, idx: usize) {
        let mut positions = vec![idx];
        while let Some(idx) = positions.pop() {
            while let Some(BegunRound { step, messages, start }) = self.rounds.begin_next(idx) {
                for joint in messages {
                    self.join_call(step, joint, start);
                    let run = self.states[step * self.joints.len() + joint].run;
                    if let Some((_, end)) = run {
                        let others = self.rounds.end_message((step, joint), end);
                        positions.extend(others.into_iter().filter(|other| *other != idx));
                    }
                }
            }
        }
    }

    /// Notes that a position has issued a joint call, which runs if it was the last.
    fn join_call(&mut self, step: usize, idx: usize, ready: f64) {
        let JointCall { kind, seconds, channel } = &self.joints[idx];
        let state = &mut self.states[step * self.joints.len() + idx];
        state.arrived += 1;
        state.ready = state.ready.max(ready);
        let members = match kind {
            JointKind::Message { .. } => 2,
            JointKind::Collective { .. } => self.positions.len(),
        };
        if state.arrived < members {
            return;
        }
        let start = state.ready.max(self.channels[*channel]);
        let run = (start, start + seconds);
        self.channels[*channel] = run.1;
        state.run = Some(run);
        if let Some(trace) = self.trace.as_mut().filter(|_| step + 1 == STEPS) {
            trace.add_joint(kind, run);
        }
    }

    /// Makes the compute stream wait for a call. Returns false if other positions have not issued it yet.
    fn await_call(&mut self, idx: usize, call_idx: usize, of_previous_step: bool) -> bool {
        let Position { step, streams, ends, .. } = &mut self.positions[idx];
        let call = &self.programs[idx].calls[call_idx];
        let issued_in = if of_previous_step { step.checked_sub(1) } else { Some(*step) };
        // There is no step before the first one.
        let Some(step) = issued_in.filter(|_| call.op != CommOpKind::Send) else { return true };
        match call.run {
            CallRun::Free => {}
            CallRun::Alone { .. } => streams.await_collective(call.axes, ends[step][call_idx]),
            CallRun::Joint(joint) => {
                let state = &self.states[step * self.joints.len() + joint];
                let Some((start, mut end)) = state.run else { return false };
                if let Some(round) = call.round {
                    match self.rounds.end_of(idx, (step, round)) {
                        Some(of_round) => end = of_round,
                        None => return false,
                    }
                }
                if let JointKind::Message { .. } = self.joints[joint].kind {
                    streams.await_positions(end);
                } else {
                    streams.await_positions(start);
                    streams.await_collective(call.axes, end);
                    streams.branch = streams.branch.max(end);
                }
            }
        }
        true
    }

    fn trace_event(&mut self, idx: usize, event: usize, lane: SimLane, run: Interval) {
        let is_last_step = self.positions[idx].step + 1 == STEPS;
        if let Some(trace) = self.trace.as_mut().filter(|_| is_last_step) {
            trace.add_event(idx, event, lane, run);
        }
    }

    fn finish(self) -> Result<ReplayedStep, SimError> {
        let blocked = |(idx, position): (usize, &Position)| {
            let op = self.programs[idx].ops.get(position.next).filter(|_| position.step < STEPS)?;
            let OpKind::Await { call, .. } = op.kind else { return None };
            let CallRun::Joint(joint) = self.programs[idx].calls[call].run else { return None };
            let call = self.joints[joint].kind.to_string();
            Some(BlockedPosition { position: idx, event: op.event, call })
        };
        let blocked: Vec<_> = self.positions.iter().enumerate().filter_map(blocked).collect();
        if !blocked.is_empty() {
            return Err(SimError::Deadlock(blocked));
        }
        let begin = |position: &Position| position.step_ends[STEPS - 2];
        let end = |position: &Position| position.step_ends[STEPS - 1];
        let latest = |of: fn(&Position) -> f64| self.positions.iter().map(of).fold(0.0, f64::max);
        let seconds = latest(end) - latest(begin);
        let first_begin = self.positions.iter().map(begin).fold(f64::INFINITY, f64::min);
        let spans = self.trace.map_or_else(Vec::new, |trace| trace.finish(first_begin));
        let positions = self.positions.into_iter().map(|position| {
            let busy = end(&position) - begin(&position);
            PositionTime { end_idle: (seconds - busy).max(0.0), ..position.streams.spent }
        });
        Ok(ReplayedStep { seconds, positions: positions.collect(), spans })
    }
}
