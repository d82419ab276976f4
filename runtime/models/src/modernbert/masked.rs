//! A ModernBERT that predicts masked tokens.

use meshwright::prelude::*;

use super::model::{Batch, Hidden, Seq, Stream, TextTokens, Vocab};
use super::{BACKBONE, Block, DECODER, Embeddings, HEAD, ModernBertConfig, PredictionHead};
use crate::encoders::{MaskedModel, MaskedTokens};
use meshwright_store::family::FamilyModel;

/// The model. Its `forward` runs the pipeline stages in order; each layer of the stack is its own FSDP unit.
#[model]
pub struct ModernBertMaskedLm {
    #[pipeline_stage]
    embed: Embeddings,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    last: PredictionHead,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed.word, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl ModernBertMaskedLm {
    /// Returns the stream before the head.
    pub fn forward(&self, text: &TextTokens) -> Stream;
}

impl FamilyModel for ModernBertMaskedLm {
    type Positions = Seq;
    type Config = ModernBertConfig<MaskedTokens>;

    fn tensor_names(_: &Self::Config) -> Vec<HfName> {
        [BACKBONE, HEAD, DECODER].concat()
    }

    fn dim_sizes(config: &Self::Config) -> Sizes {
        config
            .backbone_sizes()
            .with_flag("tie_word_embeddings", config.tied)
            .with_optional("head.bias", config.decoder_bias)
    }
}

text_encoder!(ModernBertMaskedLm);

impl MaskedModel for ModernBertMaskedLm {
    fn masked_loss(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }
}

impl ModernBertMaskedLm {
    /// Returns the logits of each position, replicated on every rank, from the output of `forward`.
    pub fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}
