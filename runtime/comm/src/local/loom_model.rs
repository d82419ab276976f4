//! Rendezvous and messages under all interleavings of their threads: no wakeup is lost.

use std::sync::Arc;
use std::time::Duration;

use crate::accounting::Accounting;
use crate::exposed_time::ExposedClock;
use crate::rank_table::{ExitCause, RankTable};
use crate::trace::Lane;
use crate::{Blocks, Call, CommError, CommOp, Communicator, GroupMember, RankExit, ReduceOp, Site};
use meshwright_backend::{Buffer, CachingAllocator, Category, DType, View, ViewMut};
use meshwright_mesh::AxisSet;

use super::member::{IssuedCall, LocalMember};
use super::operand::COPY_LIMIT;
use super::process_group::LocalProcessGroup;
use super::shared_group::SharedGroup;

/// One of two ranks, with its member for calls that would need a thread.
struct ModelRank {
    comm: Communicator,
    member: Arc<LocalMember>,
}

/// Runs `other` on the second of two ranks and `own` on the first, in many interleavings.
fn model(own: fn(&ModelRank), other: fn(&ModelRank)) {
    let mut builder = loom::model::Builder::new();
    // Bugs rarely need more than three preemptions; all interleavings take minutes.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let ranks = Arc::new(RankTable::new(2, Duration::from_secs(3600)));
        let membership = |group_rank| {
            let accounting = Accounting::new(Arc::new(ExposedClock::new(Lane::disabled())));
            Arc::new(GroupMember::new(AxisSet::NONE, vec![0, 1], group_rank, accounting))
        };
        let memberships = [membership(0), membership(1)];
        let group = Arc::new(SharedGroup::new(&memberships[0], ranks, vec![None, None]));
        let [first, second] = memberships.map(|membership| {
            let group = Arc::clone(&group);
            let member = Arc::new(LocalMember { group, membership: Arc::clone(&membership) });
            let process_group = Arc::new(LocalProcessGroup::new(Arc::clone(&member)));
            ModelRank { comm: Communicator::new(membership, process_group), member }
        });
        let thread = loom::thread::spawn(move || other(&second));
        own(&first);
        thread.join().unwrap();
    });
}

fn sum_lent(rank: &ModelRank) {
    let mut data = vec![1.0f32; COPY_LIMIT / size_of::<f32>() + 1];
    let site = Site::new("x");
    for sum in [2.0, 4.0] {
        let view = ViewMut::from(&mut data[..]);
        rank.comm.all_reduce(&site, ReduceOp::Sum, view).unwrap();
        assert!(data.iter().all(|value| *value == sum));
    }
}

#[test]
fn lent_memory_is_complete_on_return() {
    model(sum_lent, sum_lent);
}

/// An asynchronous call, carried out by the calling thread.
fn asynchronous_call(op: CommOp, dtype: DType) -> Arc<Call> {
    let (axes, site) = (AxisSet::NONE, Site::new("x"));
    let (dtype, on_device, asynchronous, bytes) = (Some(dtype), false, true, 0);
    Arc::new(Call { op, dtype, on_device, axes, asynchronous, site, bytes })
}

fn sum_and_gather_in_place(rank: &ModelRank) {
    let own = COPY_LIMIT / size_of::<f32>() + 1;
    let blocks = Blocks::even(1, own, 2);
    let mut data = vec![1.0f32; blocks.total()];
    let run_in_place = |op: CommOp, data: &mut [f32]| {
        let call = &asynchronous_call(op, DType::F32);
        let issued = IssuedCall { call, ready: None };
        rank.member.run_collective(issued, None, Some(ViewMut::from(data))).unwrap();
    };
    run_in_place(CommOp::ReduceScatter { blocks: blocks.clone() }, &mut data);
    let start = blocks.start(rank.comm.rank());
    let run = start..start + own;
    assert!(data[run.clone()].iter().all(|value| *value == 2.0));
    data[run].fill(3.0);
    run_in_place(CommOp::AllGather { blocks }, &mut data);
    assert!(data.iter().all(|value| *value == 3.0));
}

#[test]
fn buffer_is_complete_after_calls_in_place() {
    model(sum_and_gather_in_place, sum_and_gather_in_place);
}

#[test]
fn message_arrives_whichever_rank_is_first() {
    model(
        |rank| rank.comm.send(&Site::new("x"), 1, View::from(&[7u32][..])).unwrap(),
        |rank| {
            let mut got = [0u32];
            rank.comm.recv(&Site::new("x"), 0, ViewMut::from(&mut got[..])).unwrap();
            assert_eq!(got, [7]);
        },
    );
}

fn room() -> Buffer {
    CachingAllocator::new().zeros(DType::U32, 1, Category::Communication)
}

#[test]
fn message_arrives_in_an_asynchronous_receive() {
    model(
        |rank| {
            let data = CachingAllocator::new().copy_of(&[7u32], Category::Communication);
            let to = rank.member.membership.peer(1);
            let call = asynchronous_call(CommOp::Send { to, count: 1 }, DType::U32);
            let (completion, job) = rank.member.start_send(&call, to, Arc::new(data));
            assert!(job.is_none(), "a small message is copied immediately");
            completion.wait().unwrap();
        },
        |rank| {
            let from = rank.member.membership.peer(0);
            let call = asynchronous_call(CommOp::Recv { from, count: 1 }, DType::U32);
            let (completion, job) = rank.member.start_recv(&call, from, room());
            assert!(job.is_none());
            let data = completion.wait().unwrap().claim().flatten().unwrap();
            assert_eq!(data.typed::<u32>(), [7]);
        },
    );
}

fn leave(rank: &ModelRank) {
    let cause = ExitCause { rank: 1, exit: RankExit::Returned };
    rank.member.group.leave_blocking(1, &cause);
}

#[test]
fn asynchronous_receive_fails_when_its_sender_leaves() {
    model(
        |rank| {
            let pending = rank.comm.start_recv(&Site::new("x"), 1, room());
            assert!(matches!(pending.wait(), Err(CommError::PeerLeft { rank: 1, .. })));
        },
        leave,
    );
}

#[test]
fn blocking_call_fails_when_a_member_leaves() {
    model(
        |rank| {
            let result = rank.comm.barrier(&Site::new("x"));
            assert!(matches!(result, Err(CommError::PeerLeft { rank: 1, .. })));
        },
        leave,
    );
}

#[test]
fn mismatching_calls_fail_on_both_ranks() {
    model(
        |rank| assert!(rank.comm.barrier(&Site::new("x")).is_err()),
        |rank| {
            let (site, mut data) = (Site::new("y"), [0f32]);
            let result = rank.comm.broadcast(&site, 0, ViewMut::from(&mut data[..]));
            assert!(matches!(result, Err(CommError::Mismatch { .. })));
        },
    );
}
