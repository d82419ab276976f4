//! What a search in the last calls of the ranks has found.

/// A cause of a failure or a delay.
#[derive(Debug)]
pub struct FlightCause {
    pub text: String,
    pub culprits: Vec<usize>,
}
