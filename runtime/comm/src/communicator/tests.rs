//! Calls as an engine gets them, and its ways to complete them.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::{
    Blocks, Call, CommError, CommOp, Communicator, Completion, Engine, GroupMember, Operands,
    ProcessGroup, Promise, RankComms, RankExit, ReduceOp, Site, launch,
};
use meshwright_backend::{Buffer, CachingAllocator, Category, DType, View, ViewMut};
use meshwright_mesh::{AxisId, AxisSet};

const TP: AxisSet = AxisSet::of(AxisId::Tp);

type Calls = Arc<Mutex<Vec<Arc<Call>>>>;

/// An engine that records its calls and completes them with `complete`, without other ranks.
#[derive(Clone)]
struct Recorder {
    calls: Calls,
    complete: fn(Option<Buffer>) -> Completion,
}

impl Engine for Recorder {
    fn process_group(&self, _: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        Arc::new(self.clone())
    }

    fn leave(&self, _: &RankExit) {}
}

impl ProcessGroup for Recorder {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        self.calls.lock().unwrap().push(Arc::clone(call));
        let (_, dst) = operands.into_buffers();
        (self.complete)(dst)
    }
}

/// Rank 1 of `tp=3` over a recorder, and its calls.
fn recorded(complete: fn(Option<Buffer>) -> Completion) -> (Arc<Communicator>, Calls) {
    let calls = Calls::default();
    let engine = Recorder { calls: Arc::clone(&calls), complete };
    let comms = RankComms::with_engine("tp=3".parse().unwrap(), 1, Arc::new(engine));
    (comms.group(TP), calls)
}

fn buffer(len: usize) -> Buffer {
    CachingAllocator::new().zeros(DType::F32, len, Category::Communication)
}

#[test]
fn calls_carry_arguments_bytes_and_site() {
    let (tp, calls) = recorded(|dst| Completion::completed(Ok(dst)));
    let (site, mut data) = (Site::here("mlp.down"), [0f32; 6]);
    tp.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut data[..])).unwrap();
    assert_eq!(tp.start_broadcast(&site, 2, buffer(6)).wait().unwrap().len(), 6);
    let calls = calls.lock().unwrap();
    let [sum, copy] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(sum.op, CommOp::AllReduce { op: ReduceOp::Sum, count: 6 });
    assert_eq!((sum.dtype, sum.axes, sum.asynchronous), (Some(DType::F32), TP, false));
    assert_eq!((sum.bytes, sum.site.field()), (32, "mlp.down"));
    assert_eq!(copy.op.root().map(|root| root.world_rank), Some(2));
    assert!(copy.asynchronous && copy.bytes == 16);
    assert_eq!((tp.stats().calls, tp.comm_bytes()), (2, 48));
}

#[test]
fn invalid_arguments_do_not_reach_the_engine() {
    let (tp, calls) = recorded(|dst| Completion::completed(Ok(dst)));
    let site = Site::new("x");
    let (src, mut dst) = ([0f32; 2], [0f32; 6]);
    let (src, blocks) = (View::from(&src[..]), Blocks::even(1, 2, 2));
    let refused = [
        tp.all_gather(&site, src, ViewMut::from(&mut dst[..]), &blocks),
        tp.send(&site, 3, src),
        tp.start_send(&site, 3, Arc::new(buffer(1))).wait(),
        tp.start_all_gather_in_place(&site, buffer(4), &Blocks::even(2, 1, 3)).wait().map(drop),
    ];
    for error in refused {
        assert!(matches!(error, Err(CommError::Argument { .. })), "{error:?}");
    }
    assert!(calls.lock().unwrap().is_empty());
    assert_eq!(tp.stats().calls, 0);
}

#[test]
fn promises_complete_calls_from_other_threads() {
    let (tp, _) = recorded(|dst| {
        let (promise, completion) = Completion::promised(1);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            promise.fulfill(Ok(dst));
        });
        completion
    });
    let pending = tp.start_all_reduce(&Site::new("x"), ReduceOp::Sum, buffer(5));
    assert_eq!(pending.wait().unwrap().len(), 5);
    tp.barrier(&Site::new("y")).unwrap();
    let times = tp.stats().times;
    assert!(times.exposed >= Duration::from_millis(30) && times.blocked <= times.exposed);
}

#[test]
fn dropped_promises_report_a_closed_rank() {
    let (tp, _) = recorded(|_| {
        let (promise, completion): (Promise, _) = Completion::promised(1);
        drop(promise);
        completion
    });
    let error = tp.start_all_reduce(&Site::new("x"), ReduceOp::Sum, buffer(1)).wait().map(drop);
    assert!(matches!(error, Err(CommError::Closed { rank: 1 })), "{error:?}");
}

/// The sum in f64 is that of a sequential loop over the ranks, to the bit.
#[test]
fn all_reduce_f64_adds_in_the_order_of_ranks() {
    let value = |rank: usize, index: usize| (rank as f64 + 0.1).powi(3) * 1e-3 + index as f64;
    let sums = launch(&"tp=4".parse().unwrap(), |comms| {
        let mut values: Vec<f64> = (0..3).map(|index| value(comms.rank(), index)).collect();
        let tp = comms.group(TP);
        tp.all_reduce_f64(&Site::new("norm"), &mut values)?;
        assert_eq!(tp.comm_bytes(), 2 * 3 * 8 * 3 / 4, "an all-reduce of three values");
        Ok::<_, CommError>(values)
    });
    let expected: Vec<f64> = (0..3).map(|i| (0..4).map(|rank| value(rank, i)).sum()).collect();
    for values in sums.unwrap_or_else(|error| panic!("{error}")) {
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&values), bits(&expected));
    }
}

#[test]
fn texts_of_any_length_are_gathered() {
    let texts = ["", "one", "zwölf", "four"];
    for own in [texts, [""; 4]] {
        let found = launch(&"tp=4".parse().unwrap(), |comms| {
            comms.group(TP).all_gather_texts(&Site::new("texts"), own[comms.rank()])
        });
        assert!(found.unwrap().iter().all(|all| *all == own));
    }
}
