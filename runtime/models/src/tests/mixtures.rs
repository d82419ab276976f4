//! `config.json` of families with mixtures of experts.

use super::*;

fn read<C: HfConfig>(settings: &Value) -> Result<C, String> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), settings.to_string()).unwrap();
    C::read(dir.path(), &[]).map(|file| file.config).map_err(|error| error.to_string())
}

/// Changes keys of a file, and returns the message with which it is refused.
#[track_caller]
fn refusal<C: HfConfig>(published: &Value, changes: Value) -> String {
    let mut settings = published.clone();
    let keys = settings.as_object_mut().unwrap();
    keys.extend(changes.as_object().unwrap().clone());
    read::<C>(&settings).err().expect("the file is refused")
}

/// The published DeepSeek-V3, without the key of its quantization.
fn deepseek_v3() -> Value {
    let text = r#"{
        "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "auto_map": { "AutoConfig": "configuration_deepseek.DeepseekV3Config" }, "aux_loss_alpha": 0.001,
        "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
        "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
        "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
        "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
        "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1, "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rms_norm_eps": 1e-6, "rope_scaling": { "beta_fast": 32, "beta_slow": 1,
        "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
        "type": "yarn" }, "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
        "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128,
        "vocab_size": 129280
    }"#;
    serde_json::from_str(text).unwrap()
}

#[test]
fn settings_of_a_published_deepseek_are_understood() {
    let config: DeepseekConfig = read(&deepseek_v3()).unwrap();
    assert_eq!((config.experts, config.top_k, config.query_latent), (256, 8, Some(1536)));
    let groups = config.groups().map(|groups| (groups.count, groups.best, groups.top));
    assert_eq!(groups, Some((8, 4, 2)));
    assert_eq!(config.kinds()[..4], ["Dense", "Dense", "Dense", "Moe"]);
    assert_eq!(config.router, expert_keys::RouterTraining::default());
    // `1 / sqrt(192) (0.1 ln 40 + 1)^2`.
    assert!((config.attention_scale() - 0.135_234).abs() < 1e-6, "{}", config.attention_scale());
    let of_next = config.tensor_role("model.layers.61.embed_tokens.weight");
    assert_eq!(of_next, TensorRole::Unused);
    let beyond = "model.layers.62.embed_tokens.weight";
    assert_eq!(config.tensor_role(beyond), TensorRole::Model(beyond.into()));
    // Exports have none of the further layers.
    let written: DeepseekConfig = read(&config.to_json()).unwrap();
    assert_eq!(written, DeepseekConfig { further_layers: 0, ..config });
}

#[test]
fn deepseeks_that_are_not_supported_are_refused_by_key() {
    for (changes, reason) in [
        (json!({ "n_group": 7 }), "n_group 7 and topk_group 4 do not fit n_routed_experts 256"),
        (json!({ "topk_group": 9 }), "tokens choose from 9 of 8 groups"),
        (
            json!({ "n_routed_experts": 32, "n_group": 32, "topk_group": 8 }),
            "groups of 1 experts are scored by their 2 best ones",
        ),
        (json!({ "n_group": 64 }), "there are 64 groups, and can be 1 to 32"),
        (
            json!({ "n_routed_experts": 4, "n_group": 1, "topk_group": 1 }),
            "num_experts_per_tok 8 is more than n_routed_experts 4",
        ),
        (json!({ "num_key_value_heads": 8 }), "num_key_value_heads is 8, but latent attention"),
        (json!({ "qk_rope_head_dim": 63 }), "qk_rope_head_dim 63 is odd"),
        (json!({ "qk_head_dim": 128 }), "qk_head_dim is 128, but 192 follows from"),
        (json!({ "scoring_func": "softmax" }), "scoring_func"),
        (json!({ "moe_layer_freq": 2 }), "moe_layer_freq is 2"),
        (json!({ "attention_bias": true }), "attention_bias is true"),
        (json!({ "first_k_dense_replace": -1 }), "first_k_dense_replace"),
        (
            json!({ "num_nextn_predict_layers": "x" }),
            "num_nextn_predict_layers must be a whole number",
        ),
        (json!({ "quantization_config": { "quant_method": "fp8" } }), "quantized (fp8)"),
    ] {
        let text = refusal::<DeepseekConfig>(&deepseek_v3(), changes);
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn settings_of_a_published_qwen3_moe_are_understood() {
    let published = json!({
        "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
        "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
        "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
        "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-6, "rope_scaling": null,
        "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
        "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
    });
    let config: MoeDecoderConfig = read(&published).unwrap();
    assert_eq!((config.experts, config.top_k, config.ffn, config.normalize), (128, 8, 768, true));
    let written: MoeDecoderConfig = read(&config.to_json()).unwrap();
    assert_eq!(written, config);
    for (changes, reason) in [
        (json!({ "num_experts": 4 }), "num_experts_per_tok 8 is more than num_experts 4"),
        (
            json!({ "num_experts_per_tok": 33 }),
            "num_experts_per_tok is 33; a token can choose at most 32 experts",
        ),
        (
            json!({ "sliding_window": "x" }),
            "sliding_window must be a whole number, or null, not \"x\"",
        ),
        (json!({ "max_window_layers": {} }), "max_window_layers must be a whole number, or null"),
        (
            json!({ "vocab_size": 4294967296u64 }),
            "vocab_size is 4294967296; it can be at most 4294967295",
        ),
        (
            json!({ "hidden_size": 1e12 }),
            "hidden_size is 1000000000000.0; it can be at most 429496",
        ),
        (
            json!({ "rope_theta": 1e4, "rope_parameters": { "rope_theta": 1e6 } }),
            "rope_theta is 10000, but rope_parameters.rope_theta is 1000000; leave one of them out",
        ),
        (json!({ "mlp_only_layers": [0] }), "mlp_only_layers is [0]"),
        (json!({ "decoder_sparse_step": 2 }), "decoder_sparse_step is 2"),
        (json!({ "router_bias_rate": 0.1 }), "\"router_bias_rate\" is 0.1: this program does not"),
        (json!({ "use_sliding_window": true, "sliding_window": 4096 }), "sliding_window is 4096"),
    ] {
        let text = refusal::<MoeDecoderConfig>(&published, changes);
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn settings_of_a_published_gpt_oss_are_understood() {
    let published = json!({
        "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
        "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
        "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
        "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
        "num_experts_per_tok": 4, "num_hidden_layers": 2, "num_key_value_heads": 8, "num_local_experts": 32,
        "output_router_logits": false, "pad_token_id": 199999, "rms_norm_eps": 1e-5, "rope_scaling":
        { "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        "rope_type": "yarn", "truncate": false }, "rope_theta": 150000, "router_aux_loss_coef": 0.9,
        "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
        "transformers_version": "4.55.0.dev0", "use_cache": true, "vocab_size": 201088
    });
    let config: GptOssConfig = read(&published).unwrap();
    assert_eq!(config.windows(), [Some(128), None]);
    assert_eq!((config.experts, config.top_k, config.biases), (32, 4, true));
    let written: GptOssConfig = read(&config.to_json()).unwrap();
    assert_eq!(written, config);
    for (changes, reason) in [
        (
            json!({ "experts_per_token": 2 }),
            "experts_per_token is 2, but num_experts_per_tok is 4; leave one of them out",
        ),
        (json!({ "swiglu_limit": -1.0 }), "swiglu_limit must be a number of at least 0, not -1.0"),
        (json!({ "layer_types": ["full_attention"] }), "layer_types has 1 entries"),
        (json!({ "sliding_window": null }), "sliding_window is null, but layer_types has layers"),
        (json!({ "quantization_config": { "quant_method": "mxfp4" } }), "quantized (mxfp4)"),
    ] {
        let text = refusal::<GptOssConfig>(&published, changes);
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}
