//! Reduction operations of collectives.

/// The reduction operation of a collective, over f32, bf16 or f64.
///
/// Contributions in bf16 are combined in f32, and the result is rounded once, to nearest even: a sum over any number of
/// ranks has one rounding to bf16, not one for each addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum, added in the order of group ranks: `((r0 + r1) + r2) + ..`.
    Sum,
    /// The maximum; NaN if any contribution is NaN.
    Max,
}

impl ReduceOp {
    /// Returns the name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
        }
    }
}
