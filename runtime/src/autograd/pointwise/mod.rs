//! Elementwise operations: deferred as expressions, and fused into one kernel with all that follows.

mod backward;
mod expression;
mod leaf;

pub(crate) use expression::{Binary, Pointwise, Unary};
