//! Names of the tensors of a Whisper in its Hugging Face folders.

use meshwright::prelude::HfName;

use super::WhisperConfig;

/// The parameters of a Whisper and the tensors that hold them, but for the weights of convolutions.
const NAMES: &[HfName] = &[
    HfName::same("front.conv1_bias.bias", "model.encoder.conv1.bias"),
    HfName::same("front.conv2_bias.bias", "model.encoder.conv2.bias"),
    HfName::same("front.positions.weight", "model.encoder.embed_positions.weight"),
    HfName::same("front.target.weight", "model.decoder.embed_tokens.weight"),
    HfName::same("front.target_positions.weight", "model.decoder.embed_positions.weight"),
    HfName::same(
        "encoder.*.attn_norm.weight",
        "model.encoder.layers.*.self_attn_layer_norm.weight",
    ),
    HfName::same("encoder.*.attn_norm.bias", "model.encoder.layers.*.self_attn_layer_norm.bias"),
    HfName::transposed("encoder.*.attn.q.weight", "model.encoder.layers.*.self_attn.q_proj.weight"),
    HfName::same("encoder.*.attn.q.bias", "model.encoder.layers.*.self_attn.q_proj.bias"),
    HfName::transposed("encoder.*.attn.k.weight", "model.encoder.layers.*.self_attn.k_proj.weight"),
    HfName::transposed("encoder.*.attn.v.weight", "model.encoder.layers.*.self_attn.v_proj.weight"),
    HfName::same("encoder.*.attn.v.bias", "model.encoder.layers.*.self_attn.v_proj.bias"),
    HfName::transposed(
        "encoder.*.attn.o.weight",
        "model.encoder.layers.*.self_attn.out_proj.weight",
    ),
    HfName::same("encoder.*.attn.o.bias", "model.encoder.layers.*.self_attn.out_proj.bias"),
    HfName::same("encoder.*.mlp_norm.weight", "model.encoder.layers.*.final_layer_norm.weight"),
    HfName::same("encoder.*.mlp_norm.bias", "model.encoder.layers.*.final_layer_norm.bias"),
    HfName::transposed("encoder.*.mlp.up.weight", "model.encoder.layers.*.fc1.weight"),
    HfName::same("encoder.*.mlp.up.bias", "model.encoder.layers.*.fc1.bias"),
    HfName::transposed("encoder.*.mlp.down.weight", "model.encoder.layers.*.fc2.weight"),
    HfName::same("encoder.*.mlp.down.bias", "model.encoder.layers.*.fc2.bias"),
    HfName::same("bridge.norm.weight", "model.encoder.layer_norm.weight"),
    HfName::same("bridge.norm.bias", "model.encoder.layer_norm.bias"),
    HfName::same(
        "decoder.*.attn_norm.weight",
        "model.decoder.layers.*.self_attn_layer_norm.weight",
    ),
    HfName::same("decoder.*.attn_norm.bias", "model.decoder.layers.*.self_attn_layer_norm.bias"),
    HfName::transposed("decoder.*.attn.q.weight", "model.decoder.layers.*.self_attn.q_proj.weight"),
    HfName::same("decoder.*.attn.q.bias", "model.decoder.layers.*.self_attn.q_proj.bias"),
    HfName::transposed("decoder.*.attn.k.weight", "model.decoder.layers.*.self_attn.k_proj.weight"),
    HfName::transposed("decoder.*.attn.v.weight", "model.decoder.layers.*.self_attn.v_proj.weight"),
    HfName::same("decoder.*.attn.v.bias", "model.decoder.layers.*.self_attn.v_proj.bias"),
    HfName::transposed(
        "decoder.*.attn.o.weight",
        "model.decoder.layers.*.self_attn.out_proj.weight",
    ),
    HfName::same("decoder.*.attn.o.bias", "model.decoder.layers.*.self_attn.out_proj.bias"),
    HfName::same(
        "decoder.*.cross_norm.weight",
        "model.decoder.layers.*.encoder_attn_layer_norm.weight",
    ),
    HfName::same(
        "decoder.*.cross_norm.bias",
        "model.decoder.layers.*.encoder_attn_layer_norm.bias",
    ),
    HfName::transposed(
        "decoder.*.cross.q.weight",
        "model.decoder.layers.*.encoder_attn.q_proj.weight",
    ),
    HfName::same("decoder.*.cross.q.bias", "model.decoder.layers.*.encoder_attn.q_proj.bias"),
    HfName::transposed(
        "decoder.*.cross.k.weight",
        "model.decoder.layers.*.encoder_attn.k_proj.weight",
    ),
    HfName::transposed(
        "decoder.*.cross.v.weight",
        "model.decoder.layers.*.encoder_attn.v_proj.weight",
    ),
    HfName::same("decoder.*.cross.v.bias", "model.decoder.layers.*.encoder_attn.v_proj.bias"),
    HfName::transposed(
        "decoder.*.cross.o.weight",
        "model.decoder.layers.*.encoder_attn.out_proj.weight",
    ),
    HfName::same("decoder.*.cross.o.bias", "model.decoder.layers.*.encoder_attn.out_proj.bias"),
    HfName::same("decoder.*.mlp_norm.weight", "model.decoder.layers.*.final_layer_norm.weight"),
    HfName::same("decoder.*.mlp_norm.bias", "model.decoder.layers.*.final_layer_norm.bias"),
    HfName::transposed("decoder.*.mlp.up.weight", "model.decoder.layers.*.fc1.weight"),
    HfName::same("decoder.*.mlp.up.bias", "model.decoder.layers.*.fc1.bias"),
    HfName::transposed("decoder.*.mlp.down.weight", "model.decoder.layers.*.fc2.weight"),
    HfName::same("decoder.*.mlp.down.bias", "model.decoder.layers.*.fc2.bias"),
    HfName::same("end.norm.weight", "model.decoder.layer_norm.weight"),
    HfName::same("end.norm.bias", "model.decoder.layer_norm.bias"),
];

/// Returns the parameters of a Whisper and the tensors that hold them. Those of convolutions are `[out, in, taps]`.
pub fn hf_names(config: &WhisperConfig) -> Vec<HfName> {
    let conv1 = HfName::transposed("front.conv1.weight", "model.encoder.conv1.weight");
    let conv2 = HfName::transposed("front.conv2.weight", "model.encoder.conv2.weight");
    let (hidden, mels) = (config.hidden, config.mels);
    let convolutions = [conv1.shaped(&[hidden, mels, 3]), conv2.shaped(&[hidden, hidden, 3])];
    [&convolutions, NAMES].concat()
}
