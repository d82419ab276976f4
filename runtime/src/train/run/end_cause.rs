//! Reasons to end a run before its last step.

use serde::{Deserialize, Serialize};

use crate::os::exit_code::LOST;
use crate::train::Error;

/// The reason why a rank trains no further step.
#[derive(Serialize, Deserialize)]
pub enum EndCause {
    /// The data of the next step cannot be read.
    Data {
        message: String,
        /// True if the system could not read the file.
        is_lost: bool,
    },
    /// A signal, or `--stop-after`.
    Stop(String),
}

impl EndCause {
    /// Creates the cause of data with this error.
    pub(super) fn of_data(error: &Error) -> EndCause {
        EndCause::Data { message: error.to_string(), is_lost: error.exit_code() == LOST }
    }
}
