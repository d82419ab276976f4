//! Rotary position embedding.

use crate::backend::{View, ViewMut};

/// Kernels of rotary position embedding (Su et al. 2021).
pub trait RopeOps {
    /// Rotates the pairs `(j, j + head_dim / 2)` of every head, the layout of Hugging Face's Llama.
    fn rope(&self, shape: &RopeShape, args: RopeArgs);
}

/// Sizes of a rotary position embedding over `x[batch, seq, heads, head_dim]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RopeShape {
    /// Samples.
    pub batch: usize,
    /// Positions.
    pub seq: usize,
    /// Heads.
    pub heads: usize,
    /// Elements of one head; even.
    pub head_dim: usize,
}

/// Operands of [`RopeOps::rope`].
pub struct RopeArgs<'a> {
    /// Input.
    pub x: View<'a>,
    /// Cosines of the angles, f32 `[seq, head_dim / 2]`.
    pub cos: View<'a>,
    /// Sines of the angles, as `cos`.
    pub sin: View<'a>,
    /// Rotate by the negative angles, which is also the backward pass.
    pub inverse: bool,
    /// Output, written.
    pub y: ViewMut<'a>,
}
