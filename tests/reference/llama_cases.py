"""The Llama cases."""

import json
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

import rope_tables
from case import INIT_STD, LAYERS, Case


@dataclass
class LlamaCase(Case):
    """One Llama and its data. `head_dim` None leaves hidden / heads."""

    kv_heads: int
    rope_theta: float
    head_dim: int | None = None
    tied: bool = False
    plain_rope_theta: bool = False
    rope_scaling: dict | None = None
    max_positions: int = 64

    model_class = LlamaForCausalLM
    final_parameters = [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.norm.weight",
    ]

    def config(self):
        return LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.ffn,
            num_hidden_layers=LAYERS,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            rms_norm_eps=self.eps,
            max_position_embeddings=self.max_positions,
            initializer_range=INIT_STD,
            tie_word_embeddings=self.tied,
            pad_token_id=self.padding,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta}
            | (self.rope_scaling or {}),
            use_cache=False,
            dtype="float32",
        )

    def save_model(self, model, folder):
        """Older checkpoints have `rope_theta` at the top of config.json."""
        super().save_model(model, folder)
        if self.plain_rope_theta:
            path = folder / "config.json"
            config = json.loads(path.read_text())
            config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
            path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    @contextmanager
    def exact(self):
        """Norms and the RoPE table in the model's own precision."""
        norm, rope = modeling_llama.LlamaRMSNorm, modeling_llama.LlamaRotaryEmbedding
        original = norm.forward, rope.forward
        norm.forward, rope.forward = exact_norm, exact_rope
        yield
        norm.forward, rope.forward = original


def exact_norm(self, x):
    """RMSNorm in the input's own precision; transformers always computes it in f32."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def exact_rope(self, x, position_ids):
    """The RoPE table in the input's own precision; transformers computes it in f32."""
    per_position, magnitude = rope_tables.frequencies(self.config)
    angles = (position_ids[..., None].to(x.dtype) * per_position).repeat(1, 1, 2)
    return angles.cos() * magnitude, angles.sin() * magnitude


# Of the four pairs of a head one keeps its frequency, one is interpolated, and two are divided by 8.
LLAMA3_SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

CASES = [
    LlamaCase("untied_mha", 1, 32, 80, 4, 101, 24, kv_heads=4, rope_theta=10000.0, clip=2.8),
    LlamaCase("tied_gqa", 2, 64, 96, 8, 128, 16, kv_heads=2, rope_theta=10000.0, eps=1e-3,
              tied=True),
    LlamaCase("wide_head_masked", 3, 48, 72, 4, 101, 20, kv_heads=2, rope_theta=500000.0,
              head_dim=16, masked=True),
    LlamaCase("tied_masked_plain_theta", 4, 32, 64, 4, 101, 24, kv_heads=2, rope_theta=500.0,
              tied=True, masked=True, plain_rope_theta=True),
    LlamaCase("sharded_files", 5, 40, 64, 8, 128, 16, kv_heads=2, rope_theta=100.0, head_dim=8,
              eps=1e-6, plain_rope_theta=True, max_shard_size="40KB"),
    LlamaCase("llama3_scaling", 6, 32, 48, 4, 61, 24, kv_heads=2, rope_theta=500.0,
              rope_scaling=LLAMA3_SCALING, max_positions=512),
    LlamaCase("padding_row", 10, 32, 48, 4, 61, 16, kv_heads=2, rope_theta=10000.0, padding=3,
              masked=True),
    LlamaCase("tied_padding_row", 11, 32, 48, 4, 61, 16, kv_heads=4, rope_theta=500.0, padding=60,
              tied=True),
]
