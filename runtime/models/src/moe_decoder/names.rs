//! Names of the tensors of a Qwen3-MoE in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The parameters of a Qwen3-MoE and the tensors that hold them.
pub const HF_NAMES: &[HfName] = &[
    HfName::same("embed.weight", "model.embed_tokens.weight"),
    HfName::same("blocks.*.attn_norm.weight", "model.layers.*.input_layernorm.weight"),
    HfName::transposed("blocks.*.attn.q.weight", "model.layers.*.self_attn.q_proj.weight"),
    HfName::transposed("blocks.*.attn.k.weight", "model.layers.*.self_attn.k_proj.weight"),
    HfName::transposed("blocks.*.attn.v.weight", "model.layers.*.self_attn.v_proj.weight"),
    HfName::transposed("blocks.*.attn.o.weight", "model.layers.*.self_attn.o_proj.weight"),
    HfName::same("blocks.*.attn.q_norm.weight", "model.layers.*.self_attn.q_norm.weight"),
    HfName::same("blocks.*.attn.k_norm.weight", "model.layers.*.self_attn.k_norm.weight"),
    HfName::same("blocks.*.moe_norm.weight", "model.layers.*.post_attention_layernorm.weight"),
    HfName::transposed("blocks.*.moe.router.weight", "model.layers.*.mlp.gate.weight"),
    HfName::stacked(
        "blocks.*.moe.experts.gate.weight",
        "model.layers.*.mlp.experts.*.gate_proj.weight",
    ),
    HfName::stacked(
        "blocks.*.moe.experts.up.weight",
        "model.layers.*.mlp.experts.*.up_proj.weight",
    ),
    HfName::stacked(
        "blocks.*.moe.experts.down.weight",
        "model.layers.*.mlp.experts.*.down_proj.weight",
    ),
    HfName::same("norm.weight", "model.norm.weight"),
    HfName::same("head.weight", "lm_head.weight"),
];
