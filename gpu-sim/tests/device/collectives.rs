//! Collectives and messages in device memory that ranks share, compared with host memory.

use std::sync::{Arc, Mutex};

use half::bf16;
use meshwright::backend::{Backend, CachingAllocator};
use meshwright::comm::{CommError, RankComms, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;
use meshwright_cuda::CudaBackend;
use meshwright_gpu_sim::drivers;

use crate::scenario::{self, Scenario, Value};

type Script<T> = fn(&mut Scenario<'_, T>) -> Result<(), CommError>;

fn run<T: Value>(
    ranks: usize,
    allocator: impl Fn() -> Arc<CachingAllocator> + Sync,
    script: Script<T>,
) -> Vec<Vec<Vec<T>>> {
    let body = |comms: RankComms| {
        let (group, allocator) = (comms.group(AxisSet::of(AxisId::Tp)), allocator());
        let mut scenario = Scenario::new(&group, Arc::clone(&allocator), allocator);
        script(&mut scenario)?;
        Ok::<_, CommError>(scenario.recorded())
    };
    let mesh = MeshShape::new([(AxisId::Tp, ranks)]).unwrap();
    launch(&mesh, body).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs every script on one device, with streams in different orders.
fn agree<T: Value>(scripts: &[Script<T>]) {
    for script in scripts {
        for (ranks, seed) in [(2, 1), (3, 2), (4, 3)] {
            let expected = run(ranks, CachingAllocator::new, *script);
            let drivers = Mutex::new(drivers(seed, ranks));
            let allocator = || {
                let driver = drivers.lock().unwrap().pop().expect("a driver for each rank");
                let backend = CudaBackend::new(driver);
                CachingAllocator::on(backend.device(), usize::MAX)
            };
            let got = run(ranks, allocator, *script);
            for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
                let [got, expected]: [&[u8]; 2] = [got, expected].map(|v| bytemuck::cast_slice(v));
                assert!(got == expected, "{ranks} ranks, seed {seed}");
            }
        }
    }
}

#[test]
fn reductions() {
    agree::<f32>(&[scenario::reductions, scenario::started_reductions, scenario::dropped]);
    agree::<bf16>(&[scenario::reductions, scenario::started_reductions]);
}

#[test]
fn exchanges_and_messages() {
    agree::<u32>(&[scenario::exchanges, scenario::started_exchanges, scenario::messages]);
    agree::<bf16>(&[scenario::exchanges, scenario::messages]);
}
