//! Times of single kernels, collectives and messages.

mod collective;
mod group;
mod kernel;
mod software;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use meshwright_backend::Kernel;
use meshwright_mesh::{AxisSet, MeshShape};

use crate::cluster::{Cluster, Gpu};
use crate::error::SimError;
use crate::record::{CommCall, CommOpKind};

pub use collective::{collective_seconds, message_seconds};
pub use group::{GroupLevel, group_levels, level_between};
pub use kernel::{is_transfer, kernel_seconds, start_seconds};
pub use software::SoftwareFactors;

/// Times of kernels and calls of a mesh on a cluster. Equal ones are computed once.
pub struct Times<'a> {
    cluster: &'a Cluster,
    mesh: &'a MeshShape,
    kernels: HashMap<Kernel, f64>,
    /// Factors on the times of matmuls and attention, of other kernels, and of starts, if ranks share a machine.
    slowdown: [f64; 3],
    collectives: HashMap<(CommOpKind, AxisSet, u64), f64>,
}

impl<'a> Times<'a> {
    /// Creates the times of a mesh whose ranks fill the cluster in their order.
    ///
    /// # Errors
    /// If the cluster has fewer GPUs than the mesh has ranks, or several without a level that connects them.
    pub fn new(cluster: &'a Cluster, mesh: &'a MeshShape) -> Result<Times<'a>, SimError> {
        let ranks = mesh.world_size();
        let gpus = if cluster.levels.is_empty() { Some(1) } else { cluster.gpus };
        match gpus {
            Some(gpus) if gpus < ranks => Err(SimError::MeshTooLarge {
                mesh: *mesh,
                ranks,
                cluster: cluster.name.clone(),
                gpus,
            }),
            _ => Ok(Times {
                cluster,
                mesh,
                kernels: HashMap::new(),
                slowdown: slowdown(&cluster.gpu, ranks, 1.0),
                collectives: HashMap::new(),
            }),
        }
    }

    /// Sets the fraction of its time in which each rank computes. Ranks that wait leave their cores to others.
    pub fn set_busy_fraction(&mut self, busy: f64) {
        self.slowdown = slowdown(&self.cluster.gpu, self.mesh.world_size(), busy);
        self.kernels.clear();
    }

    /// Returns the seconds of a kernel on its stream.
    ///
    /// # Errors
    /// If the GPU has no peak for the dtype.
    pub fn of_kernel(&mut self, kernel: &Kernel) -> Result<f64, SimError> {
        if let Some(seconds) = self.kernels.get(kernel) {
            return Ok(*seconds);
        }
        let gpu = &self.cluster.gpu;
        let mut seconds = kernel::kernel_seconds(gpu, kernel)?;
        if gpu.is_shared() {
            let is_compute = kernel.op.is_matmul() || kernel.op.is_attention();
            let [compute, memory, of_start] = self.slowdown;
            let start = kernel::start_seconds(gpu, kernel);
            let of_work = if is_compute { compute } else { memory };
            seconds = (seconds - start) * of_work + start * of_start;
        }
        self.kernels.insert(*kernel, seconds);
        Ok(seconds)
    }

    /// Returns the seconds of a collective whose members begin together.
    pub fn of_collective(&mut self, call: &CommCall) -> f64 {
        let (cluster, mesh) = (self.cluster, self.mesh);
        *self.collectives.entry((call.op, call.axes, call.bytes)).or_insert_with(|| {
            let levels = group::group_levels(&cluster.levels, mesh, call.axes);
            collective::collective_seconds(call.op, call.bytes as f64, &levels)
        })
    }

    /// Returns the seconds of a message between two positions along `pp`.
    pub fn of_message(&self, positions: [usize; 2], bytes: u64) -> f64 {
        let levels = &self.cluster.levels;
        let level = group::level_between(levels, self.mesh, positions);
        level.map_or(0.0, |idx| {
            let bandwidth = group::message_bandwidth(levels, idx, self.mesh);
            collective::message_seconds(&levels[idx], bandwidth, bytes as f64)
        })
    }

    /// Returns the seconds that the host needs to launch a kernel, or a kernel of a CUDA graph takes.
    pub fn of_launch(&self, cuda_graphs: bool) -> f64 {
        self.cluster.gpu.launch[usize::from(cuda_graphs)].value
    }

    /// Returns the number of nodes, the groups of the innermost level.
    pub fn nodes(&self) -> usize {
        let node = self.cluster.levels.first().map_or(1, |level| level.size.max(1));
        self.mesh.world_size().div_ceil(node)
    }
}

/// Returns the mean factors on the times of matmuls and attention, of other kernels, and of starts, while one of
/// `ranks` ranks computes, and each other one does so for a fraction `busy` of its time, by itself.
///
/// A rank has the threads that are its part of the cores, also while others wait; a start is the work of one thread.
fn slowdown(gpu: &Gpu, ranks: usize, busy: f64) -> [f64; 3] {
    if !gpu.is_shared() {
        return [1.0; 3];
    }
    let with_cores = ranks.min(gpu.units);
    let factors = |ranks: usize| {
        let [compute, memory] = gpu.slowdown(ranks.max(with_cores) as f64);
        [compute, memory, (ranks as f64 / gpu.units as f64).max(1.0)]
    };
    let idle = 1.0 - busy;
    // The binomial distribution, from no other rank on.
    let others = ranks.saturating_sub(1);
    let (mut probability, mut all, mut sums) = (0.0, 0.0, [0.0; 3]);
    for computing in 0..=others {
        probability = match computing {
            0 => idle.powi(others as i32),
            _ => probability * (others + 1 - computing) as f64 / computing as f64 * busy / idle,
        };
        all += probability;
        let of_ranks = factors(1 + computing);
        sums.iter_mut().zip(of_ranks).for_each(|(sum, factor)| *sum += probability * factor);
    }
    // Without idle ranks, or with so many that the probabilities vanish, all compute.
    if (all - 1.0).abs() < 1e-6 { sums } else { factors(ranks) }
}
