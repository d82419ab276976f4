//! Rotary position embedding.

use crate::{DryRunBackend, View, ViewMut};

/// Kernels of rotary position embedding (Su et al. 2021).
pub trait RopeOps {
    /// Rotates the pairs of every head by the angles of its position; elements from `rotary_dim` on are copied.
    fn rope(&self, shape: &RopeShape, args: RopeArgs);
}

impl RopeOps for DryRunBackend {
    fn rope(&self, _: &RopeShape, _: RopeArgs) {}
}

/// Elements of a head that form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RopeLayout {
    /// Pair `j` is elements `j` and `j + rotary_dim / 2`: Hugging Face's Llama, GPT-NeoX.
    #[default]
    HalfSplit,
    /// Pair `j` is elements `2j` and `2j + 1`: GPT-J, and the Llamas as Meta publishes them.
    Interleaved,
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
    /// Elements of one head.
    pub head_dim: usize,
    /// Elements of one head that are rotated, from the first on; even.
    pub rotary_dim: usize,
    /// Pairs among them.
    pub layout: RopeLayout,
}

/// Operands of [`RopeOps::rope`].
pub struct RopeArgs<'a> {
    /// Input.
    pub x: View<'a>,
    /// Cosines of the angles, f32 `[seq, rotary_dim / 2]`.
    pub cos: View<'a>,
    /// Sines of the angles, shaped like `cos`.
    pub sin: View<'a>,
    /// Rotate by the negative angles, which is also the backward pass.
    pub inverse: bool,
    /// Output, written.
    pub y: ViewMut<'a>,
}

impl RopeShape {
    /// Returns the sizes of heads that are rotated whole, in the half-split layout.
    pub fn whole_heads(batch: usize, seq: usize, heads: usize, head_dim: usize) -> RopeShape {
        let layout = RopeLayout::HalfSplit;
        RopeShape { batch, seq, heads, head_dim, rotary_dim: head_dim, layout }
    }

    /// Returns the number of elements of the input.
    pub fn elements(&self) -> usize {
        self.batch * self.seq * self.heads * self.head_dim
    }

    /// Checks that the rotated elements are pairs within a head.
    pub fn check_pairs(&self) {
        let RopeShape { head_dim, rotary_dim, .. } = *self;
        assert!(
            rotary_dim.is_multiple_of(2) && rotary_dim <= head_dim,
            "rope pairs the elements of a head, and {rotary_dim} of {head_dim} rotate"
        );
    }
}
