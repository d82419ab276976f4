"""The Mixtral cases."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.models.mixtral import modeling_mixtral

from case import INIT_STD, LAYERS, Case
from llama_cases import exact_norm, exact_rope

EXPERTS, TOP_K = 4, 2


@dataclass
class MixtralCase(Case):
    """One Mixtral and its data. `balance` is the weight of the load-balancing loss of each layer."""

    kv_heads: int
    rope_theta: float
    tied: bool = False
    balance: float = 0.0

    model_class = MixtralForCausalLM
    final_parameters = [
        "model.embed_tokens.weight",
        "model.layers.0.block_sparse_moe.gate.weight",
        "model.layers.0.block_sparse_moe.experts.3.w1.weight",
        "model.layers.1.block_sparse_moe.experts.1.w2.weight",
        "model.layers.1.block_sparse_moe.experts.2.w3.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.norm.weight",
    ]

    def config(self):
        return MixtralConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.ffn,
            num_hidden_layers=LAYERS,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
            num_local_experts=EXPERTS,
            num_experts_per_tok=TOP_K,
            rms_norm_eps=self.eps,
            max_position_embeddings=64,
            initializer_range=INIT_STD,
            router_aux_loss_coef=self.balance,
            tie_word_embeddings=self.tied,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            use_cache=False,
            dtype="float32",
        )

    def load_model(self, folder, dtype):
        model = super().load_model(folder, dtype)
        # The grouped matmul, which is the default, is not there in f64.
        model.set_experts_implementation("eager")
        return model

    def forward(self, model, tokens):
        return model(input_ids=tokens, output_router_logits=True)

    def penalty(self, output):
        """The load-balancing loss of each layer. `load_balancing_loss_func` is `top_k` times as large, and for several
        layers it is computed from their mean numbers."""
        losses = [balance_loss(logits) for logits in output.router_logits]
        for logits, loss in zip(output.router_logits, losses):
            theirs = modeling_mixtral.load_balancing_loss_func((logits,), EXPERTS, TOP_K)
            assert abs(loss.item() * TOP_K / theirs.item() - 1) < 1e-6
        return self.balance * sum(losses)

    def stored(self, tensors):
        """Checkpoints have a tensor for each expert; in memory, all are in one, and gate and up are fused."""
        stored = {}
        for name, value in tensors.items():
            name = name.replace(".mlp.", ".block_sparse_moe.")
            layer, is_of_experts, projection = name.partition(".experts.")
            if not is_of_experts:
                stored[name] = value
                continue
            for expert, weight in enumerate(value):
                prefix = f"{layer}.experts.{expert}"
                if projection == "gate_up_proj":
                    stored[f"{prefix}.w1.weight"], stored[f"{prefix}.w3.weight"] = weight.chunk(2)
                else:
                    stored[f"{prefix}.w2.weight"] = weight
        return stored

    @contextmanager
    def exact(self):
        """Norms, the RoPE table and the router in the model's own precision."""
        norm, rope = modeling_mixtral.MixtralRMSNorm, modeling_mixtral.MixtralRotaryEmbedding
        router = modeling_mixtral.MixtralTopKRouter
        original = norm.forward, rope.forward, router.forward
        norm.forward, rope.forward, router.forward = exact_norm, exact_rope, exact_router
        yield
        norm.forward, rope.forward, router.forward = original


def balance_loss(logits):
    """Equation 4 of "Switch Transformers", with the fraction of choices instead of tokens."""
    probabilities = logits.softmax(dim=-1)
    chosen = probabilities.topk(TOP_K).indices
    fractions = torch.nn.functional.one_hot(chosen, EXPERTS).to(logits.dtype).mean(dim=(0, 1))
    return EXPERTS * (fractions * probabilities.mean(dim=0)).sum()


def exact_router(self, x):
    """The router in the input's own precision; transformers computes its softmax in f32."""
    logits = torch.nn.functional.linear(x.reshape(-1, self.hidden_dim), self.weight)
    scores, chosen = torch.topk(logits.softmax(dim=-1), self.top_k, dim=-1)
    return logits, scores / scores.sum(dim=-1, keepdim=True), chosen


CASES = [
    MixtralCase("mixtral_masked_sharded", 8, 32, 24, 4, 61, 24, kv_heads=2, rope_theta=1e6,
                masked=True, clip=2.8, max_shard_size="40KB"),
    MixtralCase("mixtral_balanced", 9, 32, 24, 4, 61, 16, kv_heads=4, rope_theta=100.0, eps=1e-3,
                tied=True, balance=0.01),
]
