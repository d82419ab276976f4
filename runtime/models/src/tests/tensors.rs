//! The tensors that `transformers` stores for a configuration, as test expectations.

use meshwright_store::checkpoint::hf::HfConfig;

use crate::{
    DecoderConfig, GemmaConfig, GemmaKind, Gpt2Config, GptNeoxConfig, MixtralConfig, Olmo2Config,
};

/// A family with a list of its tensors.
pub trait TestFamily: HfConfig {
    /// Returns name and shape of every tensor.
    fn tensors(&self) -> Vec<(String, Vec<usize>)>;
}

impl TestFamily for DecoderConfig {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut tensors = vec![("model.embed_tokens.weight".into(), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: &[usize], has_bias: bool| {
                let name = format!("model.layers.{layer}.{name}");
                tensors.push((format!("{name}.weight"), shape.to_vec()));
                if has_bias {
                    tensors.push((format!("{name}.bias"), vec![shape[0]]));
                }
            };
            add("input_layernorm", &[hidden], false);
            let is_fused = self.row.model_type == "phi3";
            if is_fused {
                add("self_attn.qkv_proj", &[q + 2 * kv, hidden], false);
            } else {
                add("self_attn.q_proj", &[q, hidden], self.qkv_bias);
                add("self_attn.k_proj", &[kv, hidden], self.qkv_bias);
                add("self_attn.v_proj", &[kv, hidden], self.qkv_bias);
            }
            if self.row.qk_norm {
                add("self_attn.q_norm", &[self.head_dim], false);
                add("self_attn.k_norm", &[self.head_dim], false);
            }
            add("self_attn.o_proj", &[hidden, q], self.output_bias);
            add("post_attention_layernorm", &[hidden], false);
            if is_fused {
                add("mlp.gate_up_proj", &[2 * ffn, hidden], false);
            } else {
                add("mlp.gate_proj", &[ffn, hidden], self.mlp_bias);
                add("mlp.up_proj", &[ffn, hidden], self.mlp_bias);
            }
            add("mlp.down_proj", &[hidden, ffn], self.mlp_bias);
        }
        tensors.push(("model.norm.weight".into(), vec![hidden]));
        if !self.tied {
            tensors.push(("lm_head.weight".into(), vec![self.vocab, hidden]));
        }
        tensors
    }
}

impl TestFamily for MixtralConfig {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut tensors = vec![("model.embed_tokens.weight".into(), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: [usize; 2]| {
                tensors.push((format!("model.layers.{layer}.{name}.weight"), shape.to_vec()));
            };
            add("self_attn.q_proj", [q, hidden]);
            add("self_attn.k_proj", [kv, hidden]);
            add("self_attn.v_proj", [kv, hidden]);
            add("self_attn.o_proj", [hidden, q]);
            add("block_sparse_moe.gate", [self.experts, hidden]);
            for expert in 0..self.experts {
                let expert = format!("block_sparse_moe.experts.{expert}");
                add(&format!("{expert}.w1"), [ffn, hidden]);
                add(&format!("{expert}.w2"), [hidden, ffn]);
                add(&format!("{expert}.w3"), [ffn, hidden]);
            }
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                tensors.push((format!("model.layers.{layer}.{norm}.weight"), vec![hidden]));
            }
        }
        tensors.push(("model.norm.weight".into(), vec![hidden]));
        if !self.tied {
            tensors.push(("lm_head.weight".into(), vec![self.vocab, hidden]));
        }
        tensors
    }
}

impl TestFamily for Gpt2Config {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let mut tensors = vec![
            ("transformer.wte.weight".to_owned(), vec![self.vocab, hidden]),
            ("transformer.wpe.weight".to_owned(), vec![self.positions, hidden]),
        ];
        let with_bias = |prefix: String, shape: Vec<usize>| {
            let bias = vec![shape[shape.len() - 1]];
            [(format!("{prefix}.weight"), shape), (format!("{prefix}.bias"), bias)]
        };
        for layer in 0..self.layers {
            for (name, shape) in [
                ("ln_1", vec![hidden]),
                ("attn.c_attn", vec![hidden, 3 * hidden]),
                ("attn.c_proj", vec![hidden, hidden]),
                ("ln_2", vec![hidden]),
                ("mlp.c_fc", vec![hidden, ffn]),
                ("mlp.c_proj", vec![ffn, hidden]),
            ] {
                tensors.extend(with_bias(format!("transformer.h.{layer}.{name}"), shape));
            }
        }
        tensors.extend(with_bias("transformer.ln_f".to_owned(), vec![hidden]));
        tensors
    }
}

impl TestFamily for GemmaConfig {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn, head_dim) = (self.hidden, self.ffn, self.head_dim);
        let (q, kv) = (self.heads * head_dim, self.kv_heads * head_dim);
        let prefix = if self.kind == GemmaKind::Gemma3 { "language_model.model" } else { "model" };
        let mut tensors = vec![(format!("{prefix}.embed_tokens.weight"), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: &[usize], has_bias: bool| {
                let name = format!("{prefix}.layers.{layer}.{name}");
                tensors.push((format!("{name}.weight"), shape.to_vec()));
                if has_bias {
                    tensors.push((format!("{name}.bias"), vec![shape[0]]));
                }
            };
            for (name, rows) in [("q", q), ("k", kv), ("v", kv)] {
                add(&format!("self_attn.{name}_proj"), &[rows, hidden], self.biases);
            }
            add("self_attn.o_proj", &[hidden, q], self.biases);
            if self.kind != GemmaKind::Gemma2 {
                add("self_attn.q_norm", &[head_dim], false);
                add("self_attn.k_norm", &[head_dim], false);
            }
            add("mlp.gate_proj", &[ffn, hidden], false);
            add("mlp.up_proj", &[ffn, hidden], false);
            add("mlp.down_proj", &[hidden, ffn], false);
            for norm in ["input", "post_attention", "pre_feedforward", "post_feedforward"] {
                add(&format!("{norm}_layernorm"), &[hidden], false);
            }
        }
        tensors.push((format!("{prefix}.norm.weight"), vec![hidden]));
        if !self.tied {
            tensors.push(("lm_head.weight".into(), vec![self.vocab, hidden]));
        }
        tensors
    }
}

impl TestFamily for Olmo2Config {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut tensors = vec![("model.embed_tokens.weight".into(), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            let block: [(&str, Vec<usize>); 11] = [
                ("self_attn.q_proj", vec![q, hidden]),
                ("self_attn.k_proj", vec![kv, hidden]),
                ("self_attn.v_proj", vec![kv, hidden]),
                ("self_attn.o_proj", vec![hidden, q]),
                ("self_attn.q_norm", vec![q]),
                ("self_attn.k_norm", vec![kv]),
                ("mlp.gate_proj", vec![ffn, hidden]),
                ("mlp.up_proj", vec![ffn, hidden]),
                ("mlp.down_proj", vec![hidden, ffn]),
                ("post_attention_layernorm", vec![hidden]),
                ("post_feedforward_layernorm", vec![hidden]),
            ];
            let named = |(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape);
            tensors.extend(block.map(named));
        }
        tensors.push(("model.norm.weight".into(), vec![hidden]));
        if !self.tied {
            tensors.push(("lm_head.weight".into(), vec![self.vocab, hidden]));
        }
        tensors
    }
}

impl TestFamily for GptNeoxConfig {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let mut tensors = vec![("gpt_neox.embed_in.weight".to_owned(), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            for (name, shape) in [
                ("input_layernorm", vec![hidden]),
                ("post_attention_layernorm", vec![hidden]),
                ("attention.query_key_value", vec![3 * hidden, hidden]),
                ("attention.dense", vec![hidden, hidden]),
                ("mlp.dense_h_to_4h", vec![ffn, hidden]),
                ("mlp.dense_4h_to_h", vec![hidden, ffn]),
            ] {
                let (name, bias) = (format!("gpt_neox.layers.{layer}.{name}"), vec![shape[0]]);
                tensors.push((format!("{name}.weight"), shape));
                tensors.push((format!("{name}.bias"), bias));
            }
        }
        for part in ["weight", "bias"] {
            tensors.push((format!("gpt_neox.final_layer_norm.{part}"), vec![hidden]));
        }
        if !self.tied {
            tensors.push(("embed_out.weight".into(), vec![self.vocab, hidden]));
        }
        tensors
    }
}
