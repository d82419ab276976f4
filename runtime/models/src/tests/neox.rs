//! GPT-NeoX folders.

use meshwright_core::rotary::RopeScaling;
use meshwright_store::family::Family;

use super::*;

fn neox() -> GptNeoxConfig {
    GptNeoxConfig {
        hidden: 16,
        ffn: 12,
        layers: 2,
        heads: 2,
        vocab: 10,
        max_positions: 6,
        bos: json!(0),
        eos: json!(0),
        ..GptNeoxConfig::default()
    }
}

fn rotating(theta: f64, partial_rotary_factor: f64) -> RopeParameters {
    RopeParameters { theta, partial_rotary_factor, scaling: RopeScaling::Default }
}

#[test]
fn neoxes_are_imported_as_they_are_exported() {
    assert_imports(&neox());
    assert_imports(&GptNeoxConfig { tied: true, parallel: false, ..neox() });
    assert_imports(&GptNeoxConfig { rope: rotating(5e3, 1.0), ..neox() });
    let scaling = RopeScaling::Linear { factor: 2.0 };
    assert_imports(&GptNeoxConfig {
        rope: RopeParameters { scaling, ..rotating(5e3, 0.5) },
        ..neox()
    });
}

/// Files before and since version 5 of `transformers`; both at the same time have to agree.
#[test]
fn rotary_keys_have_other_names() {
    let dir = export(&neox());
    let read = |change: Value| {
        set(dir.path(), change);
        GptNeoxConfig::read(dir.path(), &[]).unwrap().config.rope
    };
    let older = json!({ "rope_parameters": null, "rotary_pct": 0.5, "rotary_emb_base": 77 });
    assert_eq!(read(older), rotating(77.0, 0.5));
    assert_eq!(read(json!({ "rotary_pct": null, "rotary_emb_base": null })), rotating(1e4, 0.25));
    let newer = json!({ "rotary_pct": 1.0, "rope_parameters": { "rope_type": "default", "rope_theta": 5 } });
    assert_eq!(read(newer), rotating(5.0, 1.0));
    let newer = json!({ "rotary_pct": 0.75,
        "rope_parameters": { "rope_theta": 5, "partial_rotary_factor": 0.75 } });
    assert_eq!(read(newer), rotating(5.0, 0.75));
}

#[test]
fn derived_neox_tensors_are_compared() {
    let dir = export(&neox());
    let file = dir.path().join("model.safetensors");
    let mut tensors = f32_tensors(&neox());
    let layer = |name: &str| format!("gpt_neox.layers.1.attention.{name}");
    tensors.push((layer("bias"), Dtype::BOOL, vec![1, 1, 2, 2], vec![1, 0, 1, 1]));
    tensors.push((layer("masked_bias"), Dtype::F32, vec![], f32_bytes([-1e9])));
    tensors.push((layer("rotary_emb.inv_freq"), Dtype::F32, vec![1], f32_bytes([1.0])));
    write_weights(&file, &tensors);
    assert!(weights(dir.path(), &neox()).warnings().is_empty());
    tensors.last_mut().unwrap().3 = f32_bytes([0.5]);
    write_weights(&file, &tensors);
    let text = refusal_of::<GptNeoxConfig>(dir.path());
    assert!(text.contains("holds other rotary frequencies than those of config.json"), "{text}");
}

/// A model without a head omits a prefix, and newer versions of `transformers` call the head otherwise in memory.
#[test]
fn other_names_of_neox_tensors_are_understood() {
    let dir = export(&neox());
    let file = dir.path().join("model.safetensors");
    let mut tensors = f32_tensors(&neox());
    tensors.iter_mut().for_each(|tensor| tensor.0 = tensor.0.replacen("gpt_neox.", "", 1));
    tensors.last_mut().unwrap().0 = "lm_head.weight".into();
    write_weights(&file, &tensors);
    let read = weights(dir.path(), &neox()).read(
        "embed_out.weight",
        &[10, 16],
        &TensorBox::whole(&[10, 16]),
    );
    assert_eq!(read.unwrap(), values(tensors.len() - 1, &[10, 16]));
}

#[test]
fn unsupported_neox_settings_are_refused() {
    for (change, reason) in [
        (
            json!({ "hidden_act": "gelu_new" }),
            "hidden_act is \"gelu_new\"; only \"gelu\" is supported",
        ),
        (json!({ "hidden_dropout": 0.1 }), "hidden_dropout is 0.1; only 0"),
        (json!({ "attention_dropout": 0.1 }), "attention_dropout is 0.1; only 0"),
        (
            json!({ "num_attention_heads": 3 }),
            "num_attention_heads 3 does not divide hidden_size 16",
        ),
        (
            json!({ "use_parallel_residual": 1 }),
            "use_parallel_residual must be true or false, not 1",
        ),
        (
            json!({ "rotary_pct": 1.5, "rope_parameters": null }),
            "rotary_pct must be above 0 and at most 1",
        ),
        (
            json!({ "rotary_pct": 0.1, "rope_parameters": null }),
            "rotary_pct 0.1 of a head of 8 elements",
        ),
        (
            json!({ "rotary_emb_base": 0, "rope_parameters": null }),
            "rotary_emb_base must be above 0",
        ),
        (json!({ "rope_theta": 5 }), "\"rope_theta\" is 5: this program does not know"),
        (
            json!({ "rotary_emb_base": 5, "rope_parameters": { "rope_theta": 77 } }),
            "rotary_emb_base is 5, but rope_parameters.rope_theta is 77; leave one of them out",
        ),
        (
            json!({ "rotary_pct": 1.5, "rope_parameters": { "rope_type": "linear", "factor": 2 } }),
            "json: rotary_pct must be above 0 and at most 1",
        ),
        (
            json!({ "rope_parameters": { "rope_type": "odd" } }),
            "rope_parameters.rope_type is \"odd\"; only",
        ),
    ] {
        let dir = export(&neox());
        set(dir.path(), change);
        let text = refusal_of::<GptNeoxConfig>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn new_neoxes_follow_from_flags() {
    let sizes = ModelSizes { hidden: 32, ..SIZES };
    let new = GptNeoxConfig::new_model("gpt_neox", &sizes, 16).unwrap();
    assert_eq!((new.head_dim(), new.ffn, new.parallel, new.biases), (8, 128, true, true));
    assert_eq!(new.outline().kv_heads, 4);
    let text = GptNeoxConfig::new_model("gpt_neox", &SIZES, 16).unwrap_err();
    assert!(
        text.starts_with("--heads: 4 makes heads 6 wide, and a quarter of a head rotates"),
        "{text}"
    );
    let grouped = ModelSizes { kv_heads: Some(2), ..sizes };
    let text = GptNeoxConfig::new_model("gpt_neox", &grouped, 16).unwrap_err();
    assert!(text.starts_with("--kv-heads: 2 differs from --heads 4"), "{text}");
}
