//! Effects of software that no kernel and no collective has alone.

/// The only constants of a simulation that belong to software and not to a cluster. A calibration may replace them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftwareFactors {
    /// Additional time of kernels while a collective runs beside them, as a fraction: both use the same memory and
    /// units. It applies to the overlapped part only.
    pub interference: f64,
    /// Additional time of a step for each doubling of the nodes, as a fraction: the slowest rank sets the pace.
    pub jitter_per_doubling: f64,
}

impl Default for SoftwareFactors {
    /// The factors of published training runs: `.43` and `.002`.
    fn default() -> SoftwareFactors {
        SoftwareFactors { interference: 0.43, jitter_per_doubling: 0.002 }
    }
}

impl SoftwareFactors {
    /// The factors of a machine that all ranks share: collectives take the cores from kernels.
    pub const SHARED: SoftwareFactors =
        SoftwareFactors { interference: 1.0, jitter_per_doubling: 0.0 };

    /// Returns the factor on the time of a step over `nodes` nodes.
    pub fn jitter(&self, nodes: usize) -> f64 {
        1.0 + self.jitter_per_doubling * (nodes.max(1) as f64).log2()
    }
}
