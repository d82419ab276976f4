//! GPUs: peaks, memory, and the rates that kernels reach.

use std::collections::BTreeMap;

use meshwright_backend::{DType, KernelOp};

use super::{ClusterError, Figure, Origin, Trust};

/// A GPU, or another accelerator.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// The name: `h100-sxm`.
    pub name: String,
    /// Bytes of memory.
    pub memory: Figure,
    /// Bytes per second of memory.
    pub memory_bandwidth: Figure,
    /// Bytes per second between the memory of the host and its own, in each direction.
    pub host_bandwidth: Figure,
    /// Peak FLOP/s of matmuls by dtype of the operands.
    pub peak: Vec<(DType, Figure)>,
    /// Units that compute one tile of a matmul each (streaming multiprocessors).
    pub units: usize,
    /// Rows and columns of a tile.
    pub tile: [usize; 2],
    /// Rates of matmuls.
    pub matmul: MatmulCurve,
    /// Rates of attention by length. A head takes the curve of the smallest `head_dim` that holds it, else that of the
    /// largest one.
    pub attention: Vec<AttentionCurve>,
    /// Rates of attention without a curve, as fractions of the rate of large matmuls: forward and backward.
    pub attention_fraction: [Figure; 2],
    /// Rates of all other kernels.
    pub passes: PassRates,
    /// Seconds that the host needs to launch a kernel, and a kernel of a CUDA graph.
    pub launch: [Figure; 2],
    /// Times of kernels by the number of ranks that share the cores and the memory of one machine, for a CPU; empty if
    /// each rank has a GPU of its own. Numbers of ranks ascend.
    pub sharing: Vec<SharingFactors>,
}

/// Times of kernels on a machine that several ranks share, relative to those of [`Gpu::matmul`], [`Gpu::attention`] and
/// [`Gpu::passes`]. Cores are divided among the ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct SharingFactors {
    /// Ranks that compute at a time.
    pub ranks: usize,
    /// Factor on the time of matmuls and attention.
    pub compute: Figure,
    /// Factor on the time of all other kernels.
    pub memory: Figure,
}

/// Rate of a matmul `[m, n, k]` as a fraction of the peak: `efficiency * w^wave_exponent * k / (k + half_k)`, where `w`
/// is the used fraction of the last wave of tiles.
#[derive(Debug, Clone, PartialEq)]
pub struct MatmulCurve {
    /// Fraction of the peak of large matmuls.
    pub efficiency: Figure,
    /// Exponent of the used fraction of waves.
    pub wave_exponent: Figure,
    /// Length of the contraction at which half of the rate is reached.
    pub half_k: Figure,
    /// Seconds of a launch that does nothing.
    pub start: Figure,
}

/// Rate of attention by length, for one size of heads and one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionCurve {
    /// Largest elements of a head.
    pub head_dim: usize,
    /// Dtype of the queries.
    pub dtype: DType,
    /// True for the backward pass.
    pub is_backward: bool,
    /// FLOP/s of visible pairs by number of keys, interpolated in the logarithm of the length.
    pub rates: Vec<(usize, f64)>,
    /// Origin of the rates.
    pub origin: Origin,
}

/// Rates of kernels that move bytes, as fractions of the memory bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct PassRates {
    /// Fraction of operations without an own one.
    pub others: Figure,
    /// Fractions of operations.
    pub of: BTreeMap<KernelOp, Figure>,
    /// Seconds of a launch that does nothing.
    pub start: Figure,
}

impl Gpu {
    /// Returns the peak FLOP/s of matmuls of a dtype.
    ///
    /// # Errors
    /// [`ClusterError::NoPeak`] if the description has none.
    pub fn peak_of(&self, dtype: DType) -> Result<&Figure, ClusterError> {
        let peak = self.peak.iter().find(|(other, _)| *other == dtype).map(|(_, figure)| figure);
        peak.ok_or_else(|| ClusterError::NoPeak {
            gpu: self.name.clone(),
            dtype,
            known: self.peak.iter().map(|(dtype, _)| dtype.name()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns true for a CPU, whose cores and memory all ranks share.
    pub fn is_shared(&self) -> bool {
        !self.sharing.is_empty()
    }

    /// Returns the bytes of memory of each of `ranks` ranks.
    pub fn memory_of_rank(&self, ranks: usize) -> f64 {
        self.memory.value / if self.is_shared() { ranks as f64 } else { 1.0 }
    }

    /// Returns the factors on the times of matmuls and attention, and of all other kernels, while `ranks` ranks share
    /// the machine: interpolated in logarithms, and beyond the largest known number in proportion to it.
    pub fn slowdown(&self, ranks: f64) -> [f64; 2] {
        let after = self.sharing.partition_point(|known| (known.ranks as f64) < ranks);
        let factors = |known: &SharingFactors| [known.compute.value, known.memory.value];
        match (after.checked_sub(1).map(|idx| &self.sharing[idx]), self.sharing.get(after)) {
            (None, None) => [1.0; 2],
            (None, Some(first)) => factors(first),
            (Some(last), None) => factors(last).map(|factor| factor * ranks / last.ranks as f64),
            (Some(below), Some(above)) => {
                let log = |to: f64| (to / below.ranks as f64).ln();
                let weight = log(ranks) / log(above.ranks as f64);
                let (low, high) = (factors(below), factors(above));
                [0, 1].map(|idx| low[idx].powf(1.0 - weight) * high[idx].powf(weight))
            }
        }
    }

    /// Returns the trust in the rates of kernels: that of matmuls, which take most of a step.
    pub fn trust(&self) -> Trust {
        self.matmul.efficiency.origin.trust
    }
}
