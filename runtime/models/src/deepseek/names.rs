//! Names of the tensors of a DeepSeek-V3 in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The parameters of a DeepSeek-V3 and the tensors that hold them.
pub const HF_NAMES: &[HfName] = &[
    HfName::same("embed.weight", "model.embed_tokens.weight"),
    HfName::same("blocks.*.attn_norm.weight", "model.layers.*.input_layernorm.weight"),
    HfName::transposed("blocks.*.attn.q.weight", "model.layers.*.self_attn.q_proj.weight"),
    HfName::transposed(
        "blocks.*.attn.latent_q.a.weight",
        "model.layers.*.self_attn.q_a_proj.weight",
    ),
    HfName::same(
        "blocks.*.attn.latent_q.norm.weight",
        "model.layers.*.self_attn.q_a_layernorm.weight",
    ),
    HfName::transposed(
        "blocks.*.attn.latent_q.b.weight",
        "model.layers.*.self_attn.q_b_proj.weight",
    ),
    HfName::transposed(
        "blocks.*.attn.kv_a.weight",
        "model.layers.*.self_attn.kv_a_proj_with_mqa.weight",
    ),
    HfName::same("blocks.*.attn.kv_norm.weight", "model.layers.*.self_attn.kv_a_layernorm.weight"),
    HfName::transposed("blocks.*.attn.kv_b.weight", "model.layers.*.self_attn.kv_b_proj.weight"),
    HfName::transposed("blocks.*.attn.o.weight", "model.layers.*.self_attn.o_proj.weight"),
    HfName::same("blocks.*.mlp_norm.weight", "model.layers.*.post_attention_layernorm.weight"),
    HfName::transposed("blocks.*.mlp.gate.weight", "model.layers.*.mlp.gate_proj.weight"),
    HfName::transposed("blocks.*.mlp.up.weight", "model.layers.*.mlp.up_proj.weight"),
    HfName::transposed("blocks.*.mlp.down.weight", "model.layers.*.mlp.down_proj.weight"),
    HfName::transposed("blocks.*.moe.router.weight", "model.layers.*.mlp.gate.weight"),
    HfName::same(
        "blocks.*.moe.router.choice_bias",
        "model.layers.*.mlp.gate.e_score_correction_bias",
    ),
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
    HfName::transposed(
        "blocks.*.moe.shared.gate.weight",
        "model.layers.*.mlp.shared_experts.gate_proj.weight",
    ),
    HfName::transposed(
        "blocks.*.moe.shared.up.weight",
        "model.layers.*.mlp.shared_experts.up_proj.weight",
    ),
    HfName::transposed(
        "blocks.*.moe.shared.down.weight",
        "model.layers.*.mlp.shared_experts.down_proj.weight",
    ),
    HfName::same("norm.weight", "model.norm.weight"),
    HfName::same("head.weight", "lm_head.weight"),
];
