//! Bytes that rank 0 sends to other pipeline stages in a step.
//!
//! With `m` micro-batches, `A` bytes of the stream of one of them, `t` ranks along `tp` that share it, and `S` elements
//! of the rank's shard of a tied weight: `m A / t` for each boundary that a stage of the rank sends activations or
//! gradients across, and `4 S` for the gradient of the weight, if another rank owns it too. The gradient norm is a
//! number in double precision.

use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::train::LanguageModel;

use super::case::{Case, F32, F64, ONE};
use super::ring::all_reduce;

const CASE: Case = Case { pp: 2, schedule: "1f1b", layers: 4, seq: 16, micro_batches: 4, ..ONE };

/// Schedules of two ranks, and the messages of rank 0 for each micro-batch.
const SCHEDULES: [(&str, usize); 6] = [
    ("gpipe", 1),
    ("1f1b", 1),
    // Stages 0 and 2: two activations, and a gradient.
    ("interleaved", 3),
    ("zb-h1", 1),
    // Stages 0 and 3: an activation, and a gradient.
    ("zb-v", 2),
    ("dualpipev", 2),
];

/// Trains, and compares the bytes of the second step, when no rank compares schedules any more.
#[track_caller]
fn check(case: Case, messages: usize) {
    check_model::<Llama>(case, messages);
}

#[track_caller]
fn check_model<M: LanguageModel>(case: Case, messages: usize) {
    let outcome = case.run::<M>();
    let stream = case.tokens() * case.hidden * case.element() / case.tp;
    // The first and the last stage of a V are on one rank, which owns a tied weight alone.
    let is_v = matches!(case.schedule, "zb-v" | "dualpipev");
    let tied = if case.tied && !is_v { F32 * case.units(0)[0] } else { 0 };
    // The squared norm, if tp has no part in it.
    let norm = if case.tp == 1 { all_reduce(F64, case.pp) } else { 0 };
    let expected = case.micro_batches * messages * stream + tied + norm;
    assert_eq!(outcome.steps[1]["comm_bytes"]["pp"], expected, "{case:?}");
}

#[test]
fn every_schedule_sends_the_bytes_of_its_boundaries() {
    for (schedule, messages) in SCHEDULES {
        check(Case { schedule, ..CASE }, messages);
    }
}

/// The auxiliary losses of routers stay in their stage: the boundaries have the stream alone.
#[test]
fn auxiliary_losses_are_not_sent() {
    for (schedule, messages) in SCHEDULES {
        for case in [Case { schedule, ..CASE }, Case { schedule, tp: 2, bf16: true, ..CASE }] {
            check_model::<Mixtral>(case, messages);
        }
    }
}

#[test]
fn bytes_of_stages_fall_with_tp_dtype_and_rows() {
    for (schedule, messages) in [("1f1b", 1), ("zb-v", 2)] {
        let case = Case { schedule, ..CASE };
        for case in [
            Case { tp: 2, ..case },
            Case { bf16: true, ..case },
            Case { micro_batches: 8, ..case },
            Case { tp: 2, bf16: true, tied: true, ..case },
        ] {
            check(case, messages);
        }
    }
}

/// Both owners of a tied weight send the gradient of their shard once per step, in f32.
#[test]
fn tied_weights_send_one_gradient_per_step() {
    for micro_batches in [2, 8] {
        check(Case { tied: true, micro_batches, ..CASE }, 1);
        check(Case { tied: true, micro_batches, bf16: true, ..CASE }, 1);
    }
    // The turn of the V is on the other rank.
    check(Case { tied: true, pp: 2, schedule: "interleaved", ..CASE }, 3);
}
