//! Failures of the program: a message with an exit code.

use std::error::Error;

use meshwright::exit_code::{REFUSED, code_of_error};

/// The message of a failed subcommand, and its exit code.
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    /// Creates the failure by an `error`, described by `message`.
    pub fn new(message: String, error: &(dyn Error + 'static)) -> Failure {
        Failure { message, code: code_of_error(error) }
    }
}

/// Converts a message about the arguments.
impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure { message, code: REFUSED }
    }
}
