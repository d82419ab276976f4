"""Cases of BERT and ModernBERT: masked language models, and classifiers of texts and of tokens."""

import torch

from encoder_case import LENGTHS, encoder
from family_case import Mutation, zeroed

PADDING = Mutation("padding row", {"pad_token_id": None})
COMMON = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.5}


def norms(*names):
    return [Mutation(f"no norm {name}", edit=without_norm(name)) for name in names]


def without_norm(ending):
    """Replaces the norms with this end of their names by the identity."""

    def edit(model):
        found = [path for path, _ in model.named_modules() if path.endswith(ending)]
        assert found, ending
        for path in found:
            model.set_submodule(path, torch.nn.Identity())

    return edit


def biases(*names):
    return [Mutation(f"no bias {name}", edit=zeroed(f"{name}.bias")) for name in names]


def without_tanh(model):
    model.bert.pooler.activation = torch.nn.Identity()


def of_second_token(model):
    pooler = model.bert.pooler
    pooler.forward = lambda hidden: pooler.activation(pooler.dense(hidden[:, 1]))


# Losses over many tokens move less.
STRONG = {"lr": 3e-2, "padding_share": 0.4}
BERT = [
    LENGTHS,
    Mutation("eps of norms", {"layer_norm_eps": 1e-12}),
    Mutation("activation", {"hidden_act": "relu"}),
    Mutation("approximate gelu", {"hidden_act": "gelu_new"}, is_fine=True),
    Mutation("no types of tokens", edit=zeroed("token_type_embeddings.weight")),
    Mutation("no positions", edit=zeroed("position_embeddings.weight")),
    *norms("embeddings.LayerNorm", "attention.output.LayerNorm", "0.output.LayerNorm"),
    *biases("query", "value", "intermediate.dense", "1.output.dense", "LayerNorm"),
]
ROPES = {
    "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
}
WINDOWS = {"local_attention": 6, "global_attn_every_n_layers": 2, "norm_eps": 0.03, "rope_parameters": ROPES,
           "initializer_range": 0.25}
BIASES = {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True}
MODERN = [
    PADDING, LENGTHS,
    Mutation("eps of norms", {"norm_eps": 1e-5}),
    Mutation("activation", {"hidden_activation": "silu"}),
    Mutation("approximate gelu", {"hidden_activation": "gelu_new"}, is_fine=True),
    Mutation("narrower windows", {"local_attention": 4}),
    Mutation("wider windows", {"local_attention": 8}),
    Mutation("windows in other layers", {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    Mutation("no windows", {"layer_types": ["full_attention"] * 3}),
    Mutation("base of global layers", {"rope_parameters.full_attention.rope_theta": 10.0}),
    Mutation("base of local layers", {"rope_parameters.sliding_attention.rope_theta": 1000.0}),
    *norms("embeddings.norm", "attn_norm", "mlp_norm", "final_norm", "head.norm"),
]

CASES = [
    encoder("bert_masked", 61, "BertForMaskedLM", "masked", COMMON | {"initializer_range": 0.8},
            [*BERT, *norms("transform.LayerNorm"), *biases("transform.dense", "predictions")], **STRONG),
    encoder("bert_texts", 62, "BertForSequenceClassification", "text", COMMON | {"type_vocab_size": 3},
            [*BERT, PADDING, *biases("attention.output.dense", "pooler.dense", "classifier"),
             Mutation("no tanh", edit=without_tanh), Mutation("another token", edit=of_second_token)]),
    encoder("bert_numbers", 63, "BertForSequenceClassification", "number", COMMON | {"problem_type": "regression"},
            [LENGTHS, *biases("classifier")], labels=1),
    encoder("bert_tokens", 64, "BertForTokenClassification", "token", COMMON,
            [LENGTHS, *biases("classifier")], labels=5, **STRONG),
    encoder("modernbert_masked", 65, "ModernBertForMaskedLM", "masked", WINDOWS,
            [*MODERN, Mutation("no bias of the decoder", {"decoder_bias": False})], layers=3, has_types=False),
    encoder("modernbert_texts", 66, "ModernBertForSequenceClassification", "text",
            WINDOWS | BIASES | {"classifier_pooling": "mean"},
            [*MODERN, Mutation("first token", {"classifier_pooling": "cls"}),
             *biases("Wqkv", "attn.Wo", "Wi", "mlp.Wo", "norm", "head.dense", "classifier")],
            layers=3, has_types=False),
    encoder("modernbert_first", 67, "ModernBertForSequenceClassification", "text", WINDOWS,
            [Mutation("mean", {"classifier_pooling": "mean"})], layers=3, has_types=False),
    encoder("modernbert_tokens", 68, "ModernBertForTokenClassification", "token", WINDOWS, [LENGTHS], labels=5,
            layers=3, has_types=False),
]
