//! BERTs that predict labels of texts, or of tokens.

use meshwright::prelude::*;

use super::model::{Batch, Classes, Flow, Hidden, Seq, Stream, TextTokens};
use super::{BertConfig, Block, Embeddings};
use crate::encoders::{
    ClassLabels, ClassOfSequence, ClassOfToken, SequenceClassifier, TextEncoder, TokenClassifier,
};
use meshwright_store::family::FamilyModel;

/// One vector for each text: that of its first token, through a layer.
#[model]
pub struct Pooler {
    dense: Affine<Hidden, Hidden>,
    dropout: Dropout,
}

#[forward]
impl Pooler {
    /// Returns the vectors that the classifier reads.
    pub fn forward(&self, (x, _): &Flow) -> Tensor<(Batch, Hidden)> {
        let first = x.gather(Seq).select(Seq, 0).all_reduce();
        self.dropout.forward(&self.dense.forward(&first).tanh())
    }
}

/// Classifier of texts. Its `forward` runs the pipeline stages in order.
#[model]
pub struct BertClassifier {
    #[pipeline_stage]
    embed: Embeddings,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    pooler: Pooler,
    #[pipeline_stage(last)]
    classifier: LmHead<Hidden, Classes>,
}

#[forward]
impl BertClassifier {
    /// Returns a vector for each text.
    pub fn forward(&self, text: &TextTokens) -> Tensor<(Batch, Hidden)>;
}

/// The stream of a classifier of tokens, with dropout.
#[model]
pub struct Dropped {
    dropout: Dropout,
}

#[forward]
impl Dropped {
    /// Returns the stream that the classifier reads.
    pub fn forward(&self, (x, _): &Flow) -> Stream {
        self.dropout.forward(x)
    }
}

/// Classifier of tokens. Its `forward` runs the pipeline stages in order.
#[model]
pub struct BertTokenClassifier {
    #[pipeline_stage]
    embed: Embeddings,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    last: Dropped,
    #[pipeline_stage(last)]
    classifier: LmHead<Hidden, Classes>,
}

#[forward]
impl BertTokenClassifier {
    /// Returns the stream before the classifier.
    pub fn forward(&self, text: &TextTokens) -> Stream;
}

/// Implements what both classifiers have in common.
macro_rules! classifier {
    ($model:ty, $use:ty, $dropout:literal, $names:expr) => {
        impl FamilyModel for $model {
            type Positions = Seq;
            type Config = BertConfig<$use>;

            fn tensor_names(_: &Self::Config) -> Vec<HfName> {
                $names.concat()
            }

            fn dim_sizes(config: &Self::Config) -> Sizes {
                config
                    .backbone_sizes()
                    .with(Classes, config.labels.count())
                    .with_optional("classifier.bias", true)
                    .with_dropout($dropout, config.dropout.of_classifier() as f32)
            }
        }

        impl TextEncoder for $model {
            type Batch = Batch;
            type Seq = Seq;

            fn vocab(config: &Self::Config) -> usize {
                config.vocab
            }

            fn token_types(config: &Self::Config) -> usize {
                config.token_types
            }

            fn padding_token(config: &Self::Config) -> u32 {
                config.padding.unwrap_or(0) as u32
            }

            fn text_input(
                ids: Tokens<(Batch, Seq)>,
                types: Tokens<(Batch, Seq)>,
                padding: Padding<(Batch, Seq)>,
            ) -> TextTokens {
                (ids, types, padding)
            }
        }
    };
}

classifier!(
    BertClassifier,
    ClassOfSequence,
    "pooler.dropout",
    [super::BACKBONE, super::POOLER, super::CLASSIFIER]
);
classifier!(
    BertTokenClassifier,
    ClassOfToken,
    "last.dropout",
    [super::BACKBONE, super::CLASSIFIER]
);

impl SequenceClassifier for BertClassifier {
    type Classes = Classes;

    fn labels(config: &Self::Config) -> &ClassLabels {
        &config.labels
    }

    fn class_loss(
        &self,
        x: &Tensor<(Batch, Hidden)>,
        labels: &Targets<(Batch,)>,
    ) -> Loss<(Batch,)> {
        self.classifier.loss(x, labels)
    }

    fn class_logits(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Classes)> {
        self.classifier.logits(x)
    }
}

impl TokenClassifier for BertTokenClassifier {
    fn labels(config: &Self::Config) -> &ClassLabels {
        &config.labels
    }

    fn token_loss(&self, x: &Stream, labels: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.classifier.loss(&x.gather(Seq), labels)
    }
}

impl BertTokenClassifier {
    /// Returns the logits of each position from the output of `forward`.
    pub fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Classes)> {
        self.classifier.logits(&x.gather(Seq))
    }
}
