//! The sizes and settings that kernels take beside their operands.

use super::{View, ViewMut};

/// A matrix product `c[m, n] (+)= op(a)[m, k] * op(b)[k, n]` of row-major contiguous operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Rows of `c`.
    pub m: usize,
    /// Columns of `c`.
    pub n: usize,
    /// Length of the contraction.
    pub k: usize,
    /// `a` is stored as `[k, m]`.
    pub trans_a: bool,
    /// `b` is stored as `[n, k]`.
    pub trans_b: bool,
    /// Add to `c` instead of overwriting it.
    pub accumulate: bool,
}

/// What a product does beside writing its result; all operands are of its dtype but for the sums.
pub enum GemmEnding<'a> {
    /// Adds a bias `[n]` to each row.
    Bias(View<'a>),
    /// Adds a bias `[n]` to each row, and takes GELU in its `tanh` form of that.
    BiasGelu {
        /// The bias.
        bias: View<'a>,
        /// Where what GELU is taken of goes, `[m, n]`.
        inside: Option<ViewMut<'a>>,
    },
    /// Writes the sums of the columns of `op(b)`, f32 `[n]`: the gradient of a bias, where the product is that of its weight,
    /// whose result is f32.
    Sums(ViewMut<'a>),
}

/// Sizes of scaled dot-product attention with grouped key/value heads.
///
/// `q` and the output are `[batch, seq, heads, head_dim]`, `k` and `v` are `[batch, seq, kv_heads, head_dim]`;
/// query head `h` reads key/value head `h / (heads / kv_heads)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Samples.
    pub batch: usize,
    /// Positions of queries and of keys.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Factor on the scores before the softmax, usually `head_dim^-1/2`.
    pub scale: f32,
    /// Position `i` reads positions `0..=i` only.
    pub causal: bool,
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

/// Where a local block lies in its global tensor; all three vectors have one entry per dim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockIndex {
    /// Sizes of the block.
    pub local: Vec<usize>,
    /// Sizes of the global tensor.
    pub global: Vec<usize>,
    /// Global index of the first element of the block.
    pub offset: Vec<usize>,
}

impl BlockIndex {
    /// The block that is the whole tensor of these sizes.
    pub fn whole(sizes: &[usize]) -> BlockIndex {
        BlockIndex { local: sizes.to_vec(), global: sizes.to_vec(), offset: vec![0; sizes.len()] }
    }

    /// Number of elements of the block.
    pub fn len(&self) -> usize {
        self.local.iter().product()
    }

    /// Whether the block holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The global row-major index of the element with row-major index `local` in the block.
    pub fn global_index(&self, mut local: usize) -> u64 {
        let mut index = 0;
        let mut stride = 1;
        for dim in (0..self.local.len()).rev() {
            let position = self.offset[dim] + local % self.local[dim];
            local /= self.local[dim];
            index += position as u64 * stride;
            stride *= self.global[dim] as u64;
        }
        index
    }
}

/// One step of AdamW (Loshchilov and Hutter 2019) as PyTorch computes it.
///
/// With `g' = g * grad_scale`: `p *= 1 - lr * weight_decay`, `m = beta1 * m + (1 - beta1) * g'`,
/// `v = beta2 * v + (1 - beta2) * g'^2`, `p -= lr * (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// `1 - beta1^t` at step `t`, counted from 1.
    pub bias_correction1: f32,
    /// `1 - beta2^t` at step `t`, counted from 1.
    pub bias_correction2: f32,
    /// Factor on the gradient: clipping, and the division by a token count.
    pub grad_scale: f32,
}

/// One step of stochastic gradient descent as PyTorch computes it, but for its weight decay.
///
/// With `g' = g * grad_scale`: `p *= 1 - lr * weight_decay`, `buf = momentum * buf + g'`, and `p -= lr * buf`, or
/// `p -= lr * (g' + momentum * buf)` with Nesterov's momentum (Sutskever et al. 2013). Without a momentum buffer
/// `p -= lr * g'`. The decay is decoupled as in [`AdamStep`]; PyTorch's SGD adds `weight_decay * p` to the gradient
/// instead, so that the decay is summed up in the momentum too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the sum of gradients; not used without a momentum buffer.
    pub momentum: f32,
    /// Look ahead along the momentum; not used without a momentum buffer.
    pub nesterov: bool,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Factor on the gradient: clipping, and the division by a token count.
    pub grad_scale: f32,
}

/// Where the gradient of one leaf of an [`Expr`](super::Expr) goes, or that of an operand of a norm.
pub struct LeafGrad<'a> {
    /// As many elements as the leaf, of its dtype; f32 for a leaf that is used as a [`Row`](super::Node::Row), and for
    /// parameters of norms.
    pub view: ViewMut<'a>,
    /// Add to what is there instead of overwriting it; the sum is rounded once.
    pub accumulate: bool,
}

/// How contributions are combined. Both take `f32` and `bf16`.
///
/// Contributions in `bf16` are combined in `f32`, and the result is rounded once, to the nearest `bf16` and of two to the
/// even one: a sum over any number of members has one rounding to `bf16`, not one for each addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum, added in the order of members: `((m0 + m1) + m2) + ..`.
    Sum,
    /// The maximum; NaN if any contribution is NaN.
    Max,
}

impl ReduceOp {
    /// The name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
        }
    }
}
