//! Time limits of calls.

use std::time::Duration;

/// Time limit of calls that wait while another rank reads or writes files, unless the usual one is longer.
pub const FILE_TIME_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
