//! Training loops that a program writes: their checkpoints and reports.

mod checkpoints;
mod reports;
