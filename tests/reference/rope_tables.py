"""Writes the reference tables of rotary embeddings: every scaling, part of a head, and both layouts.

Usage: python rope_tables.py [--out DIR]. README.md beside this file describes what is written.

Frequencies and magnitudes follow transformers' `modeling_rope_utils`, which computes them in f32; they are computed in
f64 here, and so are the tables.
"""

import argparse
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import LlamaConfig
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

POSITIONS = [0, 1, 2, 15, 63, 64, 65, 1000, 8191]
SEQ, MAX_POSITIONS = 8192, 64
HEAD_DIM = 16
SCALINGS = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    "yarn": {
        "rope_type": "yarn", "factor": 16.0, "rope_theta": 10000.0,
        "original_max_position_embeddings": 4096,
    },
    "yarn_deepseek": {
        "rope_type": "yarn", "factor": 40.0, "rope_theta": 10000.0, "mscale": 1.0,
        "mscale_all_dim": 0.707, "beta_fast": 24.0, "beta_slow": 2.0, "truncate": False,
        "original_max_position_embeddings": 1024,
    },
    "yarn_partial": {
        "rope_type": "yarn", "factor": 8.0, "rope_theta": 500000.0, "attention_factor": 1.25,
        "partial_rotary_factor": 0.5, "original_max_position_embeddings": 2048,
    },
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "rope_theta": 500000.0, "original_max_position_embeddings": 8192,
    },
    "llama3_partial": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 512,
    },
    "longrope_short": {
        "rope_type": "longrope", "rope_theta": 10000.0, "factor": 32.0,
        "short_factor": [1.0, 1.02, 1.03, 1.08, 1.1, 1.25, 1.5, 2.75],
        "long_factor": [1.05, 1.2, 2.5, 6.75, 15.0, 24.0, 40.0, 62.5],
        "original_max_position_embeddings": 8192,
    },
    "longrope_partial": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "attention_factor": 1.19, "short_factor": [1.0, 1.0, 1.0, 1.25, 1.5, 2.0],
        "long_factor": [1.0, 1.12, 2.4, 10.5, 33.0, 47.75],
        "original_max_position_embeddings": 4096,
    },
}


@contextmanager
def in_f64():
    """`modeling_rope_utils` asks for `torch.float` by name, and converts to it by a method."""
    original = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    yield
    torch.float, torch.float32, torch.Tensor.float = original


def frequencies(config, seq=None):
    """Radians per position of each pair, and the factor of cosines and sines, in f64."""
    parameters = config.rope_parameters
    if parameters["rope_type"] == "default":
        halves = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        return 1.0 / parameters["rope_theta"] ** halves, 1.0
    with in_f64():
        return ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, seq_len=seq)


def tables(parameters):
    """Cosines and sines `[positions, pairs]`."""
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM, num_attention_heads=4, head_dim=HEAD_DIM,
        max_position_embeddings=MAX_POSITIONS, rope_parameters=dict(parameters),
    )
    per_position, magnitude = frequencies(config, SEQ)
    assert per_position.dtype == torch.float64
    angles = torch.tensor(POSITIONS, dtype=torch.float64)[:, None] * per_position
    return angles.cos() * magnitude, angles.sin() * magnitude


def rotations(x, cos, sin):
    """`x [batch, seq, heads, head_dim]`, rotated in as many elements as the tables have, in both layouts."""
    twice = [torch.cat((table, table), dim=-1)[None] for table in (cos, sin)]
    # GPT-NeoX passes the elements behind the rotated ones through.
    halves, _ = modeling_gpt_neox.apply_rotary_pos_emb(x, x, *twice, unsqueeze_dim=2)
    rotated = x[..., : 2 * cos.shape[-1]]
    neighbors = modeling_gptj.apply_rotary_pos_emb(rotated, sin[None], cos[None])
    neighbors = torch.cat((neighbors, x[..., rotated.shape[-1] :]), dim=-1)
    return halves, neighbors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures" / "rope")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(1)
    arrays = {"positions": np.array(POSITIONS, dtype=np.uint32)}
    for name, parameters in SCALINGS.items():
        cos, sin = tables(parameters)
        x = torch.randn(2, len(POSITIONS), 3, HEAD_DIM, dtype=torch.float64).float().double()
        halves, neighbors = rotations(x, cos, sin)
        values = {"cos": cos, "sin": sin, "x": x, "half_split": halves, "interleaved": neighbors}
        arrays |= {f"{name}.{key}": value.float().numpy() for key, value in values.items()}
    save_file(arrays, args.out / "expected.safetensors")
    settings = {"head_dim": HEAD_DIM, "seq": SEQ, "max_position_embeddings": MAX_POSITIONS,
                "scalings": SCALINGS}
    (args.out / "scalings.json").write_text(json.dumps(settings, indent=1) + "\n")
