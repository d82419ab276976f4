//! Names of the tensors of a GPT-2 in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The parameters of a GPT-2 and the tensors that hold them. Linear weights are stored `[in, out]`, with queries,
/// keys and values fused.
pub const HF_NAMES: &[HfName] = &[
    HfName::same("embed.weight", "transformer.wte.weight"),
    HfName::same("positions.weight", "transformer.wpe.weight"),
    HfName::same("blocks.*.attn_norm.weight", "transformer.h.*.ln_1.weight"),
    HfName::same("blocks.*.attn_norm.bias", "transformer.h.*.ln_1.bias"),
    HfName::same("blocks.*.attn.q.weight", "transformer.h.*.attn.c_attn.weight").fused(),
    HfName::same("blocks.*.attn.k.weight", "transformer.h.*.attn.c_attn.weight").fused(),
    HfName::same("blocks.*.attn.v.weight", "transformer.h.*.attn.c_attn.weight").fused(),
    HfName::same("blocks.*.attn.q_bias.bias", "transformer.h.*.attn.c_attn.bias").fused(),
    HfName::same("blocks.*.attn.k_bias.bias", "transformer.h.*.attn.c_attn.bias").fused(),
    HfName::same("blocks.*.attn.v_bias.bias", "transformer.h.*.attn.c_attn.bias").fused(),
    HfName::same("blocks.*.attn.o.weight", "transformer.h.*.attn.c_proj.weight"),
    HfName::same("blocks.*.attn.o_bias.bias", "transformer.h.*.attn.c_proj.bias"),
    HfName::same("blocks.*.mlp_norm.weight", "transformer.h.*.ln_2.weight"),
    HfName::same("blocks.*.mlp_norm.bias", "transformer.h.*.ln_2.bias"),
    HfName::same("blocks.*.mlp.up.weight", "transformer.h.*.mlp.c_fc.weight"),
    HfName::same("blocks.*.mlp.up_bias.bias", "transformer.h.*.mlp.c_fc.bias"),
    HfName::same("blocks.*.mlp.down.weight", "transformer.h.*.mlp.c_proj.weight"),
    HfName::same("blocks.*.mlp.down_bias.bias", "transformer.h.*.mlp.c_proj.bias"),
    HfName::same("norm.weight", "transformer.ln_f.weight"),
    HfName::same("norm.bias", "transformer.ln_f.bias"),
];
