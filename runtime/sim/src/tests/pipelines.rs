//! Pipelines whose kernels take given times, against known bubbles and the simulation of schedules.

use std::sync::Arc;

use meshwright_comm::MessageId;
use meshwright_core::__internal::Pass;
use meshwright_mesh::{AxisSet, MeshShape};
use meshwright_pipeline::schedule::{
    Action as ScheduleAction, CostModel, Costs, LOOKAHEAD, Message, MessageKind, Schedule,
    ScheduleKind, StageCosts, Work, lockstep, lower_schedule, simulate as simulate_schedule,
};

use super::fixture::{LogWriter, figure, message, plain, unit_cluster};
use crate::cluster::Cluster;
use crate::{CommOpKind, RunningAction, SimLane, SimOptions, SimulatedStep, StepLog, simulate};

const COSTS: Costs = Costs { forward: 2.0, input: 3.0, weight: 1.0, message: 0.0 };

fn schedule(kind: ScheduleKind, ranks: usize, micro_batches: usize) -> Schedule {
    let schedule = kind.generate(ranks, kind.default_chunks(), micro_batches).unwrap();
    lower_schedule(&schedule, LOOKAHEAD)
}

/// The logs of a schedule, whose ranks meet at the end of the step.
fn logs(schedule: &Schedule, costs: impl CostModel) -> Vec<Arc<StepLog>> {
    logs_in_rounds(schedule, costs, |_| None)
}

/// The logs of a schedule with rounds of messages.
fn logs_in_rounds(
    schedule: &Schedule,
    costs: impl CostModel,
    round_of: impl Fn(Message) -> Option<usize>,
) -> Vec<Arc<StepLog>> {
    let round_of = |message: Message| round_of(message).map(|round| round as u32);
    let logs = schedule.ranks.iter().map(|actions| {
        let mut log = LogWriter::new();
        let mut receives = Vec::new();
        for action in actions {
            match action {
                ScheduleAction::Send(message) => {
                    let sent =
                        log.round_message(CommOpKind::Send, id(*message), round_of(*message));
                    log.wait(sent);
                }
                ScheduleAction::Recv(message) => {
                    let received =
                        log.round_message(CommOpKind::Recv, id(*message), round_of(*message));
                    receives.push((*message, received));
                }
                _ => {}
            }
            for compute in action.computes() {
                let input = compute.input_message(schedule.stages());
                if let Some((_, number)) = receives.iter().find(|(known, _)| Some(*known) == input)
                {
                    log.wait(*number);
                }
                let (stage, micro_batch) = (compute.stage, compute.micro_batch);
                let work = compute.work.letter();
                let pass =
                    if compute.work == Work::Forward { Pass::Forward } else { Pass::Backward };
                log.begin(pass, "", Some(RunningAction { work, stage, micro_batch }));
                log.map(costs.time_of(*compute) as u64);
            }
        }
        log.begin(Pass::Update, "", None);
        log.blocking(CommOpKind::AllReduce, AxisSet::ALL, 0);
        log.finish()
    });
    logs.collect()
}

fn id(message: Message) -> MessageId {
    let kind = if message.kind() == MessageKind::Activation { "activation" } else { "gradient" };
    let (from_stage, to_stage) = (message.from_stage(), message.to_stage());
    MessageId { kind, from_stage, to_stage, micro_batch: message.micro_batch(), part: 0 }
}

fn run(cluster: &Cluster, logs: &[Arc<StepLog>], options: &SimOptions) -> SimulatedStep {
    let mesh: MeshShape = format!("pp={}", logs.len()).parse().unwrap();
    simulate(cluster, &mesh, logs, options).unwrap()
}

fn utilization(step: &SimulatedStep) -> f64 {
    step.mean_position().computed() / step.seconds
}

/// GPipe with 4 stages and 4 micro-batches computes `m / (m + p - 1)` = 4/7 of the time (Huang et al. 2019).
#[test]
fn gpipe_has_its_bubble() {
    let logs = logs(&schedule(ScheduleKind::GPipe, 4, 4), Costs::default());
    let step = run(&unit_cluster(8), &logs, &plain());
    assert!((utilization(&step) - 4.0 / 7.0).abs() < 1e-12);
    assert!((step.bubble() - 3.0 / 7.0).abs() < 1e-12);
    assert_eq!(step.seconds, 21.0);
}

#[test]
fn a_batch_in_one_piece_uses_one_stage_at_a_time() {
    let logs = logs(&schedule(ScheduleKind::GPipe, 16, 1), Costs::default());
    let step = run(&unit_cluster(8), &logs, &plain());
    assert!((utilization(&step) - 1.0 / 16.0).abs() < 1e-12);
}

/// All schedules take the time that the simulation of schedules computes, which shares no code with the replay.
#[test]
fn replay_agrees_with_schedules() {
    for kind in ScheduleKind::ALL {
        for (ranks, micro_batches) in [(2, 4), (4, 8), (4, 4), (8, 16)] {
            for message in [0.0, 0.25, 2.5] {
                let (costs, schedule) =
                    (Costs { message, ..COSTS }, schedule(kind, ranks, micro_batches));
                let mut cluster = unit_cluster(1);
                cluster.levels.remove(0);
                cluster.levels[0].latency = figure(message);
                let step = run(&cluster, &logs(&schedule, costs), &plain());
                // The step ends with a collective over all ranks, which has the latency of a message.
                let expected = simulate_schedule(&schedule, costs).unwrap().makespan() + message;
                let error = (step.seconds - expected).abs();
                assert!(
                    error < 1e-9,
                    "{kind} {ranks} x {micro_batches}: {} {expected}",
                    step.seconds
                );
            }
        }
    }
}

/// Rounds that are made for the costs of the stages take no more time than independent messages, also with an expensive
/// last stage; rounds that are made for even stages hold it up.
#[test]
fn rounds_suit_the_costs_of_stages() {
    for kind in ScheduleKind::ALL {
        let schedule = kind.generate(4, kind.default_chunks(), 8).unwrap();
        let mut costs = vec![20.0; schedule.stages()];
        *costs.last_mut().unwrap() = 36.0;
        let costs = StageCosts::new(&costs, false);
        let independent = logs(&lower_schedule(&schedule, LOOKAHEAD), &costs);
        let seconds = |logs: &[Arc<StepLog>]| run(&unit_cluster(8), logs, &plain()).seconds;
        let least = seconds(&independent);
        let in_rounds = |of: &StageCosts| {
            let rounds = lockstep(&schedule, of).unwrap();
            let round_of = |message| rounds.round_of(message);
            seconds(&logs_in_rounds(rounds.program(), &costs, round_of))
        };
        let [own, even] = [&costs, &StageCosts::even(schedule.stages())].map(in_rounds);
        assert!(own <= 1.02 * least, "{kind}: {own} {least}");
        assert!(own <= even, "{kind}: {own} {even}");
    }
}

/// None of the messages of a round is complete before all are, and the next round follows them.
#[test]
fn messages_of_a_round_end_together() {
    let seconds = |rounds: [u32; 2]| {
        let mut sender = LogWriter::new();
        let mut receiver = LogWriter::new();
        let mut first = 0;
        for (index, round) in rounds.into_iter().enumerate() {
            let id = message(0, index);
            // The second message is sent later.
            sender.map(5 * index as u64);
            let sent = sender.round_message(CommOpKind::Send, id, Some(round));
            sender.wait(sent);
            let received = receiver.round_message(CommOpKind::Recv, id, Some(round));
            first = if index == 0 { received } else { first };
        }
        receiver.wait(first);
        receiver.map(1);
        // Positions begin steps together.
        for log in [&mut sender, &mut receiver] {
            log.blocking(CommOpKind::AllReduce, AxisSet::ALL, 0);
        }
        run(&unit_cluster(8), &[sender.finish(), receiver.finish()], &plain()).seconds
    };
    assert_eq!(seconds([0, 1]), 5.0);
    assert_eq!(seconds([0, 0]), 6.0);
}

/// The parts of the time of each position sum up to the step.
#[test]
fn parts_are_the_whole() {
    let logs = logs(&schedule(ScheduleKind::Interleaved, 4, 8), COSTS);
    let mut cluster = unit_cluster(2);
    cluster.levels[1].latency = figure(0.5);
    let step = run(&cluster, &logs, &SimOptions::default());
    for position in &step.positions {
        assert!((position.total() - step.seconds).abs() < 1e-9, "{position:?} of {}", step.seconds);
        assert!(position.waiting > 0.0);
    }
}

#[test]
fn actions_and_messages_have_spans() {
    let schedule = schedule(ScheduleKind::OneFOneB, 2, 2);
    let mut cluster = unit_cluster(8);
    cluster.levels[0].latency = figure(0.5);
    let options = SimOptions { spans: true, ..plain() };
    let step = run(&cluster, &logs(&schedule, COSTS), &options);
    let mut lines: Vec<(usize, f64, String)> = Vec::new();
    for span in &step.spans {
        let (lane, name) = (span.lane, &span.name);
        if matches!(lane, SimLane::Action | SimLane::Message { is_sent: false, .. }) {
            lines.push((span.position, span.start, format!("{lane}: {name} {}", span.duration)));
        }
    }
    lines.sort_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).unwrap());
    let lines: Vec<String> =
        lines.iter().map(|(position, start, text)| format!("{position} {start} {text}")).collect();
    let message = |kind, batch, from, to| {
        format!("recv {kind} of micro-batch {batch} from stage {from} to stage {to}, part 0")
    };
    let expected = [
        "0 0 compute: F 0.0 2".into(),
        "0 2 compute: F 0.1 2".into(),
        format!("0 8.5 comm pp (messages from 1): {} 0.5", message("gradient", 0, 1, 0)),
        "0 9 compute: B 0.0 4".into(),
        format!("0 14.5 comm pp (messages from 1): {} 0.5", message("gradient", 1, 1, 0)),
        "0 15 compute: B 0.1 4".into(),
        format!("1 2 comm pp (messages from 0): {} 0.5", message("activation", 0, 0, 1)),
        "1 2.5 compute: F 1.0 2".into(),
        format!("1 4.5 comm pp (messages from 0): {} 0.5", message("activation", 1, 0, 1)),
        "1 4.5 compute: B 1.0 4".into(),
        "1 8.5 compute: F 1.1 2".into(),
        "1 10.5 compute: B 1.1 4".into(),
    ];
    assert_eq!(lines, expected);
}
