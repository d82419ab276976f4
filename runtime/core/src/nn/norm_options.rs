//! Options of norms.

/// Options of the norm in one field, instead of those of the [`Sizes`](super::Sizes):
/// [`Sizes::with_norm`](super::Sizes::with_norm).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormOptions {
    /// Added under the square root, at least 0.
    pub eps: f32,
    /// Added to the weight of an RMSNorm, which begins at `1 - offset`; 0 for a LayerNorm.
    pub offset: f32,
}

impl Default for NormOptions {
    /// An epsilon of 1e-5, and no offset.
    fn default() -> NormOptions {
        NormOptions { eps: 1e-5, offset: 0.0 }
    }
}
