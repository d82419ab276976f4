"""Cases of DeepSeek-V3: latent attention, groups of experts, a bias of their choice, shared experts, dense layers."""

from decoder_cases import DEFAULT, EPS, PADDING, THETA
from family_case import Mutation, family, replaced, without, zeroed

YARN = {
    "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 1.0, "beta_slow": 0.1, "mscale": 0.7,
    "mscale_all_dim": 1.5, "original_max_position_embeddings": 16,
}
SIZES = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 8, "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 1, "attention_bias": False,
}


def norm_eps(model):
    """Norms of latents with the eps of the others."""
    for layer in model.model.layers:
        for norm in (layer.self_attn.q_a_layernorm, layer.self_attn.kv_a_layernorm):
            norm.variance_epsilon = 0.03


ROUTING = [
    Mutation("factor of experts", {"routed_scaling_factor": 2.5}),
    Mutation("fewer experts", {"num_experts_per_tok": 2}),
    Mutation("no bias of the choice", edit=zeroed("e_score_correction_bias")),
    Mutation("positions not in pairs", {"rope_interleave": False}),
]

CASES = [
    family("deepseek_v3", 61, "DeepseekV3ForCausalLM",
           {"q_lora_rank": 12, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "n_shared_experts": 2,
            "rope_parameters": YARN} | SIZES,
           [
               PADDING, EPS, THETA, *ROUTING,
               Mutation("weights of experts as they are", {"norm_topk_prob": False}),
               Mutation("no groups", {"n_group": 1, "topk_group": 1}),
               Mutation("more groups", {"topk_group": 3}),
               Mutation("scale of scores", {"rope_parameters.mscale_all_dim": 0.5}),
               Mutation("factor of cosines", {"rope_parameters.mscale": 1.5}),
               Mutation("eps of norms of latents", edit=norm_eps),
               Mutation("no norm of latent queries", edit=without("q_a_layernorm")),
               Mutation("no norm of latent keys", edit=without("kv_a_layernorm")),
               Mutation("no shared experts", edit=replaced("shared_experts.down_proj.weight", lambda w: w.zero_())),
           ], layers=3),
    family("deepseek_v3_plain", 62, "DeepseekV3ForCausalLM",
           {"q_lora_rank": None, "n_group": 2, "topk_group": 1, "norm_topk_prob": False, "n_shared_experts": 1,
            "rope_parameters": DEFAULT} | SIZES,
           [
               PADDING, EPS, THETA, *ROUTING,
               Mutation("weights of experts with sum one", {"norm_topk_prob": True}),
           ]),
]
