//! Training loops that a program writes: their checkpoints and reports.

mod checkpoints;
mod other_runs;
mod reports;
