//! ModernBERTs that predict labels of texts, or of tokens.

use meshwright::prelude::*;

use super::model::{Batch, Classes, Flow, Hidden, Seq, Stream, TextTokens};
use super::{
    BACKBONE, Block, CLASSIFIER, Embeddings, HEAD, ModernBertConfig, POOLED_HEAD, Pooling,
    PredictionHead,
};
use crate::encoders::{
    ClassLabels, ClassOfSequence, ClassOfToken, SequenceClassifier, TokenClassifier,
};
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

impl SequenceClassifier for ModernBertClassifier {
    type Classes = Classes;

    fn labels(config: &Self::Config) -> &ClassLabels {
        &config.labels
    }

    fn labels_mut(config: &mut Self::Config) -> &mut ClassLabels {
        &mut config.labels
    }

    fn class_loss(
        &self,
        x: &Tensor<(Batch, Hidden)>,
        labels: &Targets<(Batch,)>,
    ) -> Loss<(Batch,)> {
        self.classifier.loss(x, labels)
    }

    fn number(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch,)> {
        self.classifier.logits(x).select(Classes, 0)
    }

    fn class_logits(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Classes)> {
        self.classifier.logits(x)
    }
}

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

impl TokenClassifier for ModernBertTokenClassifier {
    fn labels(config: &Self::Config) -> &ClassLabels {
        &config.labels
    }

    fn labels_mut(config: &mut Self::Config) -> &mut ClassLabels {
        &mut config.labels
    }

    fn token_loss(&self, x: &Stream, labels: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.classifier.loss(&x.gather(Seq), labels)
    }
}

impl ModernBertTokenClassifier {
    /// Returns the logits of each position from the output of `forward`.
    pub fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Classes)> {
        self.classifier.logits(&x.gather(Seq))
    }
}
