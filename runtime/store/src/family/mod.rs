//! Model families: how a configuration follows from the flags, and the sizes of its transformer.
//!
//! A family states its sizes once, in [`LanguageModel::sizes`]. Names and shapes of its tensors, parameter counts and
//! the memory of a training step follow from the model that is declared with them.

mod config_keys;
mod family_model;
mod language_model;
pub(crate) mod list;
mod load_balancing;
mod outline;

use crate::checkpoint::hf::HfConfig;
use crate::checkpoint::hf::model_type::with_article;

pub use crate::checkpoint::hf::{ModelSizes, SizeFlag};
pub use config_keys::ConfigKeys;
pub use family_model::FamilyModel;
pub use language_model::LanguageModel;
pub use list::{FamilyList, WithFamily};
pub use load_balancing::LoadBalancing;
pub use outline::Outline;

/// The configuration of a family of language models that the trainer can create new models of, and export.
///
/// [`ConfigKeys`] implements it by one function that names the keys.
pub trait Family: HfConfig {
    /// Returns the configuration of a new model of these sizes, for sequences of `seq` tokens.
    ///
    /// # Errors
    /// Sizes that the family does not have or that do not fit together, in a message that begins with the flag.
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<Self, String>;

    /// Returns the configuration of a new model of the family `model_type`, as [`of_sizes`](Self::of_sizes).
    ///
    /// # Errors
    /// As [`of_sizes`](Self::of_sizes), and flags of experts by default.
    fn new_model(model_type: &'static str, sizes: &ModelSizes, seq: usize) -> Result<Self, String> {
        let flags = [("--experts", sizes.experts.is_some()), ("--top-k", sizes.top_k.is_some())];
        refuse_given(model_type, flags)?;
        Self::of_sizes(sizes, seq)
    }

    /// Returns the sizes of the transformer, in terms that all families share.
    fn outline(&self) -> Outline;

    /// Returns the keys of `config.json` that the family `model_type` knows, in the order of
    /// [`keys`](ConfigKeys::keys), with the flags that set them for a new model. By default, they are not known.
    fn known_keys(model_type: &'static str) -> Vec<(String, Option<&'static str>)> {
        let _ = model_type;
        Vec::new()
    }

    /// Raises the longest sequence of the configuration to the `seq` tokens of a run, and returns a warning if the
    /// model was made for shorter ones.
    fn extend_positions(&mut self, seq: usize) -> Option<String> {
        let _ = seq;
        None
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
        refuse_routers(self.model_type(), balance, z_loss)
    }
}

/// Refuses the flags of routers for a family without experts.
fn refuse_routers(
    family: &str,
    balance: Option<LoadBalancing>,
    z_loss: Option<f64>,
) -> Result<(), String> {
    refuse_given(family, [("--balance", balance.is_some()), ("--z-loss", z_loss.is_some())])
}

/// Refuses the first given flag of a family without experts.
fn refuse_given(family: &str, flags: [(&str, bool); 2]) -> Result<(), String> {
    match flags.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            Err(format!("{flag}: {} has no router of experts; leave it out", with_article(family)))
        }
        None => Ok(()),
    }
}
