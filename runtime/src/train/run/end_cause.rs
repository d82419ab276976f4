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
    /// Returns the cause of data with this error, or of a stop; `None` without both.
    pub(super) fn of(data: Option<&Error>, stop: Option<String>) -> Option<EndCause> {
        let is_lost = data.is_some_and(|error| error.exit_code() == LOST);
        match (data, stop) {
            // Which has ended the wait for data that may be there later.
            (Some(_), Some(stop)) if is_lost => Some(EndCause::Stop(stop)),
            (Some(error), _) => Some(EndCause::Data { message: error.to_string(), is_lost }),
            (None, stop) => stop.map(EndCause::Stop),
        }
    }
}
