"""Cases of the families with the block of a Llama: Llama with biases, Mistral, Qwen2, Qwen3, Phi-3, SmolLM3."""

from family_case import Mutation, family, without, zeroed

PADDING = Mutation("padding row", {"pad_token_id": None})
EPS = Mutation("eps of norms", {"rms_norm_eps": 1e-5})
THETA = Mutation("base of rope", {"rope_parameters.rope_theta": 10000.0})
DEFAULT = {"rope_type": "default", "rope_theta": 100.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}
YARN = {
    "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 1.0, "beta_slow": 0.1,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}
# Of the eight elements of a head, six are rotated.
LONG = {
    "rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 16, "short_factor": [1.0, 1.5, 2.0],
    "long_factor": [1.25, 3.0, 8.0],
}


def window(size, key="sliding_window"):
    return [Mutation(f"window of {size - 1}", {key: size - 1}), Mutation(f"window of {size + 1}", {key: size + 1})]


def case(name, seed, architecture, keys, mutations, **options):
    return family(name, seed, architecture, keys, [PADDING, EPS, THETA, *mutations], **options)


CASES = [
    case("llama_biases", 21, "LlamaForCausalLM",
         {"attention_bias": True, "mlp_bias": True, "rope_parameters": DYNAMIC, "max_position_embeddings": 16},
         [
             Mutation("no biases of attention", {"attention_bias": False}),
             Mutation("no biases of the MLP", {"mlp_bias": False}),
             Mutation("no bias of values", edit=zeroed("v_proj.bias")),
             Mutation("no bias of outputs", edit=zeroed("o_proj.bias")),
             Mutation("factor of rope", {"rope_parameters.factor": 2.0}),
             Mutation("longest sequence of rope", {"max_position_embeddings": 12}),
         ]),
    case("mistral", 22, "MistralForCausalLM",
         {"head_dim": 12, "sliding_window": 6, "rope_parameters": DEFAULT},
         [Mutation("no window", {"sliding_window": None}), *window(6)]),
    case("qwen2", 27, "Qwen2ForCausalLM",
         {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1, "rope_parameters": YARN,
          "tie_word_embeddings": True},
         [
             Mutation("no bias of queries", edit=zeroed("q_proj.bias")),
             Mutation("no bias of keys", edit=zeroed("k_proj.bias")),
             Mutation("no bias of values", edit=zeroed("v_proj.bias")),
             Mutation("no windows", {"layer_types": ["full_attention"] * 3}),
             Mutation("windows in all layers", {"layer_types": ["sliding_attention"] * 3}),
             Mutation("windows in other layers",
                      {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}),
             *window(6),
             Mutation("factor of yarn", {"rope_parameters.factor": 8.0}),
             Mutation("fast rotations of yarn", {"rope_parameters.beta_fast": 0.4}),
             Mutation("slow rotations of yarn", {"rope_parameters.beta_slow": 0.4}),
             Mutation("positions of yarn", {"rope_parameters.original_max_position_embeddings": 32}),
         ], layers=3, dropped=("layer_types",)),
    case("qwen3", 24, "Qwen3ForCausalLM",
         {"head_dim": 12, "use_sliding_window": True, "sliding_window": 6,
          "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": LINEAR},
         [
             Mutation("no norm of queries", edit=without("q_norm")),
             Mutation("no norm of keys", edit=without("k_norm")),
             Mutation("windows in other layers", {"layer_types": ["full_attention", "sliding_attention"]}),
             *window(6),
             Mutation("factor of rope", {"rope_parameters.factor": 1.5}),
         ]),
    case("phi3", 25, "Phi3ForCausalLM",
         {"rope_parameters": LONG, "original_max_position_embeddings": 16, "max_position_embeddings": 128,
          "sliding_window": 6},
         [
             Mutation("no window", {"sliding_window": None}), *window(6),
             Mutation("short factors", {"rope_parameters.long_factor": LONG["short_factor"]}),
             Mutation("factor of cosines", {"max_position_embeddings": 32}),
             Mutation("a part that is rotated", {"rope_parameters.partial_rotary_factor": 0.5,
                                                 "rope_parameters.short_factor": LONG["short_factor"][:2],
                                                 "rope_parameters.long_factor": LONG["long_factor"][:2]}),
         ]),
    case("smollm3", 28, "SmolLM3ForCausalLM",
         {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 6, "rope_parameters": DEFAULT},
         [
             Mutation("rope in all layers", {"no_rope_layers": [1, 1, 1]}),
             Mutation("no rope in another layer", {"no_rope_layers": [0, 1, 1]}),
             Mutation("no windows", {"layer_types": ["full_attention"] * 3}),
             *window(6),
         ], layers=3, dropped=("layer_types", "no_rope_layers")),
]
