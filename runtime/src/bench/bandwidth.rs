//! Times of collectives on the ranks of a mesh.

use std::time::{Duration, Instant};

use crate::backend::{DType, StreamKind};
use crate::comm::{CommError, Site};
use crate::layout::{AxisId, AxisSet};
use crate::tensor::Rank;

use super::collective::{Collective, CollectiveMemory};

/// Measurements of each size; their median is the result.
const ROUNDS: usize = 7;
/// Short measurements before, which determine the number of calls.
const TRIALS: usize = 5;
/// Least duration of a measurement, from which its number of calls follows.
const DURATION: Duration = Duration::from_millis(30);
/// Most calls of a measurement.
const MAX_CALLS: f64 = 100_000.0;

/// The time of one collective at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectiveTime {
    /// Bytes of the whole tensor; 0 of a barrier.
    pub size: usize,
    /// Seconds of a call: the median of several measurements, each the mean of many calls, one after the other.
    pub seconds: f64,
    /// Calls of all measurements.
    pub calls: u64,
    /// Bytes that rank 0 sends in a call, as [`CommStats::bytes`](crate::comm::CommStats::bytes) counts them.
    pub sent: u64,
}

impl CollectiveTime {
    /// Bytes of the whole tensor per second.
    pub fn algorithm_bandwidth(&self) -> f64 {
        self.size as f64 / self.seconds
    }
}

/// Axis of the mesh that is measured. NCCL sends messages along this one only.
pub const MEASURED_AXIS: AxisId = AxisId::Pp;

/// Rounds a size in bytes down to a whole number of elements for each rank.
pub fn even_size(size: usize, dtype: DType, ranks: usize) -> usize {
    let unit = dtype.bytes() * ranks;
    size / unit * unit
}

/// Measures a collective on a tensor of `size` bytes, an [even size](even_size), among the ranks along
/// [`MEASURED_AXIS`]. Every rank calls it with the same arguments, and all get the time of rank 0.
///
/// # Errors
/// A rank that fails.
pub fn measure_collective(
    rank: &Rank,
    collective: &Collective,
    size: usize,
    dtype: DType,
) -> Result<CollectiveTime, CommError> {
    let group = rank.process_group(AxisSet::of(MEASURED_AXIS));
    let site = Site::new(collective.name);
    let (ranks, len) = (group.size(), size / dtype.bytes());
    let mut memory = CollectiveMemory::new(rank.allocator(), dtype, len, ranks);
    let meet = || {
        group.barrier(&site)?;
        let device = rank.allocator().device();
        device
            .iter()
            .for_each(|device| device.synchronize(&device.mark_stream(StreamKind::Compute)));
        Ok::<_, CommError>(())
    };
    let mut run = |calls: u64| {
        meet()?;
        let start = Instant::now();
        for _ in 0..calls {
            (collective.run)(&group, &site, &mut memory)?;
        }
        meet()?;
        Ok::<_, CommError>(start.elapsed().as_secs_f64() / calls as f64)
    };
    // The first calls touch the memory and open connections, and others may wait for a core.
    let trials = (0..TRIALS).map(|_| run(2)).collect::<Result<Vec<f64>, CommError>>()?;
    let first = trials.into_iter().fold(f64::INFINITY, f64::min).max(1e-9);
    let calls = of_first_rank(rank, (DURATION.as_secs_f64() / first).clamp(1.0, MAX_CALLS)) as u64;
    let before = group.stats().bytes;
    let mut times = (0..ROUNDS).map(|_| run(calls)).collect::<Result<Vec<f64>, CommError>>()?;
    let all_calls = calls * ROUNDS as u64;
    // Barriers send no bytes.
    let sent = (group.stats().bytes - before) / all_calls;
    times.sort_by(f64::total_cmp);
    let seconds = of_first_rank(rank, times[ROUNDS / 2]);
    let sent = of_first_rank(rank, sent as f64) as u64;
    let size = if collective.has_data() { size } else { 0 };
    Ok(CollectiveTime { size, seconds, calls: all_calls, sent })
}

/// Returns the value that rank 0 passes.
fn of_first_rank(rank: &Rank, value: f64) -> f64 {
    let mut values = [if rank.index() == 0 { value } else { 0.0 }];
    rank.all_reduce_f64(AxisSet::ALL, &Site::new("value of rank 0"), &mut values);
    values[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuBackend;
    use crate::bench::COLLECTIVES;
    use crate::comm::launch;

    #[test]
    fn sizes_are_even() {
        assert_eq!(even_size(1000, DType::F32, 3), 996);
        assert_eq!(even_size(1000, DType::Bf16, 4), 1000);
        assert_eq!(even_size(7, DType::F32, 2), 0);
    }

    /// Every collective is carried out, and sends the bytes that its bus bandwidth counts.
    #[test]
    fn bus_bandwidth_counts_the_bytes_of_a_rank() {
        for (mesh, ranks) in [("pp=2", 2), ("pp=3", 3)] {
            let size = even_size(600, DType::F32, ranks);
            let times = launch(&mesh.parse().unwrap(), |comms| {
                let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
                COLLECTIVES
                    .iter()
                    .map(|one| Ok((one, measure_collective(&rank, one, size, DType::F32)?)))
                    .collect::<Result<Vec<_>, CommError>>()
            });
            for (one, time) in times.unwrap().swap_remove(0) {
                assert!(time.seconds > 0.0 && time.calls >= ROUNDS as u64, "{}", one.name);
                let of_bus = size as f64 * one.bus_factor(ranks);
                let expected = match one.name {
                    // All bytes leave the root in the end, by a link of its own: the library counts those of a rank.
                    "broadcast" | "reduce" => of_bus * (ranks - 1) as f64 / ranks as f64,
                    // The root receives.
                    "gather" => 0.0,
                    _ => of_bus,
                };
                assert_eq!(time.sent as f64, expected, "{} on {mesh}", one.name);
                assert_eq!(time.size, if one.has_data() { size } else { 0 });
            }
        }
    }
}
