//! Programs: the events of logs with their times, ready to be replayed.

use std::collections::HashMap;
use std::sync::Arc;

use meshwright_backend::{Kernel, KernelOp};
use meshwright_mesh::AxisSet;

use crate::error::SimError;
use crate::record::{CommCall, CommOpKind, EventKind, StepEvent, StepLog};
use crate::time::{Times, is_transfer};

use super::computation::{Computation, Kinds};
use super::joint::{JointCall, Joints};

/// The operations of one position in a step.
pub struct Program {
    pub ops: Vec<Op>,
    pub calls: Vec<ReplayedCall>,
    /// Number of streams of collectives.
    pub streams: usize,
}

/// An operation, and the index of its event in the log.
pub struct Op {
    pub event: usize,
    pub kind: OpKind,
}

pub enum OpKind {
    /// A kernel on the compute stream. `host_waits` if the host reads its result before it goes on.
    Kernel { seconds: f64, computation: Computation, host_waits: bool },
    /// A copy to the host, or from there for a kernel that follows, on the stream of transfers.
    Transfer { seconds: f64, is_fetch: bool },
    /// The call with this index is issued.
    Issue(usize),
    /// The compute stream waits for the call with this index.
    Await { call: usize, of_previous_step: bool },
}

/// A collective or message of one position.
pub struct ReplayedCall {
    pub op: CommOpKind,
    pub axes: AxisSet,
    pub is_asynchronous: bool,
    pub run: CallRun,
    /// Index of the round of a message.
    pub round: Option<usize>,
}

/// The ranks that run a call.
#[derive(Clone, Copy)]
pub enum CallRun {
    /// Ranks of this position, which are alike and begin together: a stream, and seconds.
    Alone { stream: usize, seconds: f64 },
    /// Several positions together.
    Joint(usize),
    /// The call takes no time: a send without identity, whose receiver counts it.
    Free,
}

/// Returns the programs of all positions, and the calls that several of them run together.
///
/// # Errors
/// On messages without a counterpart, waits for unknown calls, and dtypes that the GPU has no peak for.
pub fn compile(
    logs: &[Arc<StepLog>],
    times: &mut Times<'_>,
) -> Result<(Vec<Program>, Vec<JointCall>), SimError> {
    let mut joints = Joints::new(logs.len());
    let compile = |(position, log): (usize, &Arc<StepLog>)| {
        let compiler = Compiler {
            position,
            log,
            kinds: Kinds::new(log),
            ops: Vec::with_capacity(log.events.len()),
            calls: Vec::new(),
            indices: HashMap::new(),
            streams: Vec::new(),
            rounds: Vec::new(),
        };
        compiler.compile(times, &mut joints)
    };
    let programs = logs.iter().enumerate().map(compile).collect::<Result<Vec<_>, _>>()?;
    Ok((programs, joints.finish(times)?))
}

struct Compiler<'a> {
    position: usize,
    log: &'a StepLog,
    kinds: Kinds<'a>,
    ops: Vec<Op>,
    calls: Vec<ReplayedCall>,
    /// The index of each call by its number.
    indices: HashMap<u32, usize>,
    streams: Vec<AxisSet>,
    /// The numbers of its rounds.
    rounds: Vec<u32>,
}

impl Compiler<'_> {
    fn compile(mut self, times: &mut Times<'_>, joints: &mut Joints) -> Result<Program, SimError> {
        let mut of_previous = Vec::new();
        for (idx, event) in self.log.events.iter().enumerate() {
            let kind = match &event.kind {
                EventKind::Kernel(kernel) => self.kernel(&event, kernel, times)?,
                EventKind::Call(call) => {
                    self.issue(idx, call, times, joints)?;
                    continue;
                }
                EventKind::Await { number, of_previous_step: true } => {
                    // Calls of the step before may come later in the log.
                    of_previous.push((self.ops.len(), *number));
                    OpKind::Await { call: 0, of_previous_step: true }
                }
                EventKind::Await { number, of_previous_step } => {
                    let call = self.known_call(idx, *number)?;
                    OpKind::Await { call, of_previous_step: *of_previous_step }
                }
                EventKind::Alloc { .. } | EventKind::Free { .. } => continue,
            };
            self.ops.push(Op { event: idx, kind });
        }
        for (op, number) in of_previous {
            let call = self.known_call(self.ops[op].event, number)?;
            self.ops[op].kind = OpKind::Await { call, of_previous_step: true };
        }
        let Compiler { ops, calls, streams, .. } = self;
        Ok(Program { ops, calls, streams: streams.len() })
    }

    fn kernel(
        &self,
        event: &StepEvent,
        kernel: &Kernel,
        times: &mut Times<'_>,
    ) -> Result<OpKind, SimError> {
        let seconds = times.of_kernel(kernel)?;
        if is_transfer(kernel.op) {
            return Ok(OpKind::Transfer { seconds, is_fetch: kernel.op == KernelOp::CopyIn });
        }
        let computation = self.kinds.kind(kernel, event.context.0 as usize);
        Ok(OpKind::Kernel { seconds, computation, host_waits: kernel.op == KernelOp::Download })
    }

    fn issue(
        &mut self,
        event: usize,
        call: &CommCall,
        times: &mut Times<'_>,
        joints: &mut Joints,
    ) -> Result<(), SimError> {
        let position = self.position;
        let run = match call.message {
            Some(message) => {
                let message = self.log.messages[message as usize];
                CallRun::Joint(joints.add_message(position, event, call, message)?)
            }
            None if call.op == CommOpKind::Send => CallRun::Free,
            // Sums of tied gradients have no identities. They end a step, so the sender is taken to be as far.
            None if call.op == CommOpKind::Recv => {
                let farthest = if position == 0 { joints.positions() - 1 } else { 0 };
                let seconds = times.of_message([position, farthest], call.bytes);
                CallRun::Alone { stream: self.stream(call.axes), seconds }
            }
            None => {
                let seconds = times.of_collective(call);
                match joints.add_collective(position, call, seconds) {
                    Some(joint) => CallRun::Joint(joint),
                    None => CallRun::Alone { stream: self.stream(call.axes), seconds },
                }
            }
        };
        let idx = self.calls.len();
        let CommCall { op, axes, is_asynchronous, .. } = *call;
        let round = call.round.map(|number| self.round(number));
        self.calls.push(ReplayedCall { op, axes, is_asynchronous, run, round });
        self.indices.insert(call.number, idx);
        self.ops.push(Op { event, kind: OpKind::Issue(idx) });
        if !is_asynchronous {
            self.ops.push(Op { event, kind: OpKind::Await { call: idx, of_previous_step: false } });
        }
        Ok(())
    }

    /// Returns the index of the round of this number, which follows the last one or is it.
    fn round(&mut self, number: u32) -> usize {
        if self.rounds.last() != Some(&number) {
            self.rounds.push(number);
        }
        self.rounds.len() - 1
    }

    fn stream(&mut self, axes: AxisSet) -> usize {
        self.streams.iter().position(|known| *known == axes).unwrap_or_else(|| {
            self.streams.push(axes);
            self.streams.len() - 1
        })
    }

    fn known_call(&self, event: usize, number: u32) -> Result<usize, SimError> {
        let unknown = SimError::UnknownCall { position: self.position, event, number };
        self.indices.get(&number).copied().ok_or(unknown)
    }
}
