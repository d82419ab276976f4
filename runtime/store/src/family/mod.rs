//! Model families: how a configuration follows from the flags, and the sizes of its transformer.
//!
//! A family states its sizes once, in [`LanguageModel::sizes`]. Names and shapes of its tensors, parameter counts and
//! the memory of a training step follow from the model that is declared with them.

mod language_model;
mod load_balancing;
mod sizes;

use crate::checkpoint::hf::HfConfig;

pub use language_model::LanguageModel;
pub use load_balancing::LoadBalancing;
pub use sizes::{ModelSizes, Outline};

/// The configuration of a family of language models that the trainer can create new models of, and export.
pub trait Family: HfConfig {
    /// Returns the configuration of a new model of these sizes, for sequences of `seq` tokens.
    ///
    /// # Errors
    /// Sizes that the family does not have or that do not fit together, in a message that begins with the flag.
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<Self, String>;

    /// Returns the sizes of the transformer, in terms that all families share.
    fn outline(&self) -> Outline;

    /// Raises the longest sequence of the configuration to the `seq` tokens of a run, and returns a warning if the
    /// model was made for shorter ones.
    fn extend_positions(&mut self, seq: usize) -> Option<String> {
        let _ = seq;
        None
    }

    /// Sets the number of experts of a new model, and of those that each token chooses. `None` leaves them as they are.
    ///
    /// # Errors
    /// A family without experts, and more chosen experts than there are, in a message that begins with the flag.
    fn set_experts(&mut self, experts: Option<usize>, top_k: Option<usize>) -> Result<(), String> {
        refuse_experts::<Self>([("--experts", experts.is_some()), ("--top-k", top_k.is_some())])
    }

    /// Sets how routers balance the loads of experts, and the weight of their z-loss. `None` leaves them as they are.
    ///
    /// # Errors
    /// A family without experts, and a way that it does not have, in a message that begins with the flag.
    fn set_balancing(
        &mut self,
        balance: Option<LoadBalancing>,
        z_loss: Option<f64>,
    ) -> Result<(), String> {
        refuse_experts::<Self>([("--balance", balance.is_some()), ("--z-loss", z_loss.is_some())])
    }

    /// Returns a warning about parts of `config.json` that training leaves out, if any.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// Refuses the first given flag of a family without experts.
fn refuse_experts<F: Family>(flags: [(&str, bool); 2]) -> Result<(), String> {
    match flags.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            Err(format!("{flag}: a {} has no router of experts; leave it out", F::MODEL_TYPE))
        }
        None => Ok(()),
    }
}
