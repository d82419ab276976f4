"""Cases of OLMo 2, with norms after each branch, and of GPT-NeoX, with both kinds of residual stream."""

from decoder_cases import DEFAULT, EPS, PADDING, THETA
from family_case import Mutation, family, without, zeroed

NEOX = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}


def of_neox(is_parallel, base, part):
    return [
        Mutation("eps of norms", {"layer_norm_eps": 1e-5}),
        Mutation("base of rope", {base: 10000.0}),
        Mutation("a part that is rotated", {part: 0.25}),
        Mutation("other residual stream", {"use_parallel_residual": not is_parallel}),
        Mutation("activation", {"hidden_act": "silu"}),
        Mutation("approximate gelu", {"hidden_act": "gelu_new"}, is_fine=True),
        Mutation("no biases of attention", {"attention_bias": False}),
        Mutation("no biases of norms", edit=zeroed("norm.bias")),
        Mutation("no biases of the MLP", edit=zeroed("h_to_4h.bias")),
        Mutation("no biases after the MLP", edit=zeroed("4h_to_h.bias")),
    ]


CASES = [
    family("olmo2", 41, "Olmo2ForCausalLM", {"rope_parameters": DEFAULT},
           [
               PADDING, EPS, THETA,
               Mutation("no norm after attention", edit=without("post_attention_layernorm")),
               Mutation("no norm after the MLP", edit=without("post_feedforward_layernorm")),
               Mutation("no norm of queries", edit=without("q_norm")),
               Mutation("no norm of keys", edit=without("k_norm")),
           ]),
    family("gpt_neox", 42, "GPTNeoXForCausalLM", {"use_parallel_residual": True} | NEOX,
           of_neox(True, "rope_parameters.rope_theta", "rope_parameters.partial_rotary_factor")),
    family("gpt_neox_serial", 43, "GPTNeoXForCausalLM", {"use_parallel_residual": False} | NEOX,
           of_neox(False, "rotary_emb_base", "rotary_pct"), dropped=("rope_parameters",),
           older={"rotary_pct": 0.5, "rotary_emb_base": 100}),
]
