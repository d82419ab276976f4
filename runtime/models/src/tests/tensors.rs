//! The tensors that `transformers` stores for a configuration, as test expectations.

use meshwright_store::checkpoint::hf::HfConfig;

use crate::{Gpt2Config, LlamaConfig, MixtralConfig};

/// A family with a list of its tensors.
pub trait TestFamily: HfConfig {
    /// Returns name and shape of every tensor.
    fn tensors(&self) -> Vec<(String, Vec<usize>)>;
}

impl TestFamily for LlamaConfig {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut tensors = vec![("model.embed_tokens.weight".into(), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            let block: [(&str, Vec<usize>); 9] = [
                ("input_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![q, hidden]),
                ("self_attn.k_proj", vec![kv, hidden]),
                ("self_attn.v_proj", vec![kv, hidden]),
                ("self_attn.o_proj", vec![hidden, q]),
                ("post_attention_layernorm", vec![hidden]),
                ("mlp.gate_proj", vec![ffn, hidden]),
                ("mlp.up_proj", vec![ffn, hidden]),
                ("mlp.down_proj", vec![hidden, ffn]),
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
