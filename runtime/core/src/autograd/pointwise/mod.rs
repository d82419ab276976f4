//! Elementwise operations: deferred as expressions, and fused into one kernel with the elementwise operations that read
//! them.

mod backward;
mod boundary;
mod expression;
mod leaf;
mod merge;
mod repeat;

pub(crate) use expression::{Binary, Pointwise, Unary};
