//! Mixture of experts (MoE): each token is computed by the few experts that a router chooses for it.
//!
//! [`Router`] computes the [`TokenRouting`] of tokens: the experts that each has chosen, and their weights. The routing
//! brings the rows of tokens to the experts by [`dispatch`](TokenRouting::dispatch), and the results back by
//! [`combine`](TokenRouting::combine); [`GroupedLinear`] layers have a weight for each expert. No choice is dropped: an
//! expert computes as many rows as tokens have chosen it.

mod choices;
mod combine;
mod dispatch;
mod exchange;
mod grouped_linear;
mod logits;
mod matmuls;
mod penalty;
mod router;
mod routing;
mod weights;

pub use grouped_linear::{GroupedInput, GroupedLinear};
pub use meshwright_backend::{RouterOptions, RouterScore};
pub use router::{Router, RouterInput};
pub use routing::{RouterPenalties, TokenRouting};
