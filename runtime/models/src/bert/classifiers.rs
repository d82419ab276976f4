//! BERTs that predict labels of texts, or of tokens.

use meshwright::prelude::*;

use super::model::{Batch, Classes, Flow, Hidden, Seq, Stream, TextTokens};
use super::{BACKBONE, BertConfig, Block, CLASSIFIER, Embeddings, POOLER};
use crate::encoders::{ClassOfSequence, ClassOfToken, sequence_classifier, token_classifier};
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

impl FamilyModel for BertClassifier {
    type Positions = Seq;
    type Config = BertConfig<ClassOfSequence>;

    fn tensor_names(_: &Self::Config) -> Vec<HfName> {
        [BACKBONE, POOLER, CLASSIFIER].concat()
    }

    fn dim_sizes(config: &Self::Config) -> Sizes {
        config.classifier_sizes("pooler.dropout")
    }
}

text_encoder!(BertClassifier);

sequence_classifier!(BertClassifier);

impl FamilyModel for BertTokenClassifier {
    type Positions = Seq;
    type Config = BertConfig<ClassOfToken>;

    fn tensor_names(_: &Self::Config) -> Vec<HfName> {
        [BACKBONE, CLASSIFIER].concat()
    }

    fn dim_sizes(config: &Self::Config) -> Sizes {
        config.classifier_sizes("last.dropout")
    }
}

text_encoder!(BertTokenClassifier);

token_classifier!(BertTokenClassifier);
