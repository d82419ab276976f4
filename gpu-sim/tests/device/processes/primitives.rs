//! Every collective between processes, compared with the engine between threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use half::bf16;
use meshwright::backend::{Backend, CachingAllocator};
use meshwright::comm::nccl::{
    ExpectedGroups, Library, MessagePath, NcclEngine, NcclSettings, RealLibrary,
};
use meshwright::comm::{CommError, Communicator, Engine as _, RankComms, RankExit, launch};
use meshwright::launch::{Store, StoreOptions};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;
use meshwright_cuda::native::NativeDriver;
use meshwright_cuda::{CudaBackend, Driver};
use meshwright_gpu_sim::{SimDriver, on_gpu};

use super::environment::{library, own_place};
use crate::scenario::{self, Scenario, Value};

/// Axis of point-to-point messages.
const PP: AxisSet = AxisSet::of(AxisId::Pp);
const TP: AxisSet = AxisSet::of(AxisId::Tp);

/// A rank of `mesh` that runs every collective.
pub fn run(mesh: &str) {
    let shape: MeshShape = mesh.parse().unwrap();
    let place = own_place().unwrap();
    let (driver, library): (Arc<dyn Driver>, Arc<dyn Library>) = if on_gpu() {
        (NativeDriver::new(0).unwrap(), Arc::new(RealLibrary::new().unwrap()))
    } else {
        let driver = Arc::new(SimDriver::new(place.rank as u64));
        let library = Arc::new(library(place.rank, &driver));
        (driver, library)
    };
    let timeout = Duration::from_secs(60);
    let store = Arc::new(
        Store::open(&place, &StoreOptions { timeout, ..StoreOptions::default() }).unwrap(),
    );
    if place.rank == 0 {
        store.set("id", &library.new_id().unwrap()).unwrap();
    }
    let id = store.get("id").unwrap().try_into().unwrap();
    let peers = Arc::clone(&store) as _;
    let (rank, messages) = (place.rank, MessagePath::PerPair);
    // None of the groups below is expected, so those that differ from the world are created at their first use.
    let expected = Some(ExpectedGroups { axes: BTreeSet::new(), store });
    let settings =
        NcclSettings { shape, rank, timeout, peers, messages, registers: true, expected };
    let device = CudaBackend::new(driver).device().expect("a GPU has memory of its own");
    let engine = NcclEngine::new(settings, library, Arc::clone(&device), &id).unwrap();
    let comms = RankComms::with_engine(shape, place.rank, Arc::clone(&engine) as _);
    let allocator = CachingAllocator::on(Some(device), usize::MAX);
    let has_several = |axes: &AxisSet| shape.degree_of(*axes) > 1;
    for axes in [PP, TP, PP.union(TP)].into_iter().filter(has_several) {
        let group = comms.group(axes);
        // Values reach 10^4; NCCL sums four in its own order, and rounds every bf16 sum.
        agree::<f32>(&group, &allocator, shape, scenario::reductions, 0.05);
        agree::<f32>(&group, &allocator, shape, scenario::started_reductions, 0.05);
        agree::<bf16>(&group, &allocator, shape, scenario::reductions, 400.0);
        agree::<u32>(&group, &allocator, shape, scenario::exchanges, 0.0);
        agree::<bf16>(&group, &allocator, shape, scenario::started_exchanges, 0.0);
    }
    agree::<u32>(&comms.group(PP), &allocator, shape, scenario::messages, 0.0);
    engine.leave(&RankExit::Returned);
}

/// Compares the results of `script` with those between threads: bitwise, or on GPUs up to `tolerance`.
fn agree<T: Value + Into<f64>>(
    group: &Communicator,
    allocator: &Arc<CachingAllocator>,
    shape: MeshShape,
    script: fn(&mut Scenario<'_, T>) -> Result<(), CommError>,
    tolerance: f64,
) {
    let tolerance = if on_gpu() { tolerance } else { 0.0 };
    let axes = group.axes();
    let expected = launch(&shape, |comms| {
        let group = comms.group(axes);
        let mut scenario = Scenario::new(&group, CachingAllocator::new(), CachingAllocator::new());
        script(&mut scenario)?;
        Ok::<_, CommError>(scenario.recorded())
    });
    let world_rank = group.members()[group.rank()];
    let expected = &expected.unwrap_or_else(|error| panic!("{error}"))[world_rank];
    let mut scenario = Scenario::new(group, Arc::clone(allocator), Arc::clone(allocator));
    script(&mut scenario).unwrap_or_else(|error| panic!("{error}"));
    let got = scenario.recorded();
    assert_eq!(got.len(), expected.len());
    for (number, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), expected.len(), "result {number}");
        for (got, expected) in got.iter().zip(expected) {
            let [got, expected]: [f64; 2] = [(*got).into(), (*expected).into()];
            assert!(
                (got - expected).abs() <= tolerance,
                "result {number}: {got} and not {expected}"
            );
        }
    }
}
