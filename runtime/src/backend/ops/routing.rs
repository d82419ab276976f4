//! Expert routing: tokens are assigned to experts and grouped by them (mixture of experts, MoE).
//!
//! Each token has `top_k` choices, and choice `c` belongs to token `c / top_k`. Choices are grouped by expert, in the order
//! of tokens within each expert: the choice at position `p` is `order[p]`, and the position of choice `c` is
//! `positions[c]`.

use crate::backend::{DryRunBackend, View, ViewMut};

/// Kernels that route tokens to experts and back.
pub trait RoutingOps {
    /// Finds the `k` largest scores of each token, the largest first, and their experts.
    ///
    /// Of equal scores the lower expert comes first; NaN is larger than any number.
    ///
    /// # Panics
    /// When operands do not fit, or `k` is 0, greater than [`MAX_TOP_K`] or greater than `experts`.
    fn top_k(&self, args: TopKArgs);
    /// Groups choices by expert. Choices of an expert that does not exist come last and are not counted.
    fn group_by_expert(&self, args: GroupByExpertArgs);
    /// Gathers the rows of tokens at the positions of their choices:
    /// `out[p] = weights[order[p]] * x[order[p] / top_k]`.
    ///
    /// It takes tokens to their experts, and with weights it is the backward of [`combine_tokens`](Self::combine_tokens).
    fn dispatch_tokens(&self, shape: RoutingShape, args: DispatchTokensArgs);
    /// Sums the rows of each token's choices: `out[t] = sum of weights[c] * x[positions[c]]` over its choices in order.
    ///
    /// It brings the results of experts back, and without weights it is the backward of
    /// [`dispatch_tokens`](Self::dispatch_tokens).
    fn combine_tokens(&self, shape: RoutingShape, args: CombineTokensArgs);
    /// Computes the gradients of the weights of [`combine_tokens`](Self::combine_tokens): `dweights[c]` is the dot product
    /// of `dy[c / top_k]` and `x[positions[c]]`.
    fn combine_weight_grad(&self, shape: RoutingShape, args: CombineWeightGradArgs);
}

impl RoutingOps for DryRunBackend {
    fn top_k(&self, _: TopKArgs) {}
    fn group_by_expert(&self, _: GroupByExpertArgs) {}
    fn dispatch_tokens(&self, _: RoutingShape, _: DispatchTokensArgs) {}
    fn combine_tokens(&self, _: RoutingShape, _: CombineTokensArgs) {}
    fn combine_weight_grad(&self, _: RoutingShape, _: CombineWeightGradArgs) {}
}

/// Largest number of choices per token.
pub const MAX_TOP_K: usize = 8;

/// Number of tokens and choices of a routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutingShape {
    /// Tokens.
    pub tokens: usize,
    /// Choices per token.
    pub top_k: usize,
}

impl RoutingShape {
    /// Returns the number of choices of all tokens.
    pub fn choices(&self) -> usize {
        self.tokens * self.top_k
    }
}

/// Operands of [`RoutingOps::top_k`].
pub struct TopKArgs<'a> {
    /// Number of experts.
    pub experts: usize,
    /// Choices per token.
    pub k: usize,
    /// Scores, `[tokens, experts]`.
    pub scores: View<'a>,
    /// The chosen scores, f32 `[tokens, k]`, written.
    pub values: ViewMut<'a>,
    /// The chosen experts, u32 `[tokens, k]`, written.
    pub choices: ViewMut<'a>,
}

/// Operands of [`RoutingOps::group_by_expert`], all u32.
pub struct GroupByExpertArgs<'a> {
    /// The expert of each choice.
    pub choices: View<'a>,
    /// Number of choices of each expert, `[experts]`, written.
    pub counts: ViewMut<'a>,
    /// The choice at each position, `[choices]`, written.
    pub order: ViewMut<'a>,
    /// The position of each choice, `[choices]`, written.
    pub positions: ViewMut<'a>,
}

/// Operands of [`RoutingOps::dispatch_tokens`].
pub struct DispatchTokensArgs<'a> {
    /// Rows of tokens, `[tokens, cols]`.
    pub x: View<'a>,
    /// Choices, u32, possibly fewer than there are.
    pub order: View<'a>,
    /// Factor of each choice, f32 `[choices]`; 1 if absent.
    pub weights: Option<View<'a>>,
    /// Rows of choices, `[order.len(), cols]`, written.
    pub out: ViewMut<'a>,
}

/// Operands of [`RoutingOps::combine_tokens`].
pub struct CombineTokensArgs<'a> {
    /// Rows of choices, `[rows, cols]`; positions from `rows` on count as zeros.
    pub x: View<'a>,
    /// The position of each choice, u32 `[choices]`.
    pub positions: View<'a>,
    /// Factor of each choice, f32 `[choices]`; 1 if absent.
    pub weights: Option<View<'a>>,
    /// Rows of tokens, `[tokens, cols]`, written.
    pub out: ViewMut<'a>,
}

/// Operands of [`RoutingOps::combine_weight_grad`].
pub struct CombineWeightGradArgs<'a> {
    /// Rows of choices, `[rows, cols]`; a choice whose position is `rows` or more has gradient 0.
    pub x: View<'a>,
    /// The position of each choice, u32 `[choices]`.
    pub positions: View<'a>,
    /// Gradient of the combined rows, `[tokens, cols]`.
    pub dy: View<'a>,
    /// Gradient of the weight of each choice, f32 `[choices]`, written.
    pub dweights: ViewMut<'a>,
}
