//! Settings of a simulation.

use crate::time::SoftwareFactors;

/// Settings of a simulation.
#[derive(Debug, Clone, Default)]
pub struct SimOptions {
    /// Set if steps are launched as CUDA graphs: launches take less time, but collectives of different process groups
    /// do not overlap each other.
    pub cuda_graphs: bool,
    /// Set to get the [spans](crate::SimulatedStep::spans) of a trace.
    pub spans: bool,
    /// Factors of software.
    pub software: SoftwareFactors,
}
