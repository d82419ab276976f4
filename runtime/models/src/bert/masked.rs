//! A BERT that predicts masked tokens.

use meshwright::prelude::*;

use super::model::{Batch, Flow, Hidden, Seq, Stream, TextTokens, Vocab};
use super::{BertConfig, Block, Embeddings};
use crate::encoders::{MaskedModel, MaskedTokens};
use meshwright_store::family::FamilyModel;

/// The layer before the head.
#[model]
pub struct Transform {
    dense: Affine<Hidden, Hidden>,
    norm: LayerNorm<Hidden>,
}

#[forward]
impl Transform {
    /// Returns the stream that the head reads.
    pub fn forward(&self, (x, _): &Flow) -> Stream {
        self.norm.forward(&self.dense.forward(x).gelu())
    }
}

/// The model. Its `forward` runs the pipeline stages in order; each layer of the stack is its own FSDP unit.
#[model]
pub struct BertMaskedLm {
    #[pipeline_stage]
    embed: Embeddings,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    transform: Transform,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed.word)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl BertMaskedLm {
    /// Returns the stream before the head.
    pub fn forward(&self, text: &TextTokens) -> Stream;
}

impl FamilyModel for BertMaskedLm {
    type Positions = Seq;
    type Config = BertConfig<MaskedTokens>;

    fn tensor_names(_: &Self::Config) -> Vec<HfName> {
        [super::BACKBONE, super::MASKED_HEAD].concat()
    }

    fn dim_sizes(config: &Self::Config) -> Sizes {
        config.backbone_sizes().with_optional("head.bias", true)
    }
}

text_encoder!(BertMaskedLm);

impl MaskedModel for BertMaskedLm {
    fn masked_loss(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }
}

impl BertMaskedLm {
    /// Returns the logits of each position, replicated on every rank, from the output of `forward`.
    pub fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}
