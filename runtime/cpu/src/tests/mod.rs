//! Tests of functions that several kernels use.

mod math;
mod matrix;
mod rounding;
