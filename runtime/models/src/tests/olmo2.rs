//! OLMo 2 folders.

use meshwright_store::family::Family;

use super::*;

fn olmo2() -> Olmo2Config {
    Olmo2Config {
        hidden: 8,
        ffn: 12,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        vocab: 10,
        rope: RopeParameters::with_theta(5e5),
        max_positions: 64,
        padding: Some(1),
        eos: json!(3),
        ..Olmo2Config::default()
    }
}

#[test]
fn olmos_are_imported_as_they_are_exported() {
    assert_imports(&olmo2());
    assert_imports(&Olmo2Config { tied: true, padding: None, ..olmo2() });
}

#[test]
fn absent_olmo2_settings_have_their_defaults() {
    let dir = export(&olmo2());
    set(
        dir.path(),
        json!({ "pad_token_id": null, "rms_norm_eps": null, "head_dim": null, "num_key_value_heads": null,
            "rope_parameters": null, "rope_theta": null }),
    );
    let found = Olmo2Config::read(dir.path(), &[]).unwrap().config;
    assert_eq!((found.padding, found.norm_eps, found.head_dim), (Some(1), 1e-5, 2));
    assert_eq!((found.kv_heads, found.rope), (4, RopeParameters::default()));
    let new = Olmo2Config::new_model("olmo2", &SIZES, 16).unwrap();
    assert_eq!((new.head_dim, new.ffn, new.padding, new.tied), (6, 64, None, false));
}

#[test]
fn unsupported_olmo2_settings_are_refused() {
    for (change, reason) in [
        (json!({ "hidden_act": "gelu" }), "hidden_act is \"gelu\"; only \"silu\""),
        (json!({ "attention_dropout": 0.1 }), "attention_dropout is 0.1; only 0"),
        (json!({ "num_key_value_heads": 3 }), "num_key_value_heads 3 does not divide"),
        (json!({ "clip_qkv": 8.0 }), "\"clip_qkv\" is 8.0: this program does not know"),
        (json!({ "sliding_window": 8 }), "\"sliding_window\" is 8: this program does not know"),
        (
            json!({ "rope_parameters": { "partial_rotary_factor": 0.5 } }),
            "partial_rotary_factor is 0.5; transformers rotates whole heads",
        ),
    ] {
        let dir = export(&olmo2());
        set(dir.path(), change);
        let text = refusal_of::<Olmo2Config>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}
