//! Names of the tensors of an OLMo 2 in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The parameters of an OLMo 2 and the tensors that hold them.
pub const HF_NAMES: &[HfName] = &[
    HfName::same("embed.weight", "model.embed_tokens.weight"),
    HfName::transposed("blocks.*.attn.q.weight", "model.layers.*.self_attn.q_proj.weight"),
    HfName::same("blocks.*.attn.q.bias", "model.layers.*.self_attn.q_proj.bias"),
    HfName::same("blocks.*.attn.q_norm.weight", "model.layers.*.self_attn.q_norm.weight"),
    HfName::transposed("blocks.*.attn.k.weight", "model.layers.*.self_attn.k_proj.weight"),
    HfName::same("blocks.*.attn.k.bias", "model.layers.*.self_attn.k_proj.bias"),
    HfName::same("blocks.*.attn.k_norm.weight", "model.layers.*.self_attn.k_norm.weight"),
    HfName::transposed("blocks.*.attn.v.weight", "model.layers.*.self_attn.v_proj.weight"),
    HfName::same("blocks.*.attn.v.bias", "model.layers.*.self_attn.v_proj.bias"),
    HfName::transposed("blocks.*.attn.o.weight", "model.layers.*.self_attn.o_proj.weight"),
    HfName::same("blocks.*.attn.o.bias", "model.layers.*.self_attn.o_proj.bias"),
    HfName::same(
        "blocks.*.post_attn_norm.weight",
        "model.layers.*.post_attention_layernorm.weight",
    ),
    HfName::transposed("blocks.*.mlp.gate.weight", "model.layers.*.mlp.gate_proj.weight"),
    HfName::transposed("blocks.*.mlp.up.weight", "model.layers.*.mlp.up_proj.weight"),
    HfName::transposed("blocks.*.mlp.down.weight", "model.layers.*.mlp.down_proj.weight"),
    HfName::same(
        "blocks.*.post_mlp_norm.weight",
        "model.layers.*.post_feedforward_layernorm.weight",
    ),
    HfName::same("norm.weight", "model.norm.weight"),
    HfName::same("head.weight", "lm_head.weight"),
];
