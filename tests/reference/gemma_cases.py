"""Cases of Gemma 2 and Gemma 3: norms around each branch, capped scores and logits, windows and ropes by layer."""

from decoder_cases import EPS, PADDING, window
from family_case import Mutation, MultimodalCase, family, replaced, without

SCALE = {"query_pre_attn_scalar": 3}
ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 3.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
}


def unscaled(model):
    model.get_input_embeddings().embed_scale.fill_(1.0)


COMMON = [
    PADDING, EPS,
    Mutation("scale of scores", {"query_pre_attn_scalar": 8}),
    Mutation("windows in other layers", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    *window(6),
    Mutation("activation", {"hidden_activation": "silu"}),
    Mutation("no norm before attention", edit=without("input_layernorm")),
    Mutation("no norm after attention", edit=without("post_attention_layernorm")),
    Mutation("no norm before the MLP", edit=without("pre_feedforward_layernorm")),
    Mutation("no norm after the MLP", edit=without("post_feedforward_layernorm")),
    *(Mutation(f"no offset of {name}", edit=replaced(f"{name}.weight", lambda weight: weight.sub_(1.0)))
      for name in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                   "post_feedforward_layernorm", "model.norm")),
    Mutation("embedding without its factor", edit=unscaled),
]
OF_HEADS = [Mutation("no norm of queries", edit=without("q_norm")), Mutation("no norm of keys", edit=without("k_norm"))]

CASES = [
    family("gemma2", 31, "Gemma2ForCausalLM",
           {"head_dim": 8, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0, "sliding_window": 6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}} | SCALE,
           [
               *COMMON,
               Mutation("base of rope", {"rope_parameters.rope_theta": 10000.0}),
               Mutation("no cap of scores", {"attn_logit_softcapping": None}),
               Mutation("cap of scores", {"attn_logit_softcapping": 0.75}),
               Mutation("no cap of logits", {"final_logit_softcapping": None}),
               Mutation("cap of logits", {"final_logit_softcapping": 2.1}),
           ], layers=3, norm_offset=1.0, dropped=("layer_types",)),
    family("gemma3_text", 32, "Gemma3ForCausalLM",
           {"head_dim": 8, "sliding_window": 6, "sliding_window_pattern": 2, "rope_parameters": ROPES} | SCALE,
           [
               *COMMON, *OF_HEADS,
               Mutation("pattern of windows", {"sliding_window_pattern": 3}),
               Mutation("base of global layers", {"rope_theta": 10.0}),
               Mutation("factor of global layers", {"rope_scaling.factor": 1.5}),
               Mutation("base of local layers", {"rope_local_base_freq": 1000.0}),
           ], layers=3, norm_offset=1.0, dropped=("layer_types", "rope_parameters", "_sliding_window_pattern"),
           older={"rope_theta": 1000.0, "rope_local_base_freq": 10.0, "sliding_window_pattern": 2,
                  "rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    family("gemma3", 33, "Gemma3ForCausalLM",
           {"head_dim": 8, "sliding_window": 6, "rope_parameters": ROPES,
            "layer_types": ["sliding_attention", "full_attention"]} | SCALE,
           [
               Mutation("base of global layers", {"rope_parameters.full_attention.rope_theta": 10.0}),
               Mutation("factor of global layers", {"rope_parameters.full_attention.factor": 1.5}),
               Mutation("base of local layers", {"rope_parameters.sliding_attention.rope_theta": 1000.0}),
               Mutation("all layers global", {"layer_types": ["full_attention", "full_attention"]}),
           ], kind=MultimodalCase, norm_offset=1.0,
           outer={"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "bos_token_id": 1,
                  "eos_token_id": 2, "pad_token_id": 5, "tie_word_embeddings": True}),
]
