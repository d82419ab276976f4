//! Names of the tensors of a T5 in its Hugging Face folders.

use meshwright::prelude::HfName;

use super::T5Config;

/// The embedding, the last norms, and the head of a model that has one of its own.
const ENDS: &[HfName] = &[
    HfName::same("front.source.weight", "shared.weight"),
    HfName::same("bridge.norm.weight", "encoder.final_layer_norm.weight"),
    HfName::same("end.norm.weight", "decoder.final_layer_norm.weight"),
    HfName::same("head.weight", "lm_head.weight"),
];

/// The attentions and norms of the encoder.
const ENCODER: &[HfName] = &[
    HfName::same("encoder.*.attn_norm.weight", "encoder.block.*.layer.0.layer_norm.weight"),
    HfName::transposed("encoder.*.attn.q.weight", "encoder.block.*.layer.0.SelfAttention.q.weight"),
    HfName::transposed("encoder.*.attn.k.weight", "encoder.block.*.layer.0.SelfAttention.k.weight"),
    HfName::transposed("encoder.*.attn.v.weight", "encoder.block.*.layer.0.SelfAttention.v.weight"),
    HfName::transposed("encoder.*.attn.o.weight", "encoder.block.*.layer.0.SelfAttention.o.weight"),
    HfName::same(
        "encoder.*.attn.bias.weight",
        "encoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
    ),
    HfName::same("encoder.*.mlp_norm.weight", "encoder.block.*.layer.1.layer_norm.weight"),
    HfName::transposed(
        "encoder.*.mlp.down.weight",
        "encoder.block.*.layer.1.DenseReluDense.wo.weight",
    ),
];

/// The attentions and norms of the decoder.
const DECODER: &[HfName] = &[
    HfName::same("decoder.*.attn_norm.weight", "decoder.block.*.layer.0.layer_norm.weight"),
    HfName::transposed("decoder.*.attn.q.weight", "decoder.block.*.layer.0.SelfAttention.q.weight"),
    HfName::transposed("decoder.*.attn.k.weight", "decoder.block.*.layer.0.SelfAttention.k.weight"),
    HfName::transposed("decoder.*.attn.v.weight", "decoder.block.*.layer.0.SelfAttention.v.weight"),
    HfName::transposed("decoder.*.attn.o.weight", "decoder.block.*.layer.0.SelfAttention.o.weight"),
    HfName::same(
        "decoder.*.attn.bias.weight",
        "decoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
    ),
    HfName::same("decoder.*.cross_norm.weight", "decoder.block.*.layer.1.layer_norm.weight"),
    HfName::transposed(
        "decoder.*.cross.q.weight",
        "decoder.block.*.layer.1.EncDecAttention.q.weight",
    ),
    HfName::transposed(
        "decoder.*.cross.k.weight",
        "decoder.block.*.layer.1.EncDecAttention.k.weight",
    ),
    HfName::transposed(
        "decoder.*.cross.v.weight",
        "decoder.block.*.layer.1.EncDecAttention.v.weight",
    ),
    HfName::transposed(
        "decoder.*.cross.o.weight",
        "decoder.block.*.layer.1.EncDecAttention.o.weight",
    ),
    HfName::same("decoder.*.mlp_norm.weight", "decoder.block.*.layer.2.layer_norm.weight"),
    HfName::transposed(
        "decoder.*.mlp.down.weight",
        "decoder.block.*.layer.2.DenseReluDense.wo.weight",
    ),
];

/// MLPs with a ReLU.
const PLAIN: &[HfName] = &[
    HfName::transposed(
        "encoder.*.mlp.up.weight",
        "encoder.block.*.layer.1.DenseReluDense.wi.weight",
    ),
    HfName::transposed(
        "decoder.*.mlp.up.weight",
        "decoder.block.*.layer.2.DenseReluDense.wi.weight",
    ),
];

/// Gated MLPs.
const GATED: &[HfName] = &[
    HfName::transposed(
        "encoder.*.mlp.gate.weight",
        "encoder.block.*.layer.1.DenseReluDense.wi_0.weight",
    ),
    HfName::transposed(
        "encoder.*.mlp.up.weight",
        "encoder.block.*.layer.1.DenseReluDense.wi_1.weight",
    ),
    HfName::transposed(
        "decoder.*.mlp.gate.weight",
        "decoder.block.*.layer.2.DenseReluDense.wi_0.weight",
    ),
    HfName::transposed(
        "decoder.*.mlp.up.weight",
        "decoder.block.*.layer.2.DenseReluDense.wi_1.weight",
    ),
];

/// Returns the parameters of a T5 and the tensors that hold them.
pub fn hf_names(config: &T5Config) -> Vec<HfName> {
    [ENDS, ENCODER, DECODER, if config.gated { GATED } else { PLAIN }].concat()
}
