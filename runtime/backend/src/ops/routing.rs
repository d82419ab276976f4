//! Expert routing: tokens are assigned to their top-k experts and permuted by expert (mixture of experts, MoE).
//!
//! Each token has `top_k` choices, and choice `c` belongs to token `c / top_k`. Choices are grouped by expert, in the
//! order of tokens within each expert: the choice at position `p` is `order[p]`, and the position of choice `c` is
//! `positions[c]`.

use crate::{DryRunBackend, View, ViewMut};

/// Kernels that route tokens to experts and back.
pub trait RoutingOps {
    /// Finds the `k` largest scores of each token, the largest first, and their experts.
    ///
    /// Of equal scores the lower expert comes first; NaN is larger than any number.
    ///
    /// # Panics
    /// When operands do not fit, or `k` is 0, greater than [`MAX_TOP_K`] or greater than `experts`.
    fn top_k(&self, args: TopKArgs);
    /// Computes the token permutation: groups choices by expert. Choices of an expert that does not exist come last and
    /// are not counted.
    fn group_by_expert(&self, args: GroupByExpertArgs);
    /// Gathers the rows of tokens at the positions of their choices:
    /// `out[p] = weights[order[p]] * x[order[p] / top_k]`.
    ///
    /// It takes tokens to their experts, and with weights it is the backward of
    /// [`combine_tokens`](Self::combine_tokens).
    fn dispatch_tokens(&self, shape: RoutingShape, args: DispatchTokensArgs);
    /// Sums the rows of each token's choices: `out[t] = sum of weights[c] * x[positions[c]]` over its choices in order.
    ///
    /// It brings the results of experts back, and without weights it is the backward of
    /// [`dispatch_tokens`](Self::dispatch_tokens).
    fn combine_tokens(&self, shape: RoutingShape, args: CombineTokensArgs);
    /// Computes the gradients of the weights of [`combine_tokens`](Self::combine_tokens): `dweights[c]` is the dot
    /// product of `dy[c / top_k]` and `x[positions[c]]`.
    fn combine_weight_grad(&self, shape: RoutingShape, args: CombineWeightGradArgs);

    /// Computes the scores that tokens choose experts by: `scores[e]` is the [score](RouterScore) of an expert plus
    /// its bias, and negative infinity where the expert's group is not among the best [groups](ExpertGroups).
    ///
    /// # Panics
    /// When operands do not fit, or the groups do not fit the experts.
    fn choice_scores(&self, options: RouterOptions, args: ChoiceScoresArgs);
    /// Computes the weight of each choice from the logits of its token; see [`RouterOptions`].
    fn router_weights(&self, options: RouterOptions, args: RouterWeightsArgs);
    /// Computes the backward of [`router_weights`](Self::router_weights), from the same logits and choices: the
    /// gradient of every logit of each token.
    fn router_weights_backward(&self, options: RouterOptions, args: RouterWeightsBackwardArgs);
    /// Computes the auxiliary loss of each token: `z * lse^2 + sum of factors[e] * p[e]` over the experts, where `lse`
    /// is the log-sum-exp of its logits and `p` its [`probabilities`](RouterScore).
    fn router_auxiliary_loss(&self, score: RouterScore, args: RouterAuxiliaryLossArgs);
    /// Computes the backward of [`router_auxiliary_loss`](Self::router_auxiliary_loss): the gradient of every logit.
    fn router_auxiliary_loss_backward(
        &self,
        score: RouterScore,
        args: RouterAuxiliaryLossBackwardArgs,
    );
}

impl RoutingOps for DryRunBackend {
    fn top_k(&self, _: TopKArgs) {}
    fn group_by_expert(&self, _: GroupByExpertArgs) {}
    fn dispatch_tokens(&self, _: RoutingShape, _: DispatchTokensArgs) {}
    fn combine_tokens(&self, _: RoutingShape, _: CombineTokensArgs) {}
    fn combine_weight_grad(&self, _: RoutingShape, _: CombineWeightGradArgs) {}
    fn choice_scores(&self, _: RouterOptions, _: ChoiceScoresArgs) {}
    fn router_weights(&self, _: RouterOptions, _: RouterWeightsArgs) {}
    fn router_weights_backward(&self, _: RouterOptions, _: RouterWeightsBackwardArgs) {}
    fn router_auxiliary_loss(&self, _: RouterScore, _: RouterAuxiliaryLossArgs) {}
    fn router_auxiliary_loss_backward(&self, _: RouterScore, _: RouterAuxiliaryLossBackwardArgs) {}
}

/// Largest number of experts per token: on a GPU, each thread of a warp computes the weight of one choice.
pub const MAX_TOP_K: usize = 32;

/// Largest number of groups of experts.
pub const MAX_EXPERT_GROUPS: usize = 32;

/// Score of an expert for a token, a function of the token's logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouterScore {
    /// The softmax over all experts. The scores of a token are its probabilities.
    #[default]
    Softmax,
    /// The sigmoid of the expert's own logit. The probabilities of a token are its scores, divided by their sum.
    Sigmoid,
}

/// Options of a router for turning logits into weights.
///
/// A token chooses the experts with its largest scores, which have its largest logits too. With a bias of the choice it
/// chooses by the sum of score and bias, and the weights are computed from the scores alone (DeepSeek-AI, "DeepSeek-V3
/// Technical Report", 2024, equation 16).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouterOptions {
    /// Score of each expert.
    pub score: RouterScore,
    /// True if the scores of a token's choices are divided by their sum. For [`RouterScore::Softmax`] that is the
    /// softmax over the chosen logits.
    pub normalize: bool,
    /// Factor of all weights.
    pub scale: f32,
    /// Added to the sum that divides normalized sigmoids: `1e-20` in DeepSeek-V3.
    pub sum_epsilon: f32,
    /// Groups of experts that a token chooses from; `None` for all experts.
    pub groups: Option<ExpertGroups>,
}

/// Groups of consecutive experts, of equal size. A token chooses the best groups first, and then experts of these alone
/// (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.1.2). Of equal groups the lower ones are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups, at most [`MAX_EXPERT_GROUPS`].
    pub count: usize,
    /// Number of groups that a token chooses from.
    pub best: usize,
    /// Number of experts, the best ones of a group, whose scores add up to the score of the group.
    pub top: usize,
}

impl ExpertGroups {
    /// Describes the first mistake of these groups of `experts` for tokens that choose `k` of them.
    pub fn mistake(&self, experts: usize, k: usize) -> Option<String> {
        let ExpertGroups { count, best, top } = *self;
        if !(1..=MAX_EXPERT_GROUPS).contains(&count) {
            return Some(format!("there are {count} groups, and can be 1 to {MAX_EXPERT_GROUPS}"));
        }
        if !experts.is_multiple_of(count) {
            return Some(format!("{experts} experts are no multiple of {count} groups"));
        }
        let size = experts / count;
        if !(1..=count).contains(&best) {
            return Some(format!("tokens choose from {best} of {count} groups"));
        }
        if !(1..=size).contains(&top) {
            return Some(format!("groups of {size} experts are scored by their {top} best ones"));
        }
        (k > best * size).then(|| {
            format!("tokens choose {k} experts from {best} groups of {size}, which have fewer")
        })
    }
}

/// The softmax over the chosen logits, as in Mixtral.
impl Default for RouterOptions {
    fn default() -> RouterOptions {
        RouterOptions {
            score: RouterScore::Softmax,
            normalize: true,
            scale: 1.0,
            sum_epsilon: 0.0,
            groups: None,
        }
    }
}

/// Number of tokens and choices of a routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutingShape {
    /// Tokens.
    pub tokens: usize,
    /// Experts per token.
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
    /// Experts per token.
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

/// Operands of [`RoutingOps::choice_scores`], all f32.
pub struct ChoiceScoresArgs<'a> {
    /// Number of experts.
    pub experts: usize,
    /// Logits, `[tokens, experts]`.
    pub logits: View<'a>,
    /// Bias of each expert, `[experts]`; 0 if absent.
    pub bias: Option<View<'a>>,
    /// Scores of the choice, `[tokens, experts]`, written.
    pub scores: ViewMut<'a>,
}

/// Operands of [`RoutingOps::router_weights`].
pub struct RouterWeightsArgs<'a> {
    /// Number of experts.
    pub experts: usize,
    /// Experts per token.
    pub k: usize,
    /// Logits, f32 `[tokens, experts]`.
    pub logits: View<'a>,
    /// The chosen experts, u32 `[tokens, k]`, different ones for each token.
    pub choices: View<'a>,
    /// The weight of each choice, f32 `[tokens, k]`, written.
    pub weights: ViewMut<'a>,
}

/// Operands of [`RoutingOps::router_weights_backward`].
pub struct RouterWeightsBackwardArgs<'a> {
    /// Number of experts.
    pub experts: usize,
    /// Experts per token.
    pub k: usize,
    /// Logits, f32 `[tokens, experts]`.
    pub logits: View<'a>,
    /// The chosen experts, u32 `[tokens, k]`.
    pub choices: View<'a>,
    /// Gradient of the weight of each choice, f32 `[tokens, k]`.
    pub dweights: View<'a>,
    /// Gradient of the logits, f32 `[tokens, experts]`, written.
    pub dlogits: ViewMut<'a>,
}

/// Operands of [`RoutingOps::router_auxiliary_loss`].
pub struct RouterAuxiliaryLossArgs<'a> {
    /// Number of experts.
    pub experts: usize,
    /// Logits, f32 `[tokens, experts]`.
    pub logits: View<'a>,
    /// Factor of each expert's probability, f32 `[experts]`.
    pub factors: View<'a>,
    /// Factor of the squared log-sum-exp.
    pub z: f32,
    /// Auxiliary loss of each token, `[tokens]`, f32 or bf16, written.
    pub out: ViewMut<'a>,
}

/// Operands of [`RoutingOps::router_auxiliary_loss_backward`].
pub struct RouterAuxiliaryLossBackwardArgs<'a> {
    /// Number of experts.
    pub experts: usize,
    /// Logits, f32 `[tokens, experts]`.
    pub logits: View<'a>,
    /// Factor of each expert's probability, f32 `[experts]`.
    pub factors: View<'a>,
    /// Factor of the squared log-sum-exp.
    pub z: f32,
    /// Gradient of the auxiliary loss of each token, `[tokens]`, f32 or bf16.
    pub dout: View<'a>,
    /// Gradient of the logits, f32 `[tokens, experts]`, written.
    pub dlogits: ViewMut<'a>,
}
