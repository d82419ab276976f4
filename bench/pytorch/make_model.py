"""Writes the model and the data of the speed benchmark, for PyTorch and for Meshwright alike.

Usage: python make_model.py DIR. DIR becomes a Hugging Face folder (config.json and
model.safetensors, f32) with a tokens.bin (little-endian u16) beside them. The defaults are a Llama
of 34M parameters.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def write_model(args):
    torch.manual_seed(args.seed)
    config = LlamaConfig(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        intermediate_size=args.ffn,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        initializer_range=0.02,
        tie_word_embeddings=args.tied,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        use_cache=False,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(args.dir)
    (args.dir / "generation_config.json").unlink(missing_ok=True)
    return sum(p.numel() for p in model.parameters())


def write_tokens(args):
    """Mostly a fixed successor of each token, otherwise any token: a loss curve with a slope."""
    rng = np.random.default_rng(args.seed)
    successor = rng.permutation(args.vocab)
    jumps = rng.integers(args.vocab, size=args.tokens)
    jump_here = rng.random(args.tokens) < 0.1
    tokens = np.empty(args.tokens, dtype="<u2")
    token = 0
    for i in range(args.tokens):
        token = jumps[i] if jump_here[i] else successor[token]
        tokens[i] = token
    tokens.tofile(args.dir / "tokens.bin")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=Path)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--ffn", type=int, default=1408)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--tokens", type=int, default=500_000, help="length of tokens.bin")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.vocab > 2**16:
        parser.error(f"--vocab {args.vocab}: tokens.bin holds u16, so at most 65536")
    return args


if __name__ == "__main__":
    args = parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    parameters = write_model(args)
    write_tokens(args)
    print(f"{args.dir}: {parameters:,} parameters, {args.tokens:,} tokens")
