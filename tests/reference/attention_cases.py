"""Attention by PyTorch and transformers: outputs and gradients of each kind, for given queries, keys and values.

Usage: python attention_cases.py [--out DIR]. Every number is computed in f64 and stored in f32.

Tensors are laid out as in Meshwright: queries `[batch, sequence, heads, width]`. The case is `name.tensor`:
`q`, `k`, `v`, the operands `table` (T5's buckets by heads) and `sinks`, the output `out`, the gradient `dout` of the
output, and the gradients `dq`, `dk`, `dv`, `dtable`, `dsinks`.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from transformers import DeepseekV3Config, Gemma2Config, GptOssConfig, MistralConfig
from transformers.masking_utils import sliding_window_causal_mask_function
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deepseek_v3.modeling_deepseek_v3 import eager_attention_forward as deepseek_attention
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2_attention
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss_attention
from transformers.models.mistral.modeling_mistral import eager_attention_forward as mistral_attention
from transformers.models.t5.modeling_t5 import T5Attention

BATCH, SEQ, MEMORY, HEADS, KV_HEADS, WIDTH = 2, 13, 7, 4, 2, 8
HIDDEN = torch.finfo(torch.float64).min


class Module(torch.nn.Module):
    """What the eager functions of transformers read of their layer."""

    def __init__(self, groups, **attributes):
        super().__init__()
        self.num_key_value_groups = groups
        self.train(False)
        for name, value in attributes.items():
            setattr(self, name, value)


def random(*shape):
    """Numbers that f32 holds exactly, so that both sides compute with the same operands."""
    return torch.randn(*shape).to(torch.float64)


def causal(queries, keys, window=None):
    """True where a query sees a key: up to its own position, and of a window the last `window` positions."""
    distance = torch.arange(queries)[:, None] - torch.arange(keys)[None, :]
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def near(positions, window):
    """True where a query sees a key less than `window` positions away."""
    distance = torch.arange(positions)[:, None] - torch.arange(positions)[None, :]
    return distance.abs() < window


def additive(mask):
    """The mask as numbers to add to scores, `[1, 1, queries, keys]`."""
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, HIDDEN)[None, None]


class Case:
    """Operands with gradients, and an attention of them."""

    def __init__(self, name, *, seq=SEQ, keys=None, heads=HEADS, kv_heads=KV_HEADS, width=WIDTH, values=WIDTH):
        self.name, self.groups = name, heads // kv_heads
        keys = seq if keys is None else keys
        self.tensors = {
            "q": random(BATCH, seq, heads, width),
            "k": random(BATCH, keys, kv_heads, width),
            "v": random(BATCH, keys, kv_heads, values),
        }
        self.dout = random(BATCH, seq, heads, values)

    def heads_first(self, name):
        return self.tensors[name].transpose(1, 2)

    def repeated(self, name):
        return self.heads_first(name).repeat_interleave(self.groups, dim=1)

    def result(self, attend):
        """All tensors of the case, with the output `[batch, sequence, heads, width]` of `attend`."""
        for tensor in self.tensors.values():
            tensor.requires_grad_()
        out = attend(self)
        out.backward(self.dout)
        tensors = dict(self.tensors, out=out, dout=self.dout)
        gradients = {f"d{name}": tensor.grad for name, tensor in self.tensors.items()}
        return {
            f"{self.name}.{name}": tensor.detach().to(torch.float32).contiguous().numpy()
            for name, tensor in (tensors | gradients).items()
        }


def sdpa(case, mask=None, is_causal=False, scale=None):
    """PyTorch's own attention."""
    q, k, v = case.heads_first("q"), case.repeated("k"), case.repeated("v")
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale)
    return out.transpose(1, 2)


def gemma2(case, window, soft_cap, scale):
    """Gemma 2: capped scores, and a window."""
    q, k, v = (case.heads_first(name) for name in "qkv")
    mask, module = additive(causal(SEQ, SEQ, window)), Module(case.groups, config=Gemma2Config())
    return gemma2_attention(module, q, k, v, mask, scaling=scale, softcap=soft_cap)[0]


def mistral(case, window):
    """Mistral: a window."""
    q, k, v = (case.heads_first(name) for name in "qkv")
    positions = torch.arange(SEQ)
    mask = sliding_window_causal_mask_function(window)(0, 0, positions[:, None], positions[None, :])
    module = Module(case.groups, config=MistralConfig())
    return mistral_attention(module, q, k, v, additive(mask), scaling=1 / math.sqrt(WIDTH))[0]


def deepseek(case):
    """DeepSeek-V3: latent attention after its projections, with values narrower than queries and keys."""
    q, k, v = (case.heads_first(name) for name in "qkv")
    mask, module = additive(causal(q.shape[2], q.shape[2])), Module(case.groups, config=DeepseekV3Config())
    return deepseek_attention(module, q, k, v, mask, scaling=1 / math.sqrt(q.shape[3]))[0]


def same(exact, other):
    """The first of two results, which agree up to the softmax that transformers computes in f32."""
    torch.testing.assert_close(exact, other, rtol=0, atol=1e-6)
    return exact


def latent(case):
    """Values narrower than queries and keys."""
    return same(sdpa(case, is_causal=True), deepseek(case))


def gpt_oss(case, window):
    """gpt-oss: sinks, and a window."""
    q, k, v = (case.heads_first(name) for name in "qkv")
    mask = additive(causal(SEQ, SEQ, window))
    module = Module(case.groups, config=GptOssConfig(), sinks=case.tensors["sinks"])
    return gpt_oss_attention(module, q, k, v, mask, scaling=1 / math.sqrt(WIDTH))[0]


def bloom(case):
    """BLOOM: ALiBi, which it adds by the position of the key."""
    alibi = build_alibi_tensor(torch.ones(BATCH, SEQ), case.tensors["q"].shape[2], torch.float64)
    bias = alibi.reshape(BATCH, -1, 1, SEQ) + additive(causal(SEQ, SEQ))
    return sdpa(case, mask=bias)


def t5(case, is_decoder):
    """T5: a bias by buckets of relative positions, and scores without a scale."""
    table = case.tensors["table"]
    positions = torch.arange(SEQ)
    buckets = T5Attention._relative_position_bucket(
        positions[None, :] - positions[:, None], bidirectional=not is_decoder,
        num_buckets=table.shape[0], max_distance=9,
    )
    bias = table[buckets].permute(2, 0, 1)[None]
    bias = bias + additive(causal(SEQ, SEQ)) if is_decoder else bias
    return sdpa(case, mask=bias, scale=1.0)


def padded(case, valid):
    """Cross attention to the valid positions of each sample's memory."""
    positions = torch.arange(MEMORY)
    mask = torch.stack([(start <= positions) & (positions < end) for start, end in valid])
    return sdpa(case, mask=mask[:, None, None, :])


def packed(case, lengths):
    """Causal attention within each of the documents of a row."""
    mask = torch.zeros(BATCH, 1, SEQ, SEQ, dtype=torch.bool)
    for row, documents in enumerate(lengths):
        start = 0
        for length in documents:
            mask[row, 0, start : start + length, start : start + length] = causal(length, length)
            start += length
    return sdpa(case, mask=mask)


def cases():
    yield Case("causal").result(lambda case: sdpa(case, is_causal=True))
    yield Case("full").result(sdpa)
    yield Case("window").result(lambda case: same(sdpa(case, mask=causal(SEQ, SEQ, 4)), mistral(case, 4)))
    yield Case("near").result(lambda case: sdpa(case, mask=near(SEQ, 4)))
    yield Case("gemma2").result(lambda case: gemma2(case, 5, 2.5, 0.6))
    yield Case("alibi").result(bloom)
    yield Case("latent", kv_heads=HEADS, width=12, values=8).result(latent)
    yield Case("padded", keys=MEMORY).result(lambda case: padded(case, [(0, 5), (2, 7)]))
    yield Case("packed").result(lambda case: packed(case, [(5, 1, 7), (10, 3)]))
    for name, window in [("sinks", None), ("sinks_window", 4)]:
        case = Case(name)
        case.tensors["sinks"] = random(HEADS)
        yield case.result(lambda case: gpt_oss(case, window))
    for name, is_decoder in [("t5_encoder", False), ("t5_decoder", True)]:
        case = Case(name, kv_heads=HEADS)
        case.tensors["table"] = random(8, HEADS)
        yield case.result(lambda case: t5(case, is_decoder))
    # After the others, whose random numbers stay as they are.
    yield Case("one_key_head", kv_heads=1).result(lambda case: sdpa(case, is_causal=True))
    yield Case("soft_cap").result(lambda case: gemma2(case, None, 2.5, 0.6))
    # The widths of DeepSeek-V2 and V3, of few positions since they are stored.
    case = Case("deepseek", seq=4, heads=1, kv_heads=1, width=192, values=128)
    yield case.result(latent)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures" / "attention")
    folder = parser.parse_args().out
    torch.manual_seed(3)
    tensors = {}
    for case in cases():
        assert all(np.isfinite(tensor).all() for tensor in case.values())
        tensors |= case
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "attention.safetensors")


if __name__ == "__main__":
    main()
