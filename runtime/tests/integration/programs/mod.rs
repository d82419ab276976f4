//! The programs of the crate, each run in a temporary folder.

mod bench;
mod book;
mod calibrate;
mod checkpoints;
mod clusters;
mod flight;
#[cfg(feature = "cuda")]
mod meshwright;
mod new_project;
mod plot;
mod replaced_files;
mod report;
mod run;
mod schedule_input;
mod stdout;
mod tokenize;
