//! ModernBERTs that predict labels of texts, or of tokens.

use meshwright::prelude::*;

use super::model::{Batch, Classes, Flow, Hidden, Seq, Stream, TextTokens};
use super::{
    BACKBONE, Block, CLASSIFIER, Embeddings, HEAD, ModernBertConfig, POOLED_HEAD, Pooling,
    PredictionHead,
};
use crate::encoders::{ClassOfSequence, ClassOfToken, sequence_classifier, token_classifier};
use meshwright_store::family::FamilyModel;

/// One vector for each text, and the layers between it and the weight of the classifier.
#[model]
pub struct PooledHead {
    final_norm: LayerNorm<Hidden>,
    pooling: Pooling,
    dense: Affine<Hidden, Hidden>,
    norm: LayerNorm<Hidden>,
}

#[forward]
impl PooledHead {
    /// Returns the vectors that the classifier reads.
    pub fn forward(&self, (x, padding): &Flow) -> Tensor<(Batch, Hidden)> {
        let x = self.final_norm.forward(x).gather(Seq);
        let pooled = match self.pooling {
            Pooling::First => x.select(Seq, 0).all_reduce(),
            Pooling::Mean => {
                let positions = x.sizes()[1];
                x.across().mean_where(Seq, &padding.valid(positions))
            }
        };
        self.norm.forward(&self.dense.forward(&pooled).gelu())
    }
}

/// Classifier of texts. Its `forward` runs the pipeline stages in order.
#[model]
pub struct ModernBertClassifier {
    #[pipeline_stage]
    embed: Embeddings,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    pooled: PooledHead,
    #[pipeline_stage(last)]
    classifier: LmHead<Hidden, Classes>,
}

#[forward]
impl ModernBertClassifier {
    /// Returns a vector for each text.
    pub fn forward(&self, text: &TextTokens) -> Tensor<(Batch, Hidden)>;
}

impl FamilyModel for ModernBertClassifier {
    type Positions = Seq;
    type Config = ModernBertConfig<ClassOfSequence>;

    fn tensor_names(_: &Self::Config) -> Vec<HfName> {
        [BACKBONE, POOLED_HEAD, CLASSIFIER].concat()
    }

    fn dim_sizes(config: &Self::Config) -> Sizes {
        config.classifier_sizes().with_flag(Pooling::FLAG, config.pooling == Pooling::Mean)
    }
}

text_encoder!(ModernBertClassifier);

sequence_classifier!(ModernBertClassifier);

/// Classifier of tokens. Its `forward` runs the pipeline stages in order.
#[model]
pub struct ModernBertTokenClassifier {
    #[pipeline_stage]
    embed: Embeddings,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    last: PredictionHead,
    #[pipeline_stage(last)]
    classifier: LmHead<Hidden, Classes>,
}

#[forward]
impl ModernBertTokenClassifier {
    /// Returns the stream before the classifier.
    pub fn forward(&self, text: &TextTokens) -> Stream;
}

impl FamilyModel for ModernBertTokenClassifier {
    type Positions = Seq;
    type Config = ModernBertConfig<ClassOfToken>;

    fn tensor_names(_: &Self::Config) -> Vec<HfName> {
        [BACKBONE, HEAD, CLASSIFIER].concat()
    }

    fn dim_sizes(config: &Self::Config) -> Sizes {
        config.classifier_sizes()
    }
}

text_encoder!(ModernBertTokenClassifier);

token_classifier!(ModernBertTokenClassifier);
