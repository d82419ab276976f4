//! Names of the tensors of a GPT-NeoX in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The parameters of a GPT-NeoX and the tensors that hold them.
pub const HF_NAMES: &[HfName] = &[
    HfName::same("embed.weight", "gpt_neox.embed_in.weight"),
    HfName::same("blocks.*.attn_norm.weight", "gpt_neox.layers.*.input_layernorm.weight"),
    HfName::same("blocks.*.attn_norm.bias", "gpt_neox.layers.*.input_layernorm.bias"),
    HfName::transposed(
        "blocks.*.attn.qkv.weight",
        "gpt_neox.layers.*.attention.query_key_value.weight",
    ),
    HfName::same("blocks.*.attn.qkv.bias", "gpt_neox.layers.*.attention.query_key_value.bias"),
    HfName::transposed("blocks.*.attn.o.weight", "gpt_neox.layers.*.attention.dense.weight"),
    HfName::same("blocks.*.attn.o.bias", "gpt_neox.layers.*.attention.dense.bias"),
    HfName::same("blocks.*.mlp_norm.weight", "gpt_neox.layers.*.post_attention_layernorm.weight"),
    HfName::same("blocks.*.mlp_norm.bias", "gpt_neox.layers.*.post_attention_layernorm.bias"),
    HfName::transposed("blocks.*.mlp.up.weight", "gpt_neox.layers.*.mlp.dense_h_to_4h.weight"),
    HfName::same("blocks.*.mlp.up_bias.bias", "gpt_neox.layers.*.mlp.dense_h_to_4h.bias"),
    HfName::transposed("blocks.*.mlp.down.weight", "gpt_neox.layers.*.mlp.dense_4h_to_h.weight"),
    HfName::same("blocks.*.mlp.down_bias.bias", "gpt_neox.layers.*.mlp.dense_4h_to_h.bias"),
    HfName::same("norm.weight", "gpt_neox.final_layer_norm.weight"),
    HfName::same("norm.bias", "gpt_neox.final_layer_norm.bias"),
    HfName::same("head.weight", "embed_out.weight"),
];
