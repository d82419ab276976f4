//! Settings of the engine of one rank.

use std::sync::Arc;
use std::time::Duration;

use crate::comm::Peers;
use crate::mesh::MeshShape;

/// Settings of the engine of one rank.
#[derive(Debug, Clone)]
pub struct NcclSettings {
    /// The mesh.
    pub shape: MeshShape,
    /// World rank.
    pub rank: usize,
    /// Timeout of the initialization and of each call.
    pub timeout: Duration,
    /// Failure detection.
    pub peers: Arc<dyn Peers>,
    /// Registers memory that collectives reuse with the library.
    pub registers: bool,
}
