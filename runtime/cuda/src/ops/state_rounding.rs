//! The parameter of kernels that round optimizer state stochastically.

use bytemuck::{Pod, Zeroable};

use meshwright_backend::StateRounding;

/// `StateRounding` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct RoundingParams {
    key: u64,
    first: u64,
    /// Index in the block of the element 0 of a launch; modulo 2^64, if the block begins after it.
    offset: u64,
    row: u64,
    stride: u64,
}

impl RoundingParams {
    /// Creates the parameter for elements that begin at element `at` of a launch.
    pub fn new(rounding: &StateRounding, at: usize) -> RoundingParams {
        let StateRounding { key, first, start, row, stride, .. } = *rounding;
        RoundingParams { key, first, offset: start.wrapping_sub(at as u64), row, stride }
    }
}
