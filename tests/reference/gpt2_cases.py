"""The GPT-2 cases."""

from dataclasses import dataclass

from transformers import GPT2Config, GPT2LMHeadModel

from case import INIT_STD, LAYERS, Case


@dataclass
class Gpt2Case(Case):
    """One GPT-2 and its data, without dropout."""

    positions: int

    model_class = GPT2LMHeadModel
    # Not the biases of keys: softmax does not see them, so their gradients are noise.
    final_parameters = [
        "transformer.wte.weight",
        "transformer.wpe.weight",
        "transformer.h.0.attn.c_attn.weight",
        "transformer.h.0.attn.c_proj.bias",
        "transformer.h.1.ln_2.bias",
        "transformer.h.1.mlp.c_proj.weight",
        "transformer.ln_f.weight",
    ]

    def config(self):
        return GPT2Config(
            vocab_size=self.vocab,
            n_embd=self.hidden,
            n_inner=None if self.ffn == 4 * self.hidden else self.ffn,
            n_layer=LAYERS,
            n_head=self.heads,
            n_positions=self.positions,
            layer_norm_epsilon=self.eps,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            initializer_range=INIT_STD,
            bos_token_id=1,
            eos_token_id=2,
            use_cache=False,
            dtype="float32",
        )


CASES = [
    Gpt2Case("gpt2", 6, 32, 128, 4, 101, 24, positions=24, eps=1e-3),
    Gpt2Case("gpt2_masked_sharded", 7, 40, 72, 5, 128, 16, positions=30, masked=True, clip=2.8,
             max_shard_size="40KB"),
]
