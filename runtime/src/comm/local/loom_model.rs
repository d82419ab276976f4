//! Meetings and messages under the orders in which threads can take turns: none is lost, and nobody sleeps for ever.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{View, ViewMut};
use crate::comm::stats::Counters;
use crate::comm::{CommError, Departure, ReduceOp, Site};
use crate::layout::AxisSet;

use super::group::Group;
use super::operand::COPY_LIMIT;
use super::roster::{Ending, Roster};
use super::seat::{Mode, Seat};

/// Runs `other` on the second of two members and `own` on the first, in many orders.
fn model(own: fn(&Seat), other: fn(&Seat)) {
    let mut builder = loom::model::Builder::new();
    // Turns are taken from a thread at most three times per order tried, as bugs rarely need more; all orders take minutes.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let roster = Arc::new(Roster::new(2, Duration::from_secs(3600)));
        let group = Arc::new(Group::new(AxisSet::NONE, vec![0, 1], roster, vec![None, None]));
        let seat = |member| Seat {
            group: Arc::clone(&group),
            member,
            counters: Arc::new(Counters::default()),
        };
        let second = seat(1);
        let thread = loom::thread::spawn(move || other(&second));
        own(&seat(0));
        thread.join().unwrap();
    });
}

fn sum_lent(seat: &Seat) {
    let mut data = vec![1.0f32; COPY_LIMIT / size_of::<f32>() + 1];
    let site = Site::new("x");
    for sum in [2.0, 4.0] {
        let view = ViewMut::from(&mut data[..]);
        seat.all_reduce(Mode::Synchronous, &site, ReduceOp::Sum, view).unwrap();
        assert!(data.iter().all(|value| *value == sum));
    }
}

#[test]
fn lent_memory_is_complete_when_the_call_returns() {
    model(sum_lent, sum_lent);
}

#[test]
fn a_message_arrives_whoever_is_first() {
    model(
        |seat| seat.send(&Site::new("x"), 1, View::from(&[7u32][..])).unwrap(),
        |seat| {
            let mut got = [0u32];
            seat.recv(&Site::new("x"), 0, ViewMut::from(&mut got[..])).unwrap();
            assert_eq!(got, [7]);
        },
    );
}

#[test]
fn whoever_waits_for_a_member_that_leaves_is_told() {
    model(
        |seat| {
            let result = seat.barrier(&Site::new("x"));
            assert!(matches!(result, Err(CommError::PeerLeft { rank: 1, .. })));
        },
        |seat| seat.group.leave_calls(1, &Ending { rank: 1, departure: Departure::Returned }),
    );
}

#[test]
fn calls_that_differ_fail_on_both_sides() {
    model(
        |seat| assert!(seat.barrier(&Site::new("x")).is_err()),
        |seat| {
            let result = seat.broadcast(&Site::new("y"), 0, ViewMut::from(&mut [0f32][..]));
            assert!(matches!(result, Err(CommError::Mismatch { .. })));
        },
    );
}
