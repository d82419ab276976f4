//! The programs of the crate, each run in a temporary folder.

#[cfg(feature = "cuda")]
mod meshwright;
mod schedule_input;
mod stdout;
mod tokenize;
