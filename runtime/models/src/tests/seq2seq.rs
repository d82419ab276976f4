//! Folders of T5 and Whisper.

use meshwright_store::family::{Family, FamilyModel};

use super::*;

impl TestFamily for T5Config {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let T5Config { hidden, ffn, heads, head_dim, vocab, buckets, .. } = *self;
        let inner = heads * head_dim;
        let mut tensors = vec![("shared.weight".to_owned(), vec![vocab, hidden])];
        let mut add = |name: String, shape: &[usize]| {
            tensors.push((format!("{name}.weight"), shape.to_vec()))
        };
        for (stack, layers) in [("encoder", self.encoder_layers), ("decoder", self.decoder_layers)]
        {
            let attentions: &[&str] = if stack == "encoder" {
                &["SelfAttention"]
            } else {
                &["SelfAttention", "EncDecAttention"]
            };
            for layer in 0..layers {
                let block = format!("{stack}.block.{layer}.layer");
                for (index, attention) in attentions.iter().enumerate() {
                    for name in ["q", "k", "v"] {
                        add(format!("{block}.{index}.{attention}.{name}"), &[inner, hidden]);
                    }
                    add(format!("{block}.{index}.{attention}.o"), &[hidden, inner]);
                    if layer == 0 && index == 0 {
                        let name = format!("{block}.0.SelfAttention.relative_attention_bias");
                        add(name, &[buckets, heads]);
                    }
                    add(format!("{block}.{index}.layer_norm"), &[hidden]);
                }
                let last = format!("{block}.{}", attentions.len());
                for name in if self.gated { &["wi_0", "wi_1"][..] } else { &["wi"] } {
                    add(format!("{last}.DenseReluDense.{name}"), &[ffn, hidden]);
                }
                add(format!("{last}.DenseReluDense.wo"), &[hidden, ffn]);
                add(format!("{last}.layer_norm"), &[hidden]);
            }
            add(format!("{stack}.final_layer_norm"), &[hidden]);
        }
        if !self.tied {
            add("lm_head".to_owned(), &[vocab, hidden]);
        }
        tensors
    }
}

impl TestFamily for WhisperConfig {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, mut tensors) = (self.hidden, Vec::new());
        let mut add = |name: String, shape: &[usize], has_bias: bool| {
            tensors.push((format!("model.{name}.weight"), shape.to_vec()));
            if has_bias {
                tensors.push((format!("model.{name}.bias"), vec![shape[0]]));
            }
        };
        add("encoder.conv1".into(), &[hidden, self.mels, 3], true);
        add("encoder.conv2".into(), &[hidden, hidden, 3], true);
        add("encoder.embed_positions".into(), &[self.source_positions, hidden], false);
        add("decoder.embed_tokens".into(), &[self.vocab, hidden], false);
        add("decoder.embed_positions".into(), &[self.target_positions, hidden], false);
        for (stack, layers, ffn) in [
            ("encoder", self.encoder_layers, self.encoder_ffn),
            ("decoder", self.decoder_layers, self.decoder_ffn),
        ] {
            for layer in 0..layers {
                let layer = format!("{stack}.layers.{layer}");
                let attentions: &[&str] = if stack == "encoder" {
                    &["self_attn"]
                } else {
                    &["self_attn", "encoder_attn"]
                };
                for attention in attentions {
                    for name in ["k_proj", "v_proj", "q_proj", "out_proj"] {
                        let name = format!("{layer}.{attention}.{name}");
                        let has_bias = !name.ends_with("k_proj");
                        add(name, &[hidden, hidden], has_bias);
                    }
                    add(format!("{layer}.{attention}_layer_norm"), &[hidden], true);
                }
                add(format!("{layer}.fc1"), &[ffn, hidden], true);
                add(format!("{layer}.fc2"), &[hidden, ffn], true);
                add(format!("{layer}.final_layer_norm"), &[hidden], true);
            }
            add(format!("{stack}.layer_norm"), &[hidden], true);
        }
        tensors
    }
}

fn t5() -> T5Config {
    T5Config {
        hidden: 8,
        ffn: 12,
        encoder_layers: 2,
        decoder_layers: 3,
        heads: 4,
        head_dim: 3,
        vocab: 10,
        buckets: 6,
        max_distance: 20,
        padding: 4,
        start: 5,
        ..T5Config::default()
    }
}

fn t5_v1_1() -> T5Config {
    T5Config { gated: true, tied: false, scaled: false, ..t5() }
}

fn whisper() -> WhisperConfig {
    WhisperConfig {
        hidden: 8,
        mels: 5,
        encoder_layers: 2,
        encoder_heads: 4,
        encoder_ffn: 12,
        decoder_layers: 1,
        decoder_heads: 2,
        decoder_ffn: 14,
        source_positions: 6,
        target_positions: 7,
        vocab: 10,
        padding: Some(3),
        start: 4,
        eos: json!(2),
        ..WhisperConfig::default()
    }
}

#[test]
fn encoder_decoders_are_imported_as_they_are_exported() {
    assert_imports(&t5());
    assert_imports(&t5_v1_1());
    assert_imports(&T5Config { scaled: false, ..t5() });
    assert_imports(&T5Config { scaled: true, ..t5_v1_1() });
    assert_imports(&whisper());
    assert_imports(&WhisperConfig { padding: None, ..whisper() });
}

#[test]
fn absent_settings_of_encoder_decoders_have_their_defaults() {
    let dir = export(&t5());
    let absent = json!({
        "num_decoder_layers": null, "relative_attention_num_buckets": null, "dropout_rate": null,
        "relative_attention_max_distance": null, "feed_forward_proj": null, "layer_norm_epsilon": null,
        "initializer_factor": null, "pad_token_id": null, "decoder_start_token_id": null,
        "tie_word_embeddings": null
    });
    set(dir.path(), absent);
    let file = T5Config::read(dir.path(), &[]).unwrap();
    let found = &file.config;
    assert_eq!((found.decoder_layers, found.buckets, found.max_distance), (2, 32, 128));
    assert_eq!((found.padding, found.start, found.norm_eps), (0, 0, 1e-6));
    assert!(found.tied && found.scaled && !found.gated && found.dropout == 0.1);
    assert!(file.warnings.is_empty(), "{:?}", file.warnings);
    assert_eq!(T5::dim_sizes(found).attention.dropout, 0.1);
    let dir = export(&WhisperConfig { vocab: 51865, ..whisper() });
    let absent = json!({
        "num_mel_bins": null, "max_source_positions": null, "max_target_positions": null,
        "init_std": null, "pad_token_id": null, "decoder_start_token_id": null
    });
    set(dir.path(), absent);
    let found = WhisperConfig::read(dir.path(), &[]).unwrap().config;
    assert_eq!((found.mels, found.source_positions, found.target_positions), (80, 1500, 448));
    assert_eq!((found.start, found.init_std, found.padding), (50257, 0.02, Some(50256)));
}

#[test]
fn new_encoder_decoders_have_the_sizes_of_flags() {
    let tied = ModelSizes { tied: true, ..SIZES };
    let first = T5Config::new_model("t5", &tied, 16).unwrap();
    assert_eq!((first.ffn, first.head_dim, first.gated, first.scaled), (96, 6, false, true));
    let second = T5Config::new_model("t5", &SIZES, 16).unwrap();
    assert_eq!((second.ffn, second.gated, second.scaled, second.tied), (64, true, false, false));
    assert_eq!((second.encoder_layers, second.decoder_layers), (2, 2));
    let outline = second.outline();
    assert_eq!((outline.layers, outline.hidden, outline.longest), (4, 24, None));
    let new = WhisperConfig::new_model("whisper", &SIZES, 16).unwrap();
    assert_eq!((new.encoder_ffn, new.decoder_layers, new.target_positions), (96, 2, 16));
    assert_eq!((new.source_positions, new.outline().layers), (1500, 4));
    let text = T5Config::new_model("t5", &ModelSizes { heads: 5, ..SIZES }, 16).unwrap_err();
    assert!(text.starts_with("--heads: 5 does not divide --hidden 24"), "{text}");
    let text = T5Config::new_model("t5", &ModelSizes { kv_heads: Some(2), ..SIZES }, 16);
    assert!(text.unwrap_err().starts_with("--kv-heads: 2 differs from"));
}

#[test]
fn unsupported_t5_settings_are_refused() {
    for (change, reason) in [
        (json!({ "feed_forward_proj": "gated-silu" }), "feed_forward_proj is \"gated-silu\"; only"),
        (json!({ "feed_forward_proj": 3 }), "feed_forward_proj must be text, not 3"),
        (json!({ "dense_act_fn": "gelu" }), "dense_act_fn is \"gelu\"; only \"relu\""),
        (json!({ "is_gated_act": true }), "is_gated_act is true; only false"),
        (json!({ "is_encoder_decoder": false }), "is_encoder_decoder is false; only true"),
        (json!({ "pad_token_id": 10 }), "pad_token_id is 10, but the vocabulary has 10 tokens"),
        (json!({ "decoder_start_token_id": 64 }), "decoder_start_token_id is 64, but the"),
        (json!({ "decoder_start_token_id": "a" }), "decoder_start_token_id must be the id of a"),
        (json!({ "relative_attention_num_buckets": 5 }), "relative_attention_num_buckets is 5; it"),
        (json!({ "relative_attention_max_distance": 3 }), "max_distance is 3, but half of the 6"),
        (json!({ "dropout_rate": 1.0 }), "dropout_rate must be below 1"),
        (json!({ "num_layers": 0 }), "num_layers"),
        (json!({ "d_kv": null }), "d_kv is missing"),
        (json!({ "residual_multiplier": 0.2 }), "\"residual_multiplier\" is 0.2: this program"),
    ] {
        let dir = export(&t5());
        set(dir.path(), change);
        let text = refusal_of::<T5Config>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn unsupported_whisper_settings_are_refused() {
    for (change, reason) in [
        (
            json!({ "activation_function": "relu" }),
            "activation_function is \"relu\"; only \"gelu\"",
        ),
        (json!({ "encoder_attention_heads": 3 }), "encoder_attention_heads 3 does not divide"),
        (json!({ "decoder_attention_heads": 5 }), "decoder_attention_heads 5 does not divide"),
        (json!({ "pad_token_id": 10 }), "pad_token_id is 10, but the embedding has 10 rows"),
        (json!({ "decoder_start_token_id": null }), "decoder_start_token_id is 50257 by default"),
        (json!({ "scale_embedding": true }), "scale_embedding is true; only false"),
        (json!({ "apply_spec_augment": true }), "apply_spec_augment is true; only false"),
        (json!({ "dropout": 0.1 }), "dropout is 0.1; only 0"),
        (json!({ "encoder_layerdrop": 0.1 }), "encoder_layerdrop is 0.1; only 0"),
        (json!({ "tie_word_embeddings": false }), "tie_word_embeddings is false; only true"),
        (json!({ "d_model": 7 }), "d_model is 7; positions of the encoder need an even width"),
    ] {
        let dir = export(&whisper());
        set(dir.path(), change);
        let text = refusal_of::<WhisperConfig>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

/// Writes the tensors of a folder, and others.
fn write_more<C: TestFamily>(folder: &Path, config: &C, more: &[(&str, Vec<f32>)]) {
    let more = more.iter().map(|(name, values)| {
        ((*name).to_owned(), Dtype::F32, vec![10, 8], f32_bytes(values.clone()))
    });
    let all: Vec<_> = f32_tensors(config).into_iter().chain(more).collect();
    write_weights(&folder.join("model.safetensors"), &all);
}

/// A stored copy of the embedding is compared with it; a head that differs is a weight of its own, or refused.
#[test]
fn copies_of_embeddings_are_compared() {
    let dir = export(&t5());
    // The first tensor of the list.
    let (same, mut other) = (values(0, &[10, 8]), values(0, &[10, 8]));
    other[79] += 0.5;
    let [encoder, decoder] =
        ["encoder", "decoder"].map(|stack| format!("{stack}.embed_tokens.weight"));
    let copies = [(&*encoder, same.clone()), (&*decoder, same.clone())];
    write_more(dir.path(), &t5(), &[&copies[..], &[("lm_head.weight", same.clone())]].concat());
    weights(dir.path(), &t5());
    write_more(dir.path(), &t5(), &[(&*encoder, other.clone())]);
    let text = refusal_of::<T5Config>(dir.path());
    let reason =
        "`encoder.embed_tokens.weight` differs from `shared.weight`, which a t5 has in its place";
    assert!(text.contains(reason), "{text}");
    write_more(dir.path(), &t5(), &[("lm_head.weight", other.clone())]);
    weights(dir.path(), &T5Config { tied: false, ..t5() });

    let dir = export(&whisper());
    // The embedding is not the first one.
    let index = whisper().tensors().iter().position(|(name, _)| name.contains("embed_tokens"));
    let same = values(index.unwrap(), &[10, 8]);
    write_more(dir.path(), &whisper(), &[("proj_out.weight", same)]);
    weights(dir.path(), &whisper());
    write_more(dir.path(), &whisper(), &[("proj_out.weight", other)]);
    let text = refusal_of::<WhisperConfig>(dir.path());
    let reason =
        "`proj_out.weight` differs from `model.decoder.embed_tokens.weight`, which a whisper takes";
    assert!(text.contains(reason), "{text}");
}
