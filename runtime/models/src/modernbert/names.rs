//! Names of the tensors of a ModernBERT in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The encoder without its last norm.
pub const BACKBONE: &[HfName] = &[
    HfName::same("embed.word.weight", "model.embeddings.tok_embeddings.weight"),
    HfName::same("embed.norm.weight", "model.embeddings.norm.weight"),
    HfName::same("embed.norm.bias", "model.embeddings.norm.bias"),
    HfName::same("blocks.*.attn_norm.weight", "model.layers.*.attn_norm.weight"),
    HfName::same("blocks.*.attn_norm.bias", "model.layers.*.attn_norm.bias"),
    HfName::transposed("blocks.*.attn.q.weight", "model.layers.*.attn.Wqkv.weight").fused(),
    HfName::transposed("blocks.*.attn.k.weight", "model.layers.*.attn.Wqkv.weight").fused(),
    HfName::transposed("blocks.*.attn.v.weight", "model.layers.*.attn.Wqkv.weight").fused(),
    HfName::same("blocks.*.attn.q.bias", "model.layers.*.attn.Wqkv.bias").fused(),
    HfName::same("blocks.*.attn.k.bias", "model.layers.*.attn.Wqkv.bias").fused(),
    HfName::same("blocks.*.attn.v.bias", "model.layers.*.attn.Wqkv.bias").fused(),
    HfName::transposed("blocks.*.attn.o.weight", "model.layers.*.attn.Wo.weight"),
    HfName::same("blocks.*.attn.o.bias", "model.layers.*.attn.Wo.bias"),
    HfName::same("blocks.*.mlp_norm.weight", "model.layers.*.mlp_norm.weight"),
    HfName::same("blocks.*.mlp_norm.bias", "model.layers.*.mlp_norm.bias"),
    HfName::transposed("blocks.*.mlp.gate.weight", "model.layers.*.mlp.Wi.weight").fused(),
    HfName::transposed("blocks.*.mlp.up.weight", "model.layers.*.mlp.Wi.weight").fused(),
    HfName::same("blocks.*.mlp.gate.bias", "model.layers.*.mlp.Wi.bias").fused(),
    HfName::same("blocks.*.mlp.up.bias", "model.layers.*.mlp.Wi.bias").fused(),
    HfName::transposed("blocks.*.mlp.down.weight", "model.layers.*.mlp.Wo.weight"),
    HfName::same("blocks.*.mlp.down.bias", "model.layers.*.mlp.Wo.bias"),
];

/// The layers between the blocks and the weight of a head, for each token.
pub const HEAD: &[HfName] = &[
    HfName::same("last.final_norm.weight", "model.final_norm.weight"),
    HfName::same("last.final_norm.bias", "model.final_norm.bias"),
    HfName::transposed("last.dense.weight", "head.dense.weight"),
    HfName::same("last.dense.bias", "head.dense.bias"),
    HfName::same("last.norm.weight", "head.norm.weight"),
    HfName::same("last.norm.bias", "head.norm.bias"),
];

/// The same for one vector of each text.
pub const POOLED_HEAD: &[HfName] = &[
    HfName::same("pooled.final_norm.weight", "model.final_norm.weight"),
    HfName::same("pooled.final_norm.bias", "model.final_norm.bias"),
    HfName::transposed("pooled.dense.weight", "head.dense.weight"),
    HfName::same("pooled.dense.bias", "head.dense.bias"),
    HfName::same("pooled.norm.weight", "head.norm.weight"),
    HfName::same("pooled.norm.bias", "head.norm.bias"),
];

/// The weight over all tokens.
pub const DECODER: &[HfName] =
    &[HfName::same("head.weight", "decoder.weight"), HfName::same("head.bias", "decoder.bias")];

/// The weight over all labels.
pub const CLASSIFIER: &[HfName] = &[
    HfName::same("classifier.weight", "classifier.weight"),
    HfName::same("classifier.bias", "classifier.bias"),
];
