//! Settings of a launch.

use std::sync::Arc;
use std::time::Duration;

use crate::trace::Tracer;

use super::FlightFolder;

/// Settings of [`launch_with`](super::launch_with).
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// Time after which a collective that waits for other members fails. Default: 10 minutes.
    pub timeout: Duration,
    /// Stack size of each rank's thread in bytes. Default: 16 MiB. Untouched pages cost nothing.
    pub stack_size: usize,
    /// Tracer of the ranks' work and collectives. Default: none.
    pub tracer: Option<Arc<Tracer>>,
    /// Folder for the last calls of each rank, which are written if a rank fails. Default: none.
    pub flight: Option<Arc<FlightFolder>>,
}

impl Default for LaunchOptions {
    fn default() -> Self {
        LaunchOptions {
            timeout: Duration::from_secs(600),
            stack_size: 16 << 20,
            tracer: None,
            flight: None,
        }
    }
}
