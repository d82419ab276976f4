//! Collectives and messages over memory of a device whose queues run in a random order, against the same over host
//! memory.

mod faults;
mod machine;
mod pipeline;
pub mod scenario;
mod waits;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use half::bf16;
use meshwright::backend::{CachingAllocator, Device, Element};
use meshwright::comm::{CommError, RankComms, Site, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;

use machine::{Machine, RankDevice};
use scenario::{Scenario, Value};

const TP: AxisSet = AxisSet::of(AxisId::Tp);

fn mesh(ranks: usize) -> MeshShape {
    MeshShape::new([(AxisId::Tp, ranks)]).unwrap()
}

fn meter_of(machine: &Arc<Machine>, rank: usize) -> Arc<CachingAllocator> {
    let device = RankDevice { machine: Arc::clone(machine), rank, broken: false };
    CachingAllocator::on(Some(Arc::new(device) as Arc<dyn Device>), usize::MAX)
}

type Script<T> = fn(&mut Scenario<'_, T>) -> Result<(), CommError>;

/// Results of every rank on the host.
fn on_host<T: Value>(ranks: usize, script: Script<T>) -> Vec<Vec<Vec<T>>> {
    run(ranks, |_| CachingAllocator::new(), script)
}

/// Results of every rank on a machine.
fn on_device<T: Value>(
    ranks: usize,
    machine: &Arc<Machine>,
    script: Script<T>,
) -> Vec<Vec<Vec<T>>> {
    run(ranks, |rank| meter_of(machine, rank), script)
}

fn run<T: Value>(
    ranks: usize,
    allocator: impl Fn(usize) -> Arc<CachingAllocator> + Sync,
    script: Script<T>,
) -> Vec<Vec<Vec<T>>> {
    let body = |comms: RankComms| {
        let group = comms.group(TP);
        let mut scenario = Scenario::new(&group, allocator(comms.rank()), allocator(comms.rank()));
        script(&mut scenario)?;
        // Results are not read, which would make the queues go on, before all have queued their work.
        group.barrier(&Site::new("end"))?;
        Ok::<_, CommError>(scenario.recorded())
    };
    launch(&mesh(ranks), body).unwrap_or_else(|error| panic!("{error}"))
}

fn bytes<T: Element>(recorded: &[Vec<Vec<T>>]) -> Vec<&[u8]> {
    recorded.iter().flatten().map(|values| bytemuck::cast_slice(values)).collect()
}

fn agree<T: Value>(script: Script<T>, seeds: u64) {
    for ranks in 1..=4 {
        let expected = on_host(ranks, script);
        assert!(expected.iter().all(|of_rank| !of_rank.is_empty()));
        for seed in 0..seeds {
            let recorded = on_device(ranks, &Machine::new(seed, None), script);
            assert!(bytes(&recorded) == bytes(&expected), "{ranks} ranks, seed {seed}");
        }
    }
}

#[test]
fn reductions_match_the_bits_of_the_host() {
    agree::<f32>(scenario::reductions, 20);
    agree::<bf16>(scenario::reductions, 20);
}

#[test]
fn asynchronous_reductions_match_the_host() {
    agree::<f32>(scenario::started_reductions, 20);
    agree::<bf16>(scenario::started_reductions, 20);
}

#[test]
fn exchanges_match_the_host() {
    agree::<f32>(scenario::exchanges, 10);
    agree::<bf16>(scenario::exchanges, 10);
    agree::<u32>(scenario::exchanges, 20);
}

#[test]
fn asynchronous_exchanges_match_the_host() {
    agree::<bf16>(scenario::started_exchanges, 10);
    agree::<u32>(scenario::started_exchanges, 20);
}

#[test]
fn messages_arrive_in_order() {
    agree::<u32>(scenario::messages, 40);
    agree::<bf16>(scenario::messages, 10);
}

#[test]
fn dropped_results_free_their_memory_in_order() {
    agree::<f32>(scenario::dropped, 40);
}

/// The host threads only meet: nothing but a read of results makes them wait for the device.
#[test]
fn waits_are_submitted_to_streams() {
    let machine = Machine::new(1, None);
    on_device::<f32>(2, &machine, scenario::one_all_reduce);
    assert!(machine.waits.load(Ordering::Relaxed) > 0);
}
