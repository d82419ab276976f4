//! The tensors that `transformers` stores for a configuration, as test expectations.

use meshwright_store::checkpoint::hf::HfConfig;

use crate::{DecoderConfig, Gpt2Config, MixtralConfig};

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
