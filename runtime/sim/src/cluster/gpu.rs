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

    /// Returns the trust in the rates of kernels: that of matmuls, which take most of a step.
    pub fn trust(&self) -> Trust {
        self.matmul.efficiency.origin.trust
    }
}
