//! Model families: how a configuration follows from the flags, and the sizes of its transformer.
//!
//! A family states its sizes once, in [`LanguageModel::sizes`]. Names and shapes of its tensors, parameter counts and
//! the memory of a training step follow from the model that is declared with them.

mod language_model;
pub(crate) mod list;
mod load_balancing;
mod size_flag;
mod sizes;

use crate::checkpoint::hf::{HfConfig, HfKeys, written};

pub use language_model::LanguageModel;
pub use list::{FamilyList, WithFamily};
pub use load_balancing::LoadBalancing;
pub use size_flag::SizeFlag;
pub use sizes::{ModelSizes, Outline};

/// The configuration of a family of language models that the trainer can create new models of, and export.
///
/// All follows from the [keys](HfConfig::keys) of the configuration, except for settings of routers.
pub trait Family: HfConfig {
    /// Returns the configuration of a new model of the family `model_type` with these sizes, for sequences of `seq`
    /// tokens.
    ///
    /// # Errors
    /// Sizes that the family does not have or that do not fit together, in a message that begins with the flag.
    fn of_sizes(model_type: &'static str, sizes: &ModelSizes, seq: usize) -> Result<Self, String> {
        let mut config = Self::of_type(model_type);
        let mut keys = HfKeys::of_new(sizes, seq);
        config.keys(&mut keys)?;
        keys.refuse_other_flags(model_type)?;
        Ok(config)
    }

    /// Returns the sizes of the transformer, in terms that all families share.
    fn outline(&self) -> Outline {
        let HfKeys { sizes, table, .. } = written(self);
        let find = |flag| sizes.iter().find(|size| size.flag == flag).map(|size| size.value);
        let heads = find(SizeFlag::Heads).unwrap_or(1);
        Outline {
            layers: find(SizeFlag::Layers).unwrap_or(1),
            hidden: find(SizeFlag::Hidden).unwrap_or(1),
            heads,
            kv_heads: find(SizeFlag::KvHeads).unwrap_or(heads),
            vocab: find(SizeFlag::Vocab).unwrap_or(1),
            longest: table,
        }
    }

    /// Raises the longest sequence of the configuration to the `seq` tokens of a run, and returns a warning if the
    /// model was made for shorter ones.
    fn extend_positions(&mut self, seq: usize) -> Option<String> {
        let mut keys = HfKeys::extending(seq);
        // `HfKeys::require` refuses values of files and flags only.
        self.keys(&mut keys).expect("a configuration can be extended");
        keys.into_warnings().pop()
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
        let flags = [("--balance", balance.is_some()), ("--z-loss", z_loss.is_some())];
        match flags.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(format!(
                "{flag}: a {} has no router of experts; leave it out",
                self.model_type()
            )),
            None => Ok(()),
        }
    }
}
