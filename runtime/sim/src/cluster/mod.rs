//! Clusters: their GPUs, and the levels of their interconnect.
//!
//! A [`Catalog`] holds the built-in descriptions, and the user's TOML files.

mod catalog;
mod error;
mod figure;
mod file;
mod gpu;
mod level;
mod request;
mod spelling;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use catalog::Catalog;
pub use error::ClusterError;
pub use figure::{Figure, Origin, Trust};
pub use gpu::{AttentionCurve, Gpu, MatmulCurve, PassRates, SharingFactors};
pub use level::Level;
pub use request::SizedCluster;

/// The most GPUs of a cluster.
pub const MAX_GPUS: usize = 10_000_000;

/// A cluster of GPUs of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The name of the command line: `h100-dgx`.
    pub name: String,
    /// A line about it.
    pub description: String,
    /// The GPUs.
    pub gpu: Arc<Gpu>,
    /// Levels of its interconnect, the innermost first: each holds whole groups of the one before.
    pub levels: Vec<Level>,
    /// GPUs of the cluster; `None` if it has any number.
    pub gpus: Option<usize>,
}

impl Cluster {
    /// Returns the GPUs of a node: the size of the innermost level.
    pub fn node(&self) -> usize {
        self.levels[0].size
    }

    /// Returns the relative uncertainty of predicted times: that of the [trust](Gpu::trust) in the rates of kernels,
    /// and 0.05 more for groups across nodes if the collectives of a level above the node are not measured.
    pub fn uncertainty(&self, across_nodes: bool) -> f64 {
        let is_measured =
            |level: &Level| level.collective_bandwidth.origin.trust == Trust::Measured;
        let network = across_nodes && !self.levels[1..].iter().all(is_measured);
        self.gpu.trust().uncertainty() + if network { 0.05 } else { 0.0 }
    }
}
