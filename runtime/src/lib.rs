//! Meshwright: annotate a model, let the compiler judge its shardings, train it on many ranks.
#![warn(missing_docs)]

pub mod backend;
pub mod checkpoint;
pub mod comm;
pub mod data;
pub mod layout;
pub mod mesh;
pub mod nn;
pub mod random;
pub mod tensor;
pub mod train;
