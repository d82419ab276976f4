//! Ranks as processes: who each of them is, and how they find each other before there is a communicator.
//!
//! A launcher (torchrun, SLURM, mpirun) starts the processes and tells each one its [`Place`] by environment variables. Then
//! all open one [`Store`], in which a rank leaves bytes under a key for the others: enough to hand out the identifiers
//! from which communicators are made. It stays open while they work, and tells each of them when another one ends.

mod error;
mod keep_alive;
mod place;
mod protocol;
mod server;
mod store;

pub use error::StoreError;
pub use place::{Place, PlaceError};
pub use store::Store;

#[cfg(test)]
mod tests;
