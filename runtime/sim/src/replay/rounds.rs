//! Rounds of messages: those that a position starts together.
//!
//! The rounds of a position run one after the other. A round begins when the position has issued all its messages and
//! the round before has ended, and ends with the last of its messages.

use super::program::{CallRun, Program};

/// The rounds of all positions in one step after another.
pub struct Rounds {
    positions: Vec<PositionRounds>,
    /// The rounds that a joint call is part of, as position and index.
    of_joint: Vec<Vec<(usize, usize)>>,
}

struct PositionRounds {
    /// The joint calls of each round of a step.
    messages: Vec<Vec<usize>>,
    /// The rounds of all steps, in order.
    states: Vec<RoundState>,
    /// Index, over all steps, of the first round that has not begun.
    next: usize,
}

#[derive(Clone, Copy, Default)]
struct RoundState {
    issued: usize,
    ended: usize,
    /// Time at which the position was ready for its last message.
    ready: f64,
    end: f64,
}

/// A round that begins.
pub struct BegunRound {
    pub step: usize,
    pub messages: Vec<usize>,
    pub start: f64,
}

impl Rounds {
    /// Creates the rounds of `steps` steps of programs with `joints` joint calls.
    pub fn new(programs: &[Program], joints: usize, steps: usize) -> Rounds {
        let mut of_joint = vec![Vec::new(); joints];
        let mut positions = Vec::new();
        for (position, program) in programs.iter().enumerate() {
            let mut messages: Vec<Vec<usize>> = Vec::new();
            for call in &program.calls {
                if let (Some(round), CallRun::Joint(joint)) = (call.round, call.run) {
                    messages.resize(messages.len().max(round + 1), Vec::new());
                    messages[round].push(joint);
                    of_joint[joint].push((position, round));
                }
            }
            let states = vec![RoundState::default(); messages.len() * steps];
            positions.push(PositionRounds { messages, states, next: 0 });
        }
        Rounds { positions, of_joint }
    }

    /// Notes that a position that is ready at `ready` has issued a message of a round.
    pub fn issue(&mut self, position: usize, (step, round): (usize, usize), ready: f64) {
        let own = &mut self.positions[position];
        let state = &mut own.states[step * own.messages.len() + round];
        state.issued += 1;
        state.ready = state.ready.max(ready);
    }

    /// Begins the next round of a position, if all its messages are issued and the round before has ended.
    pub fn begin_next(&mut self, position: usize) -> Option<BegunRound> {
        let own = &mut self.positions[position];
        let state = own.states.get(own.next)?;
        let messages = &own.messages[own.next % own.messages.len()];
        let before = match own.next.checked_sub(1) {
            None => 0.0,
            Some(before) => {
                let of_before = own.messages[before % own.messages.len()].len();
                let before = &own.states[before];
                if before.ended < of_before {
                    return None;
                }
                before.end
            }
        };
        if state.issued < messages.len() {
            return None;
        }
        let start = state.ready.max(before);
        let step = own.next / own.messages.len();
        let begun = BegunRound { step, messages: messages.clone(), start };
        own.next += 1;
        Some(begun)
    }

    /// Notes the end of a message, and returns the positions that it is at.
    pub fn end_message(&mut self, (step, joint): (usize, usize), end: f64) -> Vec<usize> {
        let rounds = self.of_joint[joint].clone();
        for (position, round) in &rounds {
            let own = &mut self.positions[*position];
            let state = &mut own.states[step * own.messages.len() + round];
            state.ended += 1;
            state.end = state.end.max(end);
        }
        rounds.into_iter().map(|(position, _)| position).collect()
    }

    /// Returns the end of a round of a position, if all its messages have ended.
    pub fn end_of(&self, position: usize, (step, round): (usize, usize)) -> Option<f64> {
        let own = &self.positions[position];
        let state = &own.states[step * own.messages.len() + round];
        (state.ended == own.messages[round].len()).then_some(state.end)
    }
}
