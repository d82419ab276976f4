"""Cases of Qwen3-MoE and gpt-oss. Those of Mixtral are in a file of their own."""

from decoder_cases import EPS, LINEAR, PADDING, THETA, window
from family_case import Mutation, family, replaced, without, zeroed

YARN = {
    "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 1.0, "beta_slow": 0.1, "truncate": False,
    "original_max_position_embeddings": 16,
}

CASES = [
    family("qwen3_moe", 51, "Qwen3MoeForCausalLM",
           {"head_dim": 12, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 8,
            "norm_topk_prob": True, "router_aux_loss_coef": 0.0, "rope_parameters": LINEAR},
           [
               PADDING, EPS, THETA,
               Mutation("weights of experts as they are", {"norm_topk_prob": False}),
               Mutation("fewer experts", {"num_experts_per_tok": 2}),
               Mutation("more experts", {"num_experts_per_tok": 4}),
               Mutation("no norm of queries", edit=without("q_norm")),
               Mutation("no norm of keys", edit=without("k_norm")),
           ]),
    family("gpt_oss", 52, "GptOssForCausalLM",
           {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.0,
            "sliding_window": 6, "swiglu_limit": 0.8, "swiglu_alpha": 1.3, "rope_parameters": YARN},
           [
               PADDING, EPS, THETA, *window(6),
               Mutation("windows in other layers", {"layer_types": ["full_attention", "sliding_attention"]}),
               Mutation("no windows", {"layer_types": ["full_attention", "full_attention"]}),
               Mutation("limit of gates", {"swiglu_limit": 7.0}),
               Mutation("slope of gates", {"swiglu_alpha": 1.702}),
               Mutation("no biases of attention", {"attention_bias": False}),
               Mutation("other experts", {"num_experts_per_tok": 1}),
               Mutation("no sinks", edit=replaced("sinks", lambda sink: sink.fill_(-1e4))),
               Mutation("no bias of the router", edit=zeroed("router.bias")),
               Mutation("no biases of gates", edit=zeroed("gate_up_proj_bias")),
               Mutation("no biases of outputs", edit=zeroed("down_proj_bias")),
               Mutation("truncated yarn", {"rope_parameters.truncate": True}),
               Mutation("factor of yarn", {"rope_parameters.factor": 8.0}),
           ], ffn=16, dropped=("layer_types",)),
]
