//! Invalid calls fail on all ranks, with the reason.

use std::sync::Arc;

use meshwright::backend::{Buffer, CachingAllocator, Category, DType, Device};
use meshwright::comm::{Blocks, CommError, FailureCause, ReduceOp, Site, launch};

use super::machine::{Machine, RankDevice};
use super::{TP, mesh, meter_of};

/// A buffer on the device, on rank 0 on the host.
fn mixed(machine: &Arc<Machine>, rank: usize) -> Buffer {
    let allocator = if rank == 0 { CachingAllocator::new() } else { meter_of(machine, rank) };
    allocator.zeros(DType::F32, 8, Category::Activations)
}

#[test]
fn mixed_memory_is_a_mismatch_on_all_ranks() {
    for started in [false, true] {
        let machine = Machine::new(0, None);
        let error = launch(&mesh(3), |comms| {
            let (tp, site) = (comms.group(TP), Site::here("norm"));
            let mut data = mixed(&machine, comms.rank());
            if started {
                tp.start_all_reduce(&site, ReduceOp::Sum, data).wait().map(drop)
            } else {
                tp.all_reduce(&site, ReduceOp::Sum, data.view_mut())
            }
        })
        .expect_err("the memories differ");
        assert_eq!(error.failures.len(), 3);
        for failure in &error.failures {
            let text = failure.cause.to_string();
            for part in [
                "rank 0: ",
                "all_reduce(sum, f32 x 8) over tp",
                "ranks 1, 2: ",
                "all_reduce(sum, f32 x 8) in device memory over tp",
                "Some operands are in host memory and some in device memory",
            ] {
                assert!(text.contains(part), "`{part}` is not in:\n{text}");
            }
        }
    }
}

#[test]
fn mixed_memory_is_a_mismatch_of_messages() {
    for receiver_is_first in [false, true] {
        let machine = Machine::new(0, None);
        let error = launch(&mesh(2), |comms| {
            let (tp, site) = (comms.group(TP), Site::here("boundary"));
            let mut data = mixed(&machine, comms.rank());
            if (comms.rank() == 0) == receiver_is_first {
                tp.start_recv(&site, 1 - comms.rank(), data).wait().map(drop)?;
            } else {
                tp.send(&site, 1 - comms.rank(), data.view())?;
                data.view_mut().clear();
            }
            tp.barrier(&site)
        })
        .expect_err("the memories differ");
        assert_eq!(error.failures.len(), 2, "{error}");
        assert!(error.to_string().contains("in device memory"), "{error}");
    }
}

#[test]
fn operands_of_one_rank_share_a_kind_of_memory() {
    let machine = Machine::new(0, None);
    let error = launch(&mesh(2), |comms| {
        let (host, device) = (CachingAllocator::new(), meter_of(&machine, comms.rank()));
        let src = host.zeros(DType::F32, 4, Category::Activations);
        let mut dst = device.zeros(DType::F32, 8, Category::Activations);
        let blocks = Blocks::even(1, 4, 2);
        comms.group(TP).all_gather(&Site::here("w"), src.view(), dst.view_mut(), &blocks)
    })
    .expect_err("the memories differ");
    let text = error.to_string();
    assert!(text.contains("src is in host memory and dst is in device memory"), "{text}");
}

#[test]
fn ranks_with_devices_take_host_operands() {
    let sums = launch(&mesh(3), |comms| {
        let mut data = [comms.rank() as f32];
        comms.group(TP).all_reduce(&Site::new("norm"), ReduceOp::Sum, data[..].as_mut().into())?;
        Ok::<_, CommError>(data[0])
    });
    assert_eq!(sums.unwrap(), [3.0; 3]);
}

/// A device that fails ends its rank, and the others fail instead of waiting.
#[test]
fn device_failure_stops_all_ranks() {
    for started in [false, true] {
        let machine = Machine::new(0, None);
        let error = launch(&mesh(2), |comms| {
            let rank = comms.rank();
            let device = RankDevice { machine: Arc::clone(&machine), rank, broken: rank == 1 };
            let allocator =
                CachingAllocator::on(Some(Arc::new(device) as Arc<dyn Device>), usize::MAX);
            let (tp, site) = (comms.group(TP), Site::here("norm"));
            let mut data = allocator.zeros(DType::F32, 4000, Category::Activations);
            if started {
                data = tp.start_all_reduce(&site, ReduceOp::Sum, data).wait()?;
            } else {
                tp.all_reduce(&site, ReduceOp::Sum, data.view_mut())?;
            }
            tp.all_reduce(&site, ReduceOp::Sum, data.view_mut())
        })
        .expect_err("rank 1 fails");
        assert_eq!(error.failures.len(), 2, "{error}");
        assert_eq!(error.failures[0].rank, 1, "{error}");
        assert!(error.to_string().contains("the copy engine is broken"), "{error}");
        let is_expected = match &error.failures[0].cause {
            FailureCause::Device(_) => !started,
            FailureCause::Error(CommError::Device { .. }) => started,
            _ => false,
        };
        assert!(is_expected, "{error}");
    }
}
