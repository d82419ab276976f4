//! A ViT that classifies images: patches, a class token and learned positions, on a sequence-parallel residual stream.

use meshwright::prelude::*;
use meshwright_store::family::FamilyModel;

use super::{VitConfig, tensor_names};

dims! {
    /// Images of the global batch, distributed over the data axes.
    Batch @ data,
    /// Patches of an image.
    Patches,
    /// Values of a patch.
    Pixels,
    /// The class token.
    One,
    /// The class token, and the patches behind it.
    Positions,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the MLP.
    Ffn,
    /// Attention heads.
    Heads,
    /// Elements of one head.
    HeadDim,
    /// Classes of images.
    Classes,
}

/// Images as the values of their patches.
pub type Images = Tensor<(Batch, Patches, Pixels)>;

/// The residual stream, which is sequence-parallel outside of tensor-parallel regions.
pub type Stream = Tensor<(Batch, Split<Positions, Tp>, Hidden)>;

/// A class token and patches with their positions.
#[model]
pub struct Embeddings {
    patches: Linear<Pixels, Hidden>,
    patches_bias: Bias<Hidden>,
    cls: Param<(One, Hidden)>,
    positions: Param<(Positions, Hidden)>,
    dropout: Dropout,
}

#[forward]
impl Embeddings {
    /// Returns the stream before the first block.
    pub fn forward(&self, images: &Images) -> Stream {
        let patches = self.patches_bias.forward(&self.patches.forward(images));
        let cls = self.cls.tensor().expand_as(Batch, &patches);
        let x = cls.concat(&patches, (One, Patches), Positions) + &self.positions;
        self.dropout.forward(&x).slice(Positions, Tp)
    }
}

/// MLP with biases.
#[model]
pub struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up_bias: Bias<Ffn>,
    #[sharded(tp = "row", scatter = Positions)]
    down: Linear<Ffn, Hidden>,
    down_bias: Bias<Hidden>,
    dropout: Dropout,
}

#[forward]
impl Mlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let inside = self.up_bias.forward(&self.up.forward(x)).gelu();
        self.dropout.forward(&self.down_bias.forward(&self.down.forward(&inside)))
    }
}

/// Attention of all positions to all positions. Some models have no biases of queries, keys and values.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (Heads, HeadDim)>,
    /// The attention itself, without projections.
    pub core: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Positions)]
    o: Linear<(Heads, HeadDim), Hidden>,
    o_bias: Bias<Hidden>,
    dropout: Dropout,
}

#[forward]
impl SelfAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let attended = self.core.forward(&(q, k, v));
        self.dropout.forward(&self.o_bias.forward(&self.o.forward(&attended)))
    }
}

/// Transformer block.
#[model]
pub struct Block {
    attn_norm: LayerNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    mlp_norm: LayerNorm<Hidden>,
    /// The feed-forward. Matmul results are saved; GELU, which is as wide but far cheaper, is recomputed.
    #[recompute(save = [up, down])]
    pub mlp: Mlp,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.mlp.forward(&self.mlp_norm.forward(&x))
    }
}

/// The classifier, which reads the class token.
#[model]
pub struct Classifier {
    linear: Linear<Hidden, Classes>,
    bias: Bias<Classes>,
    loss: CrossEntropy<Classes>,
}

impl Classifier {
    /// Returns a logit for each class, from the stream after the last norm.
    pub fn logits(&self, x: &Stream) -> Tensor<(Batch, Classes)> {
        let cls = x.select(Positions, 0).all_reduce();
        self.bias.forward(&self.linear.forward(&cls))
    }

    /// Returns the mean cross-entropy of predicting the class of each image.
    pub fn loss(&self, x: &Stream, labels: &Targets<(Batch,)>) -> Loss<(Batch,)> {
        self.loss.forward(&self.logits(x), labels)
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct Vit {
    #[pipeline_stage]
    embed: Embeddings,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: LayerNorm<Hidden>,
    /// The classifier.
    #[pipeline_stage(last)]
    pub classifier: Classifier,
}

#[forward]
impl Vit {
    /// Returns the stream before the classifier.
    pub fn forward(&self, images: &Images) -> Stream;
}

impl FamilyModel for Vit {
    type Positions = Positions;
    type Config = VitConfig;

    fn tensor_names(config: &VitConfig) -> Vec<HfName> {
        tensor_names(config)
    }

    fn dim_sizes(config: &VitConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Pixels, config.pixels())
            .with(One, 1)
            .with(Positions, config.positions())
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(HeadDim, config.head_dim())
            .with(Classes, config.classes)
            .with(Layers, config.layers)
            .with_optional("bias", config.qkv_bias);
        sizes.norm_eps = config.norm_eps as f32;
        sizes.attention.dropout = config.attention_dropout as f32;
        let rate = config.dropout as f32;
        sizes
            .with_dropout("embed.dropout", rate)
            .with_dropout("attn.dropout", rate)
            .with_dropout("mlp.dropout", rate)
    }
}
