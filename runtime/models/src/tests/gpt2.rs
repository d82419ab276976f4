//! GPT-2 folders.

use meshwright_store::family::LanguageModel;

use super::*;

/// Folders as the first ones were published: of the bare model, and with the causal masks.
#[test]
fn early_gpt2_folders_are_read() {
    let config = gpt2();
    let dir = export(&config);
    let mut tensors = f32_tensors(&config);
    for (name, ..) in &mut tensors {
        *name = name.replacen("transformer.", "", 1);
    }
    let mask: Vec<u8> = (0..36).map(|i| u8::from(i % 6 <= i / 6)).collect();
    tensors.push(("h.0.attn.bias".into(), Dtype::U8, vec![1, 1, 6, 6], mask.clone()));
    let numbers = f32_bytes(mask.iter().map(|visible| f32::from(*visible)));
    tensors.push(("h.1.attn.bias".into(), Dtype::F32, vec![1, 1, 6, 6], numbers));
    tensors.push(("h.1.attn.masked_bias".into(), Dtype::F32, vec![], f32_bytes([-1e4])));
    tensors.push(("lm_head.weight".into(), Dtype::F32, vec![10, 8], tensors[0].3.clone()));
    let file = dir.path().join("model.safetensors");
    write_weights(&file, &tensors);
    let folder = weights(dir.path(), &config);
    for (i, (name, shape)) in config.tensors().iter().enumerate() {
        assert_eq!(folder.read(name, shape, &TensorBox::whole(shape)).unwrap(), values(i, shape));
    }

    tensors.push(("transformer.wpe.weight".into(), Dtype::F32, vec![6, 8], vec![0; 192]));
    write_weights(&file, &tensors);
    let text = refusal_of::<Gpt2Config>(dir.path());
    assert!(text.contains("wpe.weight` is there a second time, as `"), "{text}");
    tensors.pop();

    let others = [
        (4, vec![1; 36], "tensor `h.0.attn.bias` is not the mask of a causal attention"),
        (2, f32_bytes([-1.0]), "tensor `h.1.attn.masked_bias` does not mask"),
        (
            1,
            f32_bytes(values(9, &[10, 8])),
            "tensor `lm_head.weight` differs from `wte.weight`, which a gpt2 takes for its head",
        ),
    ];
    for (from_end, content, reason) in others {
        let mut other = tensors.clone();
        let index = other.len() - from_end;
        other[index].3 = content;
        write_weights(&file, &other);
        let text = refusal_of::<Gpt2Config>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn settings_of_real_gpt2s_are_understood() {
    let dir = export(&gpt2());
    let absent = json!({ "n_inner": null, "n_positions": null, "layer_norm_epsilon": null, "attn_pdrop": null,
        "activation_function": null, "bos_token_id": null, "tie_word_embeddings": null, "model_type": null });
    set(dir.path(), absent);
    let file = Gpt2Config::read(dir.path(), &[]).unwrap();
    assert!(
        !file.warnings.iter().any(|warning| warning.contains("attn_pdrop")),
        "{:?}",
        file.warnings
    );
    let read = file.config;
    assert_eq!((read.ffn, read.positions, read.norm_eps), (32, 1024, 1e-5));
    assert_eq!((read.dropout.attention, read.dropout.residual), (0.1, 0.2));
    assert_eq!((read.bos, read.eos), (Value::Null, json!(2)));
    set(dir.path(), json!({ "activation_function": "gelu_pytorch_tanh", "use_cache": true }));
    assert!(Gpt2Config::read(dir.path(), &[]).is_ok());
    set(dir.path(), json!({ "attn_pdrop": 0.2 }));
    let read = Gpt2Config::read(dir.path(), &[]).unwrap().config;
    assert_eq!(read.dropout.attention, 0.2);
    assert_eq!(Gpt2::sizes(&read).attention.dropout, 0.2);
}

#[test]
fn unsupported_gpt2_settings_are_refused() {
    for (change, reason) in [
        (
            json!({ "activation_function": "gelu" }),
            "activation_function is \"gelu\"; only \"gelu_new\" or \"gelu_pytorch_tanh\" is supported",
        ),
        (json!({ "scale_attn_weights": false }), "scale_attn_weights is false; only true is"),
        (
            json!({ "scale_attn_by_inverse_layer_idx": true }),
            "scale_attn_by_inverse_layer_idx is true; only false is supported",
        ),
        (json!({ "add_cross_attention": true }), "add_cross_attention is true; only false is"),
        (json!({ "tie_word_embeddings": false }), "tie_word_embeddings is false; only true is"),
        (
            json!({ "rope_theta": 1e4 }),
            "rope_theta is not a setting of a gpt2, where positions are learned; leave it out",
        ),
        (
            json!({ "num_key_value_heads": 2 }),
            "num_key_value_heads is not a setting of a gpt2, where each query head has keys",
        ),
        (json!({ "n_head": 3 }), "n_head 3 does not divide n_embd 8"),
        (json!({ "n_layer": null }), "n_layer is missing"),
        (json!({ "n_layer": 200 }), "n_layer is 200, but the weights hold 28 tensors in all"),
        (json!({ "n_positions": 0 }), "n_positions must be a whole number of at least 1, not 0"),
        (json!({ "attn_pdrop": 1.5 }), "attn_pdrop must be below 1, not 1.5"),
        (json!({ "resid_pdrop": 1 }), "resid_pdrop must be below 1, not 1"),
        (
            json!({ "n_inner": 16 }),
            "transformer.h.0.mlp.c_fc.weight has shape [8, 12], expected [8, 16]",
        ),
    ] {
        let dir = export(&gpt2());
        set(dir.path(), change);
        let text = refusal_of::<Gpt2Config>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}
