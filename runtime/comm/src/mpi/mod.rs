//! The engine `mpi`: ranks are processes on CPUs, on one host or several, over any library of MPI 3.
//!
//! One thread of a rank at a time makes MPI calls (`driver.rs`). MPI only moves bytes: a call is a plan of messages
//! and of local steps, so results have the same bits as with ranks that are threads. A call owns the memory that MPI
//! writes (`memory.rs`). Every message has a tag for its call (`tags.rs`), which its receiver compares.

mod driver;
mod engine;
mod exchange;
mod failure;
mod group;
mod groups;
mod job;
mod library;
mod memory;
mod plan;
mod progress;
mod scratch;
mod tags;

pub use engine::{MpiEngine, MpiSettings, MpiStartError};
