//! Models that the trainer can train.

use crate::state_dict::HfName;
use meshwright_core::layout::{BatchDim, Local, SequenceHome, Whole};
use meshwright_core::nn::{Model, Module, Sizes};
use meshwright_core::tensor::{Loss, Targets, Tensor, Tokens};

use super::Family;

/// A model that predicts the next token; the trainer trains it.
///
/// Its `forward` takes tokens. Loss and logits are computed from the output of `forward`, so that a pipeline can
/// compute them on its last stage.
pub trait LanguageModel:
    Model
    + Module<In = Tokens<(<Self as LanguageModel>::Batch, <Self as LanguageModel>::Seq)>>
    + 'static
{
    /// The dim of sequences, declared `@ data`.
    type Batch: BatchDim;
    /// The dim of positions; declared `@ cp` if the ranks of `cp` may share a sequence.
    type Seq: Whole<Home: SequenceHome>;
    /// The dim of token ids.
    type Vocab: Local;

    /// Configuration of the model's family, from `config.json` or the flags.
    type Config: Family;

    /// The model's parameters in the family's Hugging Face format; `*` stands for the number of a layer. Names, shapes
    /// and order of the tensors in a folder follow from this table and the declared parameters.
    const HF_NAMES: &'static [HfName] = &[];

    /// Returns the names of the tensors of a configuration: by default [`HF_NAMES`](Self::HF_NAMES). Families that
    /// share a struct may have other names for its parameters. Entries of fields that a model leaves out are allowed.
    fn hf_names(config: &Self::Config) -> Vec<HfName> {
        let _ = config;
        Self::HF_NAMES.to_vec()
    }

    /// Returns the sizes of the model's dims for a configuration.
    ///
    /// A model with parameters over its sequence dim gives that dim its size, and can be trained with that `--seq`
    /// only; other models leave it out.
    fn sizes(config: &Self::Config) -> Sizes;

    /// Returns the mean cross-entropy of predicting `targets[b, s]` after `tokens[b, ..=s]`, from the output of
    /// `forward` for these tokens.
    fn loss_of_output(
        &self,
        output: &Self::Out,
        targets: &Targets<(Self::Batch, Self::Seq)>,
    ) -> Loss<(Self::Batch, Self::Seq)>;

    /// Returns the logits after each token, replicated on every rank, from the output of `forward`.
    fn logits_of_output(&self, output: &Self::Out)
    -> Tensor<(Self::Batch, Self::Seq, Self::Vocab)>;

    /// Returns the mean cross-entropy of predicting `targets[b, s]` after `tokens[b, ..=s]`.
    fn loss(
        &self,
        tokens: &Tokens<(Self::Batch, Self::Seq)>,
        targets: &Targets<(Self::Batch, Self::Seq)>,
    ) -> Loss<(Self::Batch, Self::Seq)> {
        self.loss_of_output(&self.forward(tokens), targets)
    }

    /// Returns the logits after each token, replicated on every rank.
    fn logits(
        &self,
        tokens: &Tokens<(Self::Batch, Self::Seq)>,
    ) -> Tensor<(Self::Batch, Self::Seq, Self::Vocab)> {
        self.logits_of_output(&self.forward(tokens))
    }
}
