//! Meetings and messages under the orders in which threads can take turns: none is lost, and nobody sleeps for ever.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Category, DType, MemoryMeter, View, ViewMut};
use crate::comm::account::Account;
use crate::comm::own_thread::OwnThread;
use crate::comm::{Blocks, CommError, Departure, ReduceOp, Site};
use crate::layout::AxisSet;
use crate::trace::Lane;

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
            account: Arc::new(Account::new(Arc::new(OwnThread::new(Lane::off())))),
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
        seat.all_reduce(&Mode::Synchronous, &site, ReduceOp::Sum, view).unwrap();
        assert!(data.iter().all(|value| *value == sum));
    }
}

#[test]
fn lent_memory_is_complete_when_the_call_returns() {
    model(sum_lent, sum_lent);
}

fn sum_and_gather_in_place(seat: &Seat) {
    let own = COPY_LIMIT / size_of::<f32>() + 1;
    let (site, blocks) = (Site::new("x"), Blocks::even(1, own, 2));
    let mut data = vec![1.0f32; blocks.total()];
    let mode = &Mode::Asynchronous(None);
    seat.reduce_scatter_in_place(mode, &site, ViewMut::from(&mut data[..]), &blocks).unwrap();
    let run = blocks.start(seat.member)..blocks.start(seat.member) + own;
    assert!(data[run.clone()].iter().all(|value| *value == 2.0));
    data[run].fill(3.0);
    seat.all_gather_in_place(mode, &site, ViewMut::from(&mut data[..]), &blocks).unwrap();
    assert!(data.iter().all(|value| *value == 3.0));
}

#[test]
fn a_buffer_is_complete_when_a_call_in_place_returns() {
    model(sum_and_gather_in_place, sum_and_gather_in_place);
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
fn a_message_arrives_in_a_buffer_that_was_left_for_it() {
    model(
        |seat| {
            let data = MemoryMeter::new().copy_of(&[7u32], Category::Communication);
            let (pending, later) = seat.start_send(&Site::new("x"), 1, Arc::new(data));
            assert!(later.is_none(), "a small message is copied at once");
            pending.wait().unwrap();
        },
        |seat| {
            let room = MemoryMeter::new().zeros(DType::U32, 1, Category::Communication);
            let (pending, later) = seat.start_recv(&Site::new("x"), 0, room);
            assert!(later.is_none());
            assert_eq!(pending.wait().unwrap().typed::<u32>(), [7]);
        },
    );
}

#[test]
fn whoever_has_left_a_buffer_is_told_that_its_sender_leaves() {
    model(
        |seat| {
            let room = MemoryMeter::new().zeros(DType::U32, 1, Category::Communication);
            let (pending, _) = seat.start_recv(&Site::new("x"), 1, room);
            assert!(matches!(pending.wait(), Err(CommError::PeerLeft { rank: 1, .. })));
        },
        |seat| seat.group.leave_calls(1, &Ending { rank: 1, departure: Departure::Returned }),
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
            let (site, mut data) = (Site::new("y"), [0f32]);
            let data = ViewMut::from(&mut data[..]);
            let result = seat.broadcast(&Mode::Synchronous, &site, 0, data);
            assert!(matches!(result, Err(CommError::Mismatch { .. })));
        },
    );
}
