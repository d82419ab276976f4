"""The model, its optimizer and its batches: what every program of this folder trains."""

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build_model(config, attention="sdpa"):
    """`config` is a Hugging Face folder, or sizes such as hidden=512,ffn=1408,layers=8,..."""
    if "=" not in config:
        model = LlamaForCausalLM.from_pretrained(
            config, dtype="float32", attn_implementation=attention)
        return model.train()
    sizes = {key: int(value) for key, value in (x.split("=") for x in config.split(","))}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["ffn"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes.get("kv_heads", sizes["heads"]),
        vocab_size=sizes["vocab"],
        max_position_embeddings=4096,
        use_cache=False,
        attn_implementation=attention,
    )).train()


def build_optimizer(model, lr, variant):
    """AdamW; decay on parameters of two or more dims only. `variant`: fused, foreach or loop."""
    options = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1,
                             **options[variant])


def load_tokens(config, data, needed, vocab):
    """`data`, else the tokens.bin of the folder `config`, else random ones."""
    if data is None and "=" in config:
        return np.random.default_rng(0).integers(vocab, size=needed)
    path = data or Path(config) / "tokens.bin"
    tokens = np.fromfile(path, dtype="<u2").astype(np.int64)
    if len(tokens) < needed:
        raise SystemExit(f"{path}: {len(tokens)} tokens, but {needed} are read")
    return tokens


def batch_of_step(tokens, step, batch, seq, rank=0, ranks=1):
    """Inputs and targets of one rank, in sequential order.

    Sample i of step s is tokens[(s * batch + i) * seq ..][.. seq + 1]; rank r of N reads the
    samples r * batch / N to (r + 1) * batch / N.
    """
    share = batch // ranks
    samples = range(step * batch + rank * share, step * batch + (rank + 1) * share)
    rows = np.stack([tokens[i * seq : (i + 1) * seq + 1] for i in samples])
    return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())


def loss_of(model, inputs, targets):
    """The mean cross-entropy, in f32 whatever the logits are."""
    logits = model(input_ids=inputs).logits.flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits.float(), targets.flatten())
