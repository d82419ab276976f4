//! Unwinding of a rank whose collective has failed.

use crate::comm::{CommError, CommFailure};

/// Unwinds out of model code, which returns tensors and not `Result`s, with a typed payload that
/// [`launch`](crate::comm::launch) and the trainer turn back into an error.
pub(crate) fn fail(error: CommError) -> ! {
    std::panic::resume_unwind(Box::new(CommFailure(error)))
}
