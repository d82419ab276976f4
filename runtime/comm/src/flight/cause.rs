//! The findings of a search in the last calls of the ranks.

/// A cause of a failure or a delay.
#[derive(Debug)]
pub struct FlightCause {
    pub text: String,
    pub culprits: Vec<usize>,
}
