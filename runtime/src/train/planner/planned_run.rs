//! Runs that are planned.

use crate::train::simulate::SimulatedRun;

use super::candidate::Candidate;

/// A candidate that was dry-run in full, and simulated.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    pub candidate: Candidate,
    pub run: SimulatedRun,
}
