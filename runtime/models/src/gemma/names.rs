//! Names of the tensors of a Gemma in its Hugging Face folders.

use meshwright::prelude::HfName;

use super::GemmaKind;

/// Tables of a text model whose names begin with a prefix.
macro_rules! names {
    ($prefix:literal) => {
        &[
            HfName::same("embed.table.weight", concat!($prefix, "model.embed_tokens.weight")),
            in_layer!($prefix same "attn_norm.weight" => "input_layernorm.weight"),
            in_layer!($prefix transposed "attn.q.weight" => "self_attn.q_proj.weight"),
            in_layer!($prefix same "attn.q.bias" => "self_attn.q_proj.bias"),
            in_layer!($prefix same "attn.q_norm.weight" => "self_attn.q_norm.weight"),
            in_layer!($prefix transposed "attn.k.weight" => "self_attn.k_proj.weight"),
            in_layer!($prefix same "attn.k.bias" => "self_attn.k_proj.bias"),
            in_layer!($prefix same "attn.k_norm.weight" => "self_attn.k_norm.weight"),
            in_layer!($prefix transposed "attn.v.weight" => "self_attn.v_proj.weight"),
            in_layer!($prefix same "attn.v.bias" => "self_attn.v_proj.bias"),
            in_layer!($prefix transposed "attn.o.weight" => "self_attn.o_proj.weight"),
            in_layer!($prefix same "attn.o.bias" => "self_attn.o_proj.bias"),
            in_layer!($prefix same "post_attn_norm.weight" => "post_attention_layernorm.weight"),
            in_layer!($prefix same "mlp_norm.weight" => "pre_feedforward_layernorm.weight"),
            in_layer!($prefix transposed "mlp.gate.weight" => "mlp.gate_proj.weight"),
            in_layer!($prefix transposed "mlp.up.weight" => "mlp.up_proj.weight"),
            in_layer!($prefix transposed "mlp.down.weight" => "mlp.down_proj.weight"),
            in_layer!($prefix same "post_mlp_norm.weight" => "post_feedforward_layernorm.weight"),
            HfName::same("norm.weight", concat!($prefix, "model.norm.weight")),
            HfName::same("head.weight", concat!($prefix, "lm_head.weight")),
        ]
    };
}

/// The name of a parameter of each layer.
macro_rules! in_layer {
    ($prefix:literal $layout:ident $path:literal => $name:literal) => {
        HfName::$layout(concat!("blocks.*.", $path), concat!($prefix, "model.layers.*.", $name))
    };
}

const OF_TEXT: &[HfName] = names!("");
const IN_MULTIMODAL: &[HfName] = names!("language_model.");

/// Returns the parameters of a Gemma and the tensors that hold them.
pub fn of(kind: GemmaKind) -> &'static [HfName] {
    match kind {
        GemmaKind::Gemma2 | GemmaKind::Gemma3Text => OF_TEXT,
        GemmaKind::Gemma3 => IN_MULTIMODAL,
    }
}
