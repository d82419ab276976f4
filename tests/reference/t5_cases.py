"""Cases of T5: of the first kind, and of version 1.1.

Usage: python t5_cases.py [--out DIR]
"""

import torch

from case import INIT_STD
from family_case import Mutation
from generate import BATCH
from seq2seq_case import DataMutation, Seq2SeqCase, main

SOURCE = 20
KEYS = {
    "vocab_size": 64, "d_model": 32, "d_ff": 24, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10, "dropout_rate": 0.0,
    "layer_norm_epsilon": 0.03, "pad_token_id": 5, "eos_token_id": 1, "decoder_start_token_id": 9, "use_cache": False,
}


class T5Case(Seq2SeqCase):
    """Targets are the tokens of the source, in reverse, each with some noise."""

    def new_model(self, config):
        model = self.model_class(config)
        if self.has_own_head:  # transformers ties the head of every new T5.
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        return model

    @property
    def has_own_head(self):
        return not self.older.get("tie_word_embeddings", True)

    def spread(self, name):
        others = {"relative_attention_bias.weight": 1.0, "lm_head.weight": 0.05}
        return next((std for end, std in others.items() if name.endswith(end)), 0.16 if self.has_own_head else INIT_STD)

    def sources(self, rng):
        ids = torch.from_numpy(rng.integers(self.keys["vocab_size"], size=(BATCH, SOURCE)))
        lengths = torch.from_numpy(rng.integers(1, SOURCE + 1, BATCH))
        mask = (torch.arange(SOURCE) < lengths[:, None]).long()
        ids[mask == 0] = self.keys["pad_token_id"]
        return {"input_ids": ids, "attention_mask": mask}

    def targets(self, batch, rng):
        noise = super().targets(batch, rng)
        copied = batch["input_ids"].numpy()[:, : self.target][:, ::-1]
        return torch.where(torch.from_numpy(rng.random(noise.shape) < 0.5), torch.from_numpy(noise),
                           torch.from_numpy(copied.copy())).numpy()


def without_bias(stack):
    def edit(model):
        getattr(model, stack).block[0].layer[0].SelfAttention.relative_attention_bias.weight.zero_()

    return edit


def bias_of_first_layer_only(stack):
    """The other layers have none."""

    def edit(model):
        for block in getattr(model, stack).block[1:]:
            attention = block.layer[0].SelfAttention
            forward = attention.forward
            attention.forward = lambda *args, forward=forward, **kwargs: forward(
                *args, **(kwargs | {"position_bias": torch.zeros_like(kwargs["position_bias"])}))

    return edit


def bucketed_as(stack, is_decoder):
    def edit(model):
        getattr(model, stack).block[0].layer[0].SelfAttention.is_decoder = is_decoder

    return edit


def scaled_scores(model):
    for module in model.modules():
        if hasattr(module, "scaling"):
            module.scaling = 32**-0.5


def without_norm(stack):
    def edit(model):
        getattr(model, stack).final_layer_norm = torch.nn.Identity()

    return edit


def unmasked(batch):
    return batch | {"attention_mask": torch.ones_like(batch["attention_mask"])}


def masked_in_encoder_only(model):
    """Cross-attention reads padding."""
    for block in model.decoder.block:
        attention = block.layer[1].EncDecAttention
        forward = attention.forward
        attention.forward = lambda *args, forward=forward, **kwargs: forward(*args, **(kwargs | {"mask": None}))


def masked_in_decoder_only(model):
    for block in model.encoder.block:
        attention = block.layer[0].SelfAttention
        forward = attention.forward
        attention.forward = lambda *args, forward=forward, **kwargs: forward(*args, **(kwargs | {"mask": None}))


COMMON = [
    Mutation("epsilon", {"layer_norm_epsilon": 1e-6}),
    Mutation("farthest distance", {"relative_attention_max_distance": 19}),
    Mutation("start token", {"decoder_start_token_id": 10}),
    Mutation("token behind ignored targets", {"pad_token_id": 6}),
    *(Mutation(f"no bias in the {stack}", edit=without_bias(stack)) for stack in ("encoder", "decoder")),
    *(Mutation(f"bias in the first layer of the {stack} only", edit=bias_of_first_layer_only(stack))
      for stack in ("encoder", "decoder")),
    Mutation("buckets of a decoder in the encoder", edit=bucketed_as("encoder", True)),
    Mutation("buckets of an encoder in the decoder", edit=bucketed_as("decoder", False)),
    Mutation("scaled scores", edit=scaled_scores),
    *(Mutation(f"no norm after the {stack}", edit=without_norm(stack)) for stack in ("encoder", "decoder")),
    DataMutation("no padding", change=unmasked),
    Mutation("padding in the encoder only", edit=masked_in_encoder_only),
    Mutation("padding in cross-attention only", edit=masked_in_decoder_only),
]

CASES = [
    T5Case("t5", 61, "T5ForConditionalGeneration", KEYS | {"d_kv": 6, "feed_forward_proj": "relu"}, [
        *COMMON,
        Mutation("output of the decoder as it is", {"scale_decoder_outputs": False}),
        Mutation("activation", {"feed_forward_proj": "gelu", "dense_act_fn": "gelu"}),
    ]),
    T5Case("t5_v1_1", 62, "T5ForConditionalGeneration",
           KEYS | {"d_kv": 10, "num_layers": 3, "num_decoder_layers": 2, "feed_forward_proj": "gated-gelu"}, [
               *COMMON,
               Mutation("scaled output of the decoder", {"scale_decoder_outputs": True}),
               Mutation("activation", {"feed_forward_proj": "gated-silu"}),
           ], dropped=("scale_decoder_outputs", "dense_act_fn", "is_gated_act"), older={"tie_word_embeddings": False},
           lr=1e-3),
]

if __name__ == "__main__":
    main(CASES, __doc__)
