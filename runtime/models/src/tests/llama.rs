//! Llama folders.

use super::*;

#[test]
fn settings_of_real_llamas_are_understood() {
    let dir = export(&config(false));
    let read = || LlamaConfig::read(dir.path(), &[]).unwrap().config;
    set(dir.path(), json!({ "rope_parameters": null, "rope_theta": 1234.0 }));
    assert_eq!(read().rope, RopeParameters::with_theta(1234.0));
    set(dir.path(), json!({ "rope_theta": null }));
    assert_eq!(read().rope, RopeParameters::default());
    set(dir.path(), json!({ "rope_parameters": { "rope_theta": 77, "rope_type": "default" } }));
    assert_eq!(read().rope, RopeParameters::with_theta(77.0));
    set(dir.path(), json!({ "head_dim": null, "num_key_value_heads": null }));
    assert_eq!((read().head_dim, read().kv_heads), (2, 4));
    let absent = json!({ "rms_norm_eps": null, "tie_word_embeddings": null, "hidden_act": null,
        "max_position_embeddings": null, "bos_token_id": null, "attention_bias": null });
    set(dir.path(), absent);
    let config = read();
    assert_eq!((config.norm_eps, config.tied, config.max_positions), (1e-6, false, 2048));
    assert_eq!(config.bos, Value::Null);
}

/// The frequencies of heads of four elements with the base of [`config`].
fn frequencies() -> Vec<u8> {
    f32_bytes([1.0, 5e5f32.powf(-0.5)])
}

#[test]
fn redundant_llama_tensors_are_ignored() {
    let tied = config(true);
    let dir = export(&tied);
    let mut tensors = f32_tensors(&tied);
    let file = dir.path().join("model.safetensors");
    tensors.push(("lm_head.weight".into(), Dtype::F32, vec![10, 8], tensors[0].3.clone()));
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    tensors.push((name.into(), Dtype::F32, vec![2], frequencies()));
    write_weights(&file, &tensors);
    assert!(weights(dir.path(), &tied).warnings().is_empty());

    // The one weight under the name of the head only, as `safetensors` may store shared tensors.
    write_weights(&file, &tensors[1..]);
    let folder = weights(dir.path(), &tied);
    let read = folder.read("model.embed_tokens.weight", &[10, 8], &TensorBox::whole(&[10, 8]));
    assert_eq!(read.unwrap(), values(0, &[10, 8]));

    tensors.last_mut().unwrap().3 = f32_bytes([1.0, 0.5]);
    write_weights(&file, &tensors);
    let text = refusal(dir.path());
    let reason =
        format!("tensor `{name}` holds other rotary frequencies than those of config.json");
    assert!(text.contains(&reason), "{text}");
}

/// The padding row may count from the end, like PyTorch's `padding_idx`.
#[test]
fn the_padding_row_is_read() {
    let dir = export(&config(false));
    let read = |id: Value| {
        set(dir.path(), json!({ "pad_token_id": id }));
        open::<LlamaConfig>(dir.path()).map(|(config, _)| config.padding)
    };
    for (id, row) in [(json!(0), 0), (json!(9), 9), (json!(-1), 9), (json!(-10), 0)] {
        assert_eq!(read(id).unwrap(), Some(row));
    }
    for id in [json!(10), json!(-11), json!("x"), json!(1.5)] {
        let text = read(id.clone()).unwrap_err().to_string();
        let reason = format!("pad_token_id is {id}, but the embedding has 10 rows; correct it, or");
        assert!(text.contains(&reason), "{text}");
    }
    let padded = LlamaConfig { padding: Some(3), ..config(true) };
    assert_imports(&padded);
    assert_imports(&MixtralConfig { padding: Some(3), ..mixtral::mixtral(true) });
}

#[test]
fn unsupported_llama_settings_are_refused() {
    for (change, reason) in [
        (json!({ "hidden_act": "gelu" }), "hidden_act is \"gelu\"; only \"silu\" is supported"),
        (json!({ "hidden_act": 3 }), "hidden_act must be text, not 3"),
        (json!({ "attention_bias": true }), "missing: model.layers.0.self_attn.q_proj.bias"),
        (json!({ "mlp_bias": 1 }), "mlp_bias must be true or false, not 1"),
        (json!({ "attention_dropout": 0.1 }), "attention_dropout is 0.1; only 0"),
        (json!({ "rope_parameters": 3 }), "rope_parameters must be an object, not 3"),
        (
            json!({ "rope_theta": -1, "rope_parameters": {} }),
            "rope_theta must be a number of at least 0",
        ),
        (json!({ "rope_theta": 0, "rope_parameters": {} }), "rope_theta must be above 0, not 0"),
        (json!({ "hidden_size": null }), "hidden_size is missing"),
        (
            json!({ "vocab_size": "ten" }),
            "vocab_size must be a whole number of at least 1, not \"ten\"",
        ),
        (
            json!({ "num_hidden_layers": 0 }),
            "num_hidden_layers must be a whole number of at least 1",
        ),
        (json!({ "num_key_value_heads": 3 }), "num_key_value_heads 3 does not divide"),
        (
            json!({ "num_attention_heads": 6, "head_dim": null }),
            "num_attention_heads 6 does not divide",
        ),
        (json!({ "head_dim": 3 }), "head_dim 3 is odd"),
        (json!({ "tie_word_embeddings": 1 }), "tie_word_embeddings must be true or false, not 1"),
        (
            json!({ "sliding_window": 4096 }),
            "sliding_window is 4096; only models whose attention has no window",
        ),
        (
            json!({ "sliding_window": 4096, "use_sliding_window": true }),
            "sliding_window is 4096; only models",
        ),
        (json!({ "use_sliding_window": true }), "use_sliding_window is true; only models"),
        (
            json!({ "layer_types": ["full_attention", "sliding_attention"] }),
            "layer_types is [\"full_attention\",\"sliding_attention\"]; only layers of \"full_attention\"",
        ),
        (json!({ "layer_types": "all" }), "layer_types is \"all\"; only layers of"),
        (
            json!({ "model_type": null, "architectures": ["FalconForCausalLM"] }),
            "architectures has \"FalconForCausalLM\", and there is no model_type; this program trains a \"llama\", ",
        ),
        (
            json!({ "rope_parameters": null, "rope_scaling": { "factor": 2 } }),
            "rope_scaling.rope_type is missing, but factor is given",
        ),
    ] {
        let dir = export(&config(false));
        set(dir.path(), change);
        let text = refusal(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}
