//! Results, bytes and memory of steps.

use crate::schedule::tests::{Numbers, mutated, named, random_order};
use crate::schedule::{
    Action, LOOKAHEAD, Schedule, ScheduleKind, Work, csv, lower_schedule, verify,
};

use super::integer_stages::{ACTIVATION_BYTES, GRADIENT_BYTES};
use super::{check_step, named_schedules, run_step};

#[test]
fn named_schedules_give_the_reference() {
    for schedule in (1..=4).flat_map(named_schedules) {
        check_step(&schedule, |comms, _| comms);
    }
}

/// Posted at the use, one computation ahead, and all at the start.
#[test]
fn results_do_not_depend_on_lookahead() {
    for schedule in named_schedules(3) {
        for lookahead in [0, 1, usize::MAX] {
            check_step(&lower_schedule(&schedule, lookahead), |comms, _| comms);
        }
    }
}

#[test]
fn random_orders_give_the_reference() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..100 {
        let backward = [Work::Backward, Work::BackwardInput][round % 2];
        check_step(&random_order(&mut numbers, backward), |comms, _| comms);
    }
}

/// A mutation of a schedule without a name is refused, or another order with the same results: never a wrong number.
#[test]
fn mutations_are_refused_or_give_the_reference() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let (mut accepted, mut refused) = (0, 0);
    while accepted < 60 {
        let kind = ScheduleKind::ALL[numbers.below(ScheduleKind::ALL.len())];
        let (ranks, micro_batches) = (2 + numbers.below(2), 2 + numbers.below(4));
        let original = named(kind, ranks, micro_batches);
        let original =
            [original.clone(), lower_schedule(&original, LOOKAHEAD)][numbers.below(2)].clone();
        let mutated = Schedule { kind: None, ..mutated(&original, &mut numbers) };
        if mutated.ranks == original.ranks {
            continue;
        }
        if verify(&mutated).is_err() {
            refused += 1;
        } else {
            accepted += 1;
            check_step(&mutated, |comms, _| comms);
        }
    }
    assert!(refused > accepted, "{refused} refused, {accepted} accepted");
}

/// Schedules from files: of computations with an overlapped pair, and lowered ones in PyTorch's order.
#[test]
fn csv_schedules_give_the_reference() {
    for text in [
        "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1W0,1B1\n",
        "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n",
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0RECV_B1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n\
         1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
        "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n",
    ] {
        check_step(&csv::read(text).unwrap(), |comms, _| comms);
    }
    for schedule in named_schedules(3) {
        check_step(&csv::read(&csv::write(&schedule)).unwrap(), |comms, _| comms);
        check_step(&csv::read(&csv::write(&lower_schedule(&schedule, 1))).unwrap(), |comms, _| {
            comms
        });
    }
}

#[test]
fn parameters_are_gathered_as_scheduled() {
    let text = "0UNSHARD,0F0,0B0,0RESHARD\n1F0,1B0,1REDUCE_GRAD\n";
    let steps = run_step(&csv::read(text).unwrap());
    let actions = [Action::Unshard(0), Action::Reshard(0), Action::ReduceGrad(0)];
    assert!(actions.iter().all(|action| steps[0].results.other_actions.contains(action)));
    assert_eq!(steps[0].results.other_actions.len(), 3);
    assert_eq!(steps[1].results.other_actions, [Action::ReduceGrad(1)]);
}

/// Each rank sends the outputs of its stages whose neighbors are on other ranks, once per micro-batch.
#[test]
fn sent_bytes_follow_the_closed_form() {
    for schedule in (1..=4).flat_map(named_schedules) {
        let Schedule { placement, micro_batches, .. } = &schedule;
        let expected = |rank: usize| -> u64 {
            let own = (0..placement.len()).filter(|stage| placement[*stage] == rank);
            let is_elsewhere = |stage: usize| placement.get(stage).is_some_and(|at| *at != rank);
            let bytes = own.map(|stage| {
                let activation = if is_elsewhere(stage + 1) { ACTIVATION_BYTES } else { 0 };
                let gradient = if is_elsewhere(stage.wrapping_sub(1)) { GRADIENT_BYTES } else { 0 };
                activation + gradient
            });
            *micro_batches as u64 * bytes.sum::<u64>()
        };
        let steps = run_step(&schedule);
        for (rank, step) in steps.iter().enumerate() {
            assert_eq!(step.sent_bytes, expected(rank), "rank {rank} of {schedule:?}");
        }
        // Over all ranks: both directions of every boundary but the turns of a V.
        let turns = placement.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let boundaries = (placement.len() - 1 - turns) as u64;
        let total: u64 = steps.iter().map(|step| step.sent_bytes).sum();
        let per_boundary = ACTIVATION_BYTES + GRADIENT_BYTES;
        assert_eq!(total, *micro_batches as u64 * boundaries * per_boundary);
    }
}

/// The next stage at the turn of a V receives the very buffer of the previous one.
#[test]
fn stages_of_one_rank_share_buffers() {
    for kind in [ScheduleKind::ZeroBubbleV, ScheduleKind::DualPipeV] {
        let steps = run_step(&named(kind, 2, 4));
        for micro_batch in 0..4 {
            let [output, input] = [
                steps[1].results.outputs[&(1, micro_batch)],
                steps[1].results.inputs[&(2, micro_batch)],
            ];
            assert_eq!(output, input);
            let received = steps[1].results.inputs[&(1, micro_batch)];
            assert_ne!(received, steps[0].results.outputs[&(0, micro_batch)]);
        }
    }
}

/// Received buffers are allocated where they are posted, so few are alive, however many micro-batches there are.
#[test]
fn receive_buffers_do_not_grow_with_micro_batches() {
    for kind in ScheduleKind::ALL {
        let peaks = |micro_batches| -> Vec<usize> {
            run_step(&named(kind, 4, micro_batches)).iter().map(|s| s.received_peak).collect()
        };
        let (few, many) = (peaks(16), peaks(32));
        assert_eq!(few, many, "{kind}");
        assert!(few.iter().all(|peak| *peak > 0), "{kind}");
    }
}
