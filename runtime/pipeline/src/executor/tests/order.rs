//! The order of posts, sends and computations.

use std::sync::{Arc, Mutex};

use crate::schedule::{Action, Message, MessageKind, lower_schedule};
use meshwright_comm::{CommOp, MessageId};

use super::hooked_engine::hook_messages;
use super::integer_stages::boundary_parts;
use super::{named_schedules, try_step};

type Log = Arc<Mutex<Vec<String>>>;

fn entry(name: &str, message: Option<MessageId>) -> String {
    message.map_or(name.to_owned(), |message| format!("{name} {message}"))
}

/// The calls and computations that an action consists of.
fn entries_of(action: &Action) -> Vec<String> {
    let parts = |name: &str, message: &Message| -> Vec<String> {
        let kind = match message.kind() {
            MessageKind::Activation => "activation",
            MessageKind::Gradient => "gradient",
        };
        let (from_stage, to_stage) = (message.from_stage(), message.to_stage());
        let micro_batch = message.micro_batch();
        let id = |part| MessageId { kind, from_stage, to_stage, micro_batch, part };
        (0..boundary_parts(*message).len()).map(|part| entry(name, Some(id(part)))).collect()
    };
    match action {
        Action::Send(message) => parts("send", message),
        Action::Recv(message) => parts("recv", message),
        _ => action.computes().iter().map(ToString::to_string).collect(),
    }
}

/// Receives are posted where the lowered schedule has them, before the computation that precedes their use.
#[test]
fn calls_have_the_order_of_the_program() {
    for (schedule, lookahead) in named_schedules(3).flat_map(|s| [(s.clone(), 0), (s, 1)]) {
        let program = lower_schedule(&schedule, lookahead);
        let logs: Vec<Log> = (0..3).map(|_| Log::default()).collect();
        let step = try_step(&program, |comms, stages| {
            let log = Arc::clone(&logs[comms.rank()]);
            stages.before_compute = Box::new(move |compute| {
                log.lock().unwrap().push(compute.to_string());
                Ok(())
            });
            let log = Arc::clone(&logs[comms.rank()]);
            hook_messages(
                comms,
                Arc::new(move |group, call, operands| {
                    let name = if matches!(call.op, CommOp::Send { .. }) { "send" } else { "recv" };
                    log.lock().unwrap().push(entry(name, call.site.message()));
                    group.issue(call, operands)
                }),
            )
        });
        step.unwrap_or_else(|error| panic!("{error}"));
        for (log, actions) in logs.iter().zip(&program.ranks) {
            let expected: Vec<String> = actions.iter().flat_map(entries_of).collect();
            assert_eq!(*log.lock().unwrap(), expected);
        }
    }
}
