//! Models of a family, whatever they are trained for.

use meshwright_core::layout::{SequenceHome, Whole};
use meshwright_core::nn::{Model, Module, Sizes};
use meshwright_core::tensor::SegmentData;

use crate::state_dict::HfName;

use super::{Family, LanguageModel};

/// A model with the configuration and the tensors of a family: a task trains it.
///
/// Every [`LanguageModel`] is one. Models whose input is not a sequence of tokens, or whose output is not the next
/// token, implement it instead.
pub trait FamilyModel: Model + Module<In: SegmentData> + 'static {
    /// The dim of positions; declared `@ cp` if the ranks of `cp` may share a sequence. A model whose parameters have
    /// it takes one length only.
    type Positions: Whole<Home: SequenceHome>;

    /// Configuration of the model's family, from `config.json` or the flags.
    type Config: Family;

    /// Returns the model's parameters in the family's Hugging Face format; `*` stands for the number of a layer.
    /// Entries of fields that a model leaves out are allowed.
    fn tensor_names(config: &Self::Config) -> Vec<HfName>;

    /// Returns the sizes of the model's dims for a configuration.
    fn dim_sizes(config: &Self::Config) -> Sizes;
}

impl<M: LanguageModel> FamilyModel for M {
    type Positions = M::Seq;
    type Config = <M as LanguageModel>::Config;

    fn tensor_names(config: &Self::Config) -> Vec<HfName> {
        M::hf_names(config)
    }

    fn dim_sizes(config: &Self::Config) -> Sizes {
        M::sizes(config)
    }
}
