//! Unwinding of a rank whose collective has failed.

use meshwright_comm::{CommError, CommFailure};

/// Unwinds out of model code, which returns tensors and not `Result`s, with a typed payload that
/// [`launch`](meshwright_comm::launch) and the trainer turn back into an error.
pub fn fail(error: CommError) -> ! {
    std::panic::resume_unwind(Box::new(CommFailure(error)))
}
