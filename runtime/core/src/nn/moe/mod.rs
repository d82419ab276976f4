//! Mixture of experts (MoE): each token is computed by the top-k experts of its router, and the layer is dropless.
//!
//! [`Router`] computes the [`TokenRouting`] of tokens: the experts that each has chosen, and their weights. The routing
//! brings the rows of tokens to the experts by [`dispatch`](TokenRouting::dispatch), and the results back by
//! [`combine`](TokenRouting::combine); [`GroupedLinear`] layers have a weight for each expert, and are grouped GEMMs.
//! There is no capacity factor: an expert computes as many rows as tokens have chosen it.

mod auxiliary_loss;
mod choices;
mod combine;
mod dispatch;
mod exchange;
mod grouped_bias;
mod grouped_linear;
mod grouped_matmul;
mod logit_bias;
mod logits;
mod router;
mod routing;
mod weights;

pub use grouped_bias::{GroupedBias, GroupedBiasInput};
pub use grouped_linear::{GroupedInput, GroupedLinear};
pub use meshwright_backend::{ExpertGroups, RouterOptions, RouterScore};
pub use router::{Router, RouterInput};
pub use routing::{RouterPenalties, TokenRouting};
