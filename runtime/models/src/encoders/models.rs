//! Models that tasks on texts train.

use meshwright_core::layout::{BatchDim, SequenceHome, Whole};
use meshwright_core::nn::layers::Padding;
use meshwright_core::tensor::{Loss, Targets, Tensor, Tokens};
use meshwright_store::family::FamilyModel;

use super::ClassLabels;

/// An encoder of texts.
pub trait TextEncoder: FamilyModel {
    /// The dim of texts, declared `@ data`.
    type Batch: BatchDim;
    /// The dim of positions.
    type Seq: Whole<Home: SequenceHome>;

    /// Returns the number of token ids.
    fn vocab(config: &Self::Config) -> usize;

    /// Returns the number of token types, such as first and second text; 1 if a model does not tell them apart.
    fn token_types(config: &Self::Config) -> usize;

    /// Returns the token of padding.
    fn padding_token(config: &Self::Config) -> u32;

    /// Returns the input of texts: their tokens, the type of each, and the positions that are not padding.
    fn text_input(
        ids: Tokens<(Self::Batch, Self::Seq)>,
        types: Tokens<(Self::Batch, Self::Seq)>,
        padding: Padding<(Self::Batch, Self::Seq)>,
    ) -> Self::In;
}

/// An encoder that predicts masked tokens.
pub trait MaskedModel: TextEncoder {
    /// Returns the mean cross-entropy of the targets that are not ignored.
    fn masked_loss(
        &self,
        output: &Self::Out,
        targets: &Targets<(Self::Batch, Self::Seq)>,
    ) -> Loss<(Self::Batch, Self::Seq)>;
}

/// An encoder that predicts a label, or a number, of each text.
pub trait SequenceClassifier: TextEncoder {
    /// The dim of labels.
    type Classes: Whole;

    /// Returns the labels.
    fn labels(config: &Self::Config) -> &ClassLabels;

    /// Returns the labels, to be changed.
    fn labels_mut(config: &mut Self::Config) -> &mut ClassLabels;

    /// Returns the mean cross-entropy of the labels.
    fn class_loss(
        &self,
        output: &Self::Out,
        labels: &Targets<(Self::Batch,)>,
    ) -> Loss<(Self::Batch,)>;

    /// Returns the number that a model with a single output predicts of each text.
    fn number(&self, output: &Self::Out) -> Tensor<(Self::Batch,)>;

    /// Returns a logit of each label.
    fn class_logits(&self, output: &Self::Out) -> Tensor<(Self::Batch, Self::Classes)>;
}

/// An encoder that predicts a label of each token.
pub trait TokenClassifier: TextEncoder {
    /// Returns the labels.
    fn labels(config: &Self::Config) -> &ClassLabels;

    /// Returns the labels, to be changed.
    fn labels_mut(config: &mut Self::Config) -> &mut ClassLabels;

    /// Returns the mean cross-entropy of the labels that are not ignored.
    fn token_loss(
        &self,
        output: &Self::Out,
        labels: &Targets<(Self::Batch, Self::Seq)>,
    ) -> Loss<(Self::Batch, Self::Seq)>;
}
