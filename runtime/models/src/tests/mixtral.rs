//! Mixtral folders.

use super::*;

pub fn mixtral(tied: bool) -> MixtralConfig {
    MixtralConfig {
        hidden: 8,
        ffn: 12,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        experts: 3,
        top_k: 2,
        vocab: 10,
        norm_eps: 1e-4,
        rope: RopeParameters::with_theta(5e5),
        tied,
        max_positions: 64,
        router_aux_loss_coef: 0.02,
        router_z_loss_coef: 0.0,
        padding: None,
        bos: json!(1),
        eos: json!(2),
    }
}

#[test]
fn mixtral_exports_are_imported_bit_for_bit() {
    assert_imports(&mixtral(false));
    assert_imports(&mixtral(true));
}

/// The published Mixtral 8x7B, and a file with the defaults of `transformers` only.
#[test]
fn settings_of_real_mixtrals_are_understood() {
    let published = json!({
        "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
        "output_router_logits": false, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32000
    });
    let read = |settings: &Value| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), settings.to_string()).unwrap();
        MixtralConfig::read(dir.path(), &[]).unwrap().config
    };
    let mut expected = MixtralConfig {
        hidden: 4096,
        ffn: 14336,
        layers: 32,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        experts: 8,
        top_k: 2,
        vocab: 32000,
        norm_eps: 1e-5,
        rope: RopeParameters::with_theta(1e6),
        max_positions: 32768,
        ..mixtral(false)
    };
    assert_eq!(read(&published), expected);
    let mut sparse = published.clone();
    let keys = sparse.as_object_mut().unwrap();
    let required = [
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
        "bos_token_id",
        "eos_token_id",
    ];
    keys.retain(|key, _| required.contains(&key.as_str()));
    expected.max_positions = 131_072;
    expected.router_aux_loss_coef = 0.001;
    assert_eq!(read(&sparse), expected);
    // Not the default, but as many as query heads.
    sparse["num_key_value_heads"] = Value::Null;
    assert_eq!(read(&sparse).kv_heads, 32);
}

#[test]
fn exported_settings_are_those_of_a_mixtral() {
    let exported = mixtral(false).to_json();
    let expected = json!({ "num_local_experts": 3, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02,
        "router_jitter_noise": 0.0, "sliding_window": null });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(exported.get(key), Some(value), "{key}");
    }
}

#[test]
fn settings_for_another_program_are_ignored() {
    let dir = export(&mixtral(false));
    set(dir.path(), json!({ "output_router_logits": true, "use_cache": true }));
    assert_eq!(MixtralConfig::read(dir.path(), &[]).unwrap().config, mixtral(false));
}

#[test]
fn redundant_mixtral_tensors_are_ignored() {
    let tied = mixtral(true);
    let dir = export(&tied);
    let mut tensors = f32_tensors(&tied);
    tensors.push(("lm_head.weight".into(), Dtype::F32, vec![10, 8], tensors[0].3.clone()));
    write_weights(&dir.path().join("model.safetensors"), &tensors);
    weights(dir.path(), &tied);
}

/// The names and tensors that newer versions of `transformers` have in memory.
#[test]
fn stacked_experts_are_read() {
    let config = mixtral(false);
    let (dir, mut tensors) = (export(&config), f32_tensors(&config));
    let stored: Vec<_> = tensors.clone();
    let bytes_of = |name: &str| &stored.iter().find(|tensor| tensor.0 == name).unwrap().3[..];
    tensors.retain(|tensor| !tensor.0.contains(".experts."));
    tensors.iter_mut().for_each(|tensor| tensor.0 = tensor.0.replace("block_sparse_moe", "mlp"));
    for layer in 0..2 {
        let expert = |number: usize, names: &[&str]| {
            let of = |name: &&str| {
                bytes_of(&format!(
                    "model.layers.{layer}.block_sparse_moe.experts.{number}.{name}.weight"
                ))
            };
            names.iter().flat_map(of).copied().collect::<Vec<u8>>()
        };
        let mut add = |name: &str, shape: [usize; 3], names: &[&str]| {
            let name = format!("model.layers.{layer}.mlp.experts.{name}");
            let bytes = (0..3).flat_map(|number| expert(number, names)).collect();
            tensors.push((name, Dtype::F32, shape.to_vec(), bytes));
        };
        add("gate_up_proj", [3, 24, 8], &["w1", "w3"]);
        add("down_proj", [3, 8, 12], &["w2"]);
    }
    let file = dir.path().join("model.safetensors");
    write_weights(&file, &tensors);
    let folder = weights(dir.path(), &config);
    for (index, (name, shape)) in config.tensors().iter().enumerate() {
        let whole = values(index, shape);
        assert_eq!(folder.read(name, shape, &TensorBox::whole(shape)).unwrap(), whole, "{name}");
        if let [rows, columns] = shape[..] {
            let part = TensorBox::new(&[rows - 2, 1], &[1, columns - 1]);
            let row = &whole[(rows - 2) * columns..][..columns];
            assert_eq!(folder.read(name, shape, &part).unwrap(), row[1..], "{name}");
        }
    }
    let last = tensors.len() - 2;
    tensors[last].2 = vec![3, 8, 24];
    tensors[last].0.insert_str(0, "module.");
    tensors[..last].iter_mut().for_each(|tensor| tensor.0.insert_str(0, "module."));
    tensors[last + 1].0.insert_str(0, "module.");
    write_weights(&file, &tensors);
    let text = refusal_of::<MixtralConfig>(dir.path());
    assert!(text.contains("experts.0.w1.weight has shape [4, 24], expected [12, 8]"), "{text}");
    tensors[last].2 = vec![72, 8];
    write_weights(&file, &tensors);
    let text = refusal_of::<MixtralConfig>(dir.path());
    let reason = "gate_up_proj` has shape [72, 8]; of 2 weights for each expert, [experts, 2 * out, in] is read";
    assert!(text.contains(reason), "{text}");
}

#[test]
fn unsupported_mixtral_settings_are_refused() {
    for (change, reason) in [
        (
            json!({ "model_type": "llama" }),
            "model_type is \"llama\", and this program trains a \"mixtral\"; the program `train`",
        ),
        (json!({ "hidden_act": "gelu" }), "hidden_act is \"gelu\"; only \"silu\" is supported"),
        (json!({ "router_jitter_noise": 0.1 }), "router_jitter_noise is 0.1; only 0 is supported"),
        (json!({ "attention_dropout": 0.1 }), "attention_dropout is 0.1; only 0 is supported"),
        (json!({ "attention_bias": true }), "attention_bias is true; only models without biases"),
        (
            json!({ "sliding_window": 4096 }),
            "sliding_window is 4096; only models whose attention has no window are supported",
        ),
        // Of a Mixtral, it does not switch the window off.
        (
            json!({ "sliding_window": 4096, "use_sliding_window": false }),
            "sliding_window is 4096; only models whose attention has no window are supported",
        ),
        (json!({ "layer_types": ["sliding_attention"] }), "only layers of \"full_attention\""),
        (
            json!({ "num_experts_per_tok": 4 }),
            "num_experts_per_tok 4 is more than num_local_experts 3",
        ),
        (json!({ "num_local_experts": 0 }), "num_local_experts must be a whole number of at least"),
        (json!({ "num_key_value_heads": 3 }), "num_key_value_heads 3 does not divide"),
        (json!({ "head_dim": 3 }), "head_dim 3 is odd"),
        (
            json!({ "router_aux_loss_coef": -1 }),
            "router_aux_loss_coef must be a number of at least",
        ),
        (
            json!({ "num_local_experts": 4 }),
            "missing: model.layers.0.block_sparse_moe.experts.3.w1.weight",
        ),
    ] {
        let dir = export(&mixtral(false));
        set(dir.path(), change);
        let text = refusal_of::<MixtralConfig>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}
