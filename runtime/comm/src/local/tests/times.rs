//! Exposed and overlapped communication. Ranks sleep instead of computing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::{CommError, CommTimes, ReduceOp, Site, launch};
use meshwright_backend::{Buffer, CachingAllocator, Category, DType, ViewMut};
use meshwright_mesh::{AxisId, AxisSet};

use super::{TP, on_ranks};

const LATE: Duration = Duration::from_millis(100);
const LARGE: usize = 4 << 20;

fn gradients(len: usize) -> Buffer {
    CachingAllocator::new().zeros(DType::F32, len, Category::Gradients)
}

#[test]
fn transfer_during_computation_is_overlapped() {
    on_ranks(2, |tp| {
        let pending = tp.start_all_reduce(&Site::new("grad"), ReduceOp::Sum, gradients(LARGE));
        // The rank computes until the transfer is complete, and does not have to wait for it then.
        while tp.stats().times.transfer.is_zero() {
            sleep(Duration::from_millis(1));
        }
        sleep(LATE);
        pending.wait()?;
        let times = tp.stats().times;
        assert!(times.transfer > Duration::ZERO);
        assert_eq!(times.overlapped, times.transfer);
        assert_eq!((times.exposed, times.blocked), (Duration::ZERO, Duration::ZERO));
        Ok(())
    });
}

#[test]
fn immediate_wait_is_exposed() {
    on_ranks(2, |tp| {
        for _ in 0..20 {
            tp.start_all_reduce(&Site::new("grad"), ReduceOp::Sum, gradients(LARGE / 8)).wait()?;
        }
        let CommTimes { transfer, overlapped, exposed, blocked } = tp.stats().times;
        assert!(transfer <= overlapped + exposed, "{transfer:?} {overlapped:?} {exposed:?}");
        assert!(overlapped < transfer);
        assert!(blocked <= exposed);
        Ok(())
    });
}

#[test]
fn wait_for_a_late_member_is_not_a_transfer() {
    for asynchronous in [false, true] {
        let times = on_ranks(2, |tp| {
            if tp.rank() == 1 {
                sleep(LATE);
            }
            let site = Site::new("sum");
            if asynchronous {
                tp.start_all_reduce(&site, ReduceOp::Sum, gradients(8)).wait()?;
            } else {
                tp.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut [0f32; 8][..]))?;
            }
            Ok(tp.stats().times)
        });
        let waited = times[0];
        // The late one left a little after this one had begun to wait, at worst.
        assert!(waited.exposed > LATE / 2 && waited.blocked > LATE / 2, "{waited:?}");
        assert!(waited.transfer < waited.exposed - LATE / 4, "{waited:?}");
        assert!(waited.overlapped <= waited.transfer);
        assert!(times[1].exposed < waited.exposed, "{:?}", times[1]);
        assert!(asynchronous || waited.overlapped.is_zero());
    }
}

#[test]
fn transfer_during_another_wait_is_not_overlapped() {
    let (waits, is_reduced) = (AtomicBool::new(false), AtomicBool::new(false));
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            sleep(Duration::from_millis(1));
        }
        sleep(LATE);
    };
    let result = launch(&"dp=2,tp=2".parse().unwrap(), |comms| {
        let (dp, tp) = (comms.group(AxisSet::of(AxisId::Dp)), comms.group(TP));
        let start = || dp.start_all_reduce(&Site::new("g"), ReduceOp::Sum, gradients(LARGE));
        match comms.rank() {
            // Waits for rank 1 over tp all the while that it reduces over dp with rank 2.
            0 => {
                let pending = start();
                waits.store(true, Ordering::Release);
                tp.barrier(&Site::new("tp"))?;
                pending.wait()?;
                let times = comms.times_by_axes();
                let (dp, tp) = (times[&AxisSet::of(AxisId::Dp)], times[&TP]);
                assert!(dp.transfer > Duration::ZERO);
                assert!(tp.exposed > dp.transfer, "{dp:?} {tp:?}");
                assert_eq!(dp.overlapped, Duration::ZERO);
            }
            1 => {
                until(&is_reduced);
                tp.barrier(&Site::new("tp"))?;
            }
            2 => {
                until(&waits);
                start().wait()?;
                is_reduced.store(true, Ordering::Release);
            }
            _ => {}
        }
        Ok::<_, CommError>(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn times_add_and_subtract() {
    let times = |millis| {
        let time = Duration::from_millis(millis);
        CommTimes { transfer: time, overlapped: time / 2, exposed: time * 2, blocked: time }
    };
    let mut sum = times(2);
    sum += times(3);
    assert_eq!(sum, times(5));
    assert_eq!(sum - times(2), times(3));
}
