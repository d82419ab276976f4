//! Names of the tensors of a gpt-oss in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The parameters of a gpt-oss and the tensors that hold them.
pub const HF_NAMES: &[HfName] = &[
    HfName::same("embed.weight", "model.embed_tokens.weight"),
    HfName::same("blocks.*.attn_norm.weight", "model.layers.*.input_layernorm.weight"),
    HfName::transposed("blocks.*.attn.q.weight", "model.layers.*.self_attn.q_proj.weight"),
    HfName::same("blocks.*.attn.q.bias", "model.layers.*.self_attn.q_proj.bias"),
    HfName::transposed("blocks.*.attn.k.weight", "model.layers.*.self_attn.k_proj.weight"),
    HfName::same("blocks.*.attn.k.bias", "model.layers.*.self_attn.k_proj.bias"),
    HfName::transposed("blocks.*.attn.v.weight", "model.layers.*.self_attn.v_proj.weight"),
    HfName::same("blocks.*.attn.v.bias", "model.layers.*.self_attn.v_proj.bias"),
    HfName::transposed("blocks.*.attn.o.weight", "model.layers.*.self_attn.o_proj.weight"),
    HfName::same("blocks.*.attn.o.bias", "model.layers.*.self_attn.o_proj.bias"),
    HfName::same("blocks.*.attn.sinks.weight", "model.layers.*.self_attn.sinks"),
    HfName::same("blocks.*.moe_norm.weight", "model.layers.*.post_attention_layernorm.weight"),
    HfName::transposed("blocks.*.moe.router.weight", "model.layers.*.mlp.router.weight"),
    HfName::same("blocks.*.moe.router.bias", "model.layers.*.mlp.router.bias"),
    HfName::same("blocks.*.moe.experts.gate_up.weight", "model.layers.*.mlp.experts.gate_up_proj"),
    HfName::same(
        "blocks.*.moe.experts.gate_up_bias.bias",
        "model.layers.*.mlp.experts.gate_up_proj_bias",
    ),
    HfName::same("blocks.*.moe.experts.down.weight", "model.layers.*.mlp.experts.down_proj"),
    HfName::same(
        "blocks.*.moe.experts.down_bias.bias",
        "model.layers.*.mlp.experts.down_proj_bias",
    ),
    HfName::same("norm.weight", "model.norm.weight"),
    HfName::same("head.weight", "lm_head.weight"),
];
