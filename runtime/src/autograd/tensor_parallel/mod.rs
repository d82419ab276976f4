//! Tensor parallelism: the f and g operators, which enter and leave a tensor-parallel region.

mod operators;

pub(crate) use operators::*;
