//! Training data: token files, text, and which tokens each step trains on.
//!
//! Batches are pure functions of (seed, order, step, index in the global batch), never of a rank or of what was read
//! before. So every mesh trains on the same samples and a resumed run goes on exactly where it stopped.

mod batch;
mod corpus;
mod error;
mod permutation;
mod position;
mod sampler;
mod tokens;

pub use batch::{Batch, Dataset};
pub use corpus::read_corpus;
pub use error::DataError;
pub use permutation::Permutation;
pub use position::DataPosition;
pub use sampler::{Order, Sampler};
pub use tokens::{Encoding, TokenFile};
