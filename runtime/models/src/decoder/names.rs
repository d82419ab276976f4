//! Names of the tensors of decoders in their Hugging Face folders.

use meshwright::prelude::HfName;

/// Embedding, last norm and head.
pub const ENDS: &[HfName] = &[
    HfName::same("embed.weight", "model.embed_tokens.weight"),
    HfName::same("norm.weight", "model.norm.weight"),
    HfName::same("head.weight", "lm_head.weight"),
];

/// Parts of all blocks.
pub const BLOCK: &[HfName] = &[
    HfName::same("blocks.*.attn_norm.weight", "model.layers.*.input_layernorm.weight"),
    HfName::transposed("blocks.*.attn.o.weight", "model.layers.*.self_attn.o_proj.weight"),
    HfName::same("blocks.*.mlp_norm.weight", "model.layers.*.post_attention_layernorm.weight"),
    HfName::transposed("blocks.*.mlp.down.weight", "model.layers.*.mlp.down_proj.weight"),
];

/// Queries, keys and values.
pub const QKV: &[HfName] = &[
    HfName::transposed("blocks.*.attn.q.weight", "model.layers.*.self_attn.q_proj.weight"),
    HfName::transposed("blocks.*.attn.k.weight", "model.layers.*.self_attn.k_proj.weight"),
    HfName::transposed("blocks.*.attn.v.weight", "model.layers.*.self_attn.v_proj.weight"),
];

/// The two products of a gated feed-forward.
pub const GATED: &[HfName] = &[
    HfName::transposed("blocks.*.mlp.gate.weight", "model.layers.*.mlp.gate_proj.weight"),
    HfName::transposed("blocks.*.mlp.up.weight", "model.layers.*.mlp.up_proj.weight"),
];

/// Queries, keys and values in one tensor, and both products of the feed-forward in another.
pub const FUSED: &[HfName] = &[
    HfName::transposed("blocks.*.attn.q.weight", "model.layers.*.self_attn.qkv_proj.weight")
        .fused(),
    HfName::transposed("blocks.*.attn.k.weight", "model.layers.*.self_attn.qkv_proj.weight")
        .fused(),
    HfName::transposed("blocks.*.attn.v.weight", "model.layers.*.self_attn.qkv_proj.weight")
        .fused(),
    HfName::transposed("blocks.*.mlp.gate.weight", "model.layers.*.mlp.gate_up_proj.weight")
        .fused(),
    HfName::transposed("blocks.*.mlp.up.weight", "model.layers.*.mlp.gate_up_proj.weight").fused(),
];

/// Biases of queries, keys and values.
pub const QKV_BIASES: &[HfName] = &[
    HfName::same("blocks.*.attn.q.bias", "model.layers.*.self_attn.q_proj.bias"),
    HfName::same("blocks.*.attn.k.bias", "model.layers.*.self_attn.k_proj.bias"),
    HfName::same("blocks.*.attn.v.bias", "model.layers.*.self_attn.v_proj.bias"),
];

/// The bias of the output of the attention.
pub const OUTPUT_BIAS: &[HfName] =
    &[HfName::same("blocks.*.attn.o.bias", "model.layers.*.self_attn.o_proj.bias")];

/// Biases of the feed-forward.
pub const MLP_BIASES: &[HfName] = &[
    HfName::same("blocks.*.mlp.gate.bias", "model.layers.*.mlp.gate_proj.bias"),
    HfName::same("blocks.*.mlp.up.bias", "model.layers.*.mlp.up_proj.bias"),
    HfName::same("blocks.*.mlp.down.bias", "model.layers.*.mlp.down_proj.bias"),
];

/// Norms of queries and keys.
pub const QK_NORMS: &[HfName] = &[
    HfName::same("blocks.*.attn.q_norm.weight", "model.layers.*.self_attn.q_norm.weight"),
    HfName::same("blocks.*.attn.k_norm.weight", "model.layers.*.self_attn.k_norm.weight"),
];
