"""The two models of the comparison in plain PyTorch, written for speed."""

import torch
import torch.nn.functional as F
from torch import nn

# Name: family, sizes, sequence length.
MODELS = {
    "llama-1.2b": ("llama", dict(hidden=2048, layers=16, heads=32, kv_heads=8, ffn=8192,
                                 vocab=32000), 4096),
    "llama-125m": ("llama", dict(hidden=768, layers=12, heads=12, kv_heads=12, ffn=2048,
                                 vocab=32000), 1024),
    "gpt2-124m": ("gpt2", dict(hidden=768, layers=12, heads=12, kv_heads=12, ffn=3072,
                               vocab=50304), 1024),
}


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads, bias):
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.width, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x, rope):
        batch, seq, hidden = x.shape
        parts = self.qkv(x).view(batch, seq, -1, self.width)
        q, k, v = parts.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        shared = self.heads != self.kv_heads
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
        return self.out(y.transpose(1, 2).reshape(batch, seq, hidden))


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn):
        super().__init__()
        self.attn_norm, self.mlp_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.attn = Attention(hidden, heads, kv_heads, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False),
            nn.Linear(ffn, hidden, bias=False))

    def forward(self, x, rope):
        x = x + self.attn(self.attn_norm(x), rope)
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GptBlock(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn):
        super().__init__()
        self.attn_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn = Attention(hidden, heads, kv_heads, bias=True)
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)

    def forward(self, x, rope):
        x = x + self.attn(self.attn_norm(x), rope)
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Model(nn.Module):
    """A decoder with its loss. `family` llama has its own head, gpt2 shares the embedding's."""

    def __init__(self, family, seq, hidden, layers, heads, kv_heads, ffn, vocab):
        super().__init__()
        self.family = family
        self.embed = nn.Embedding(vocab, hidden)
        block = LlamaBlock if family == "llama" else GptBlock
        self.blocks = nn.ModuleList(block(hidden, heads, kv_heads, ffn) for _ in range(layers))
        self.head = nn.Linear(hidden, vocab, bias=False)
        if family == "llama":
            self.norm = nn.RMSNorm(hidden)
            width = hidden // heads
            frequencies = 10000.0 ** (-torch.arange(0, width, 2) / width)
            angles = torch.outer(torch.arange(seq), frequencies)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
        else:
            self.norm = nn.LayerNorm(hidden)
            self.positions = nn.Embedding(seq, hidden)
            self.head.weight = self.embed.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        if self.family != "llama":
            x = x + self.positions.weight[:tokens.shape[1]]
        # Under autocast the embedding is f32, and so would be the whole residual stream.
        x = x.bfloat16()
        rope = None
        if self.family == "llama":
            seq = tokens.shape[1]
            rope = self.cos[:seq].to(x.dtype), self.sin[:seq].to(x.dtype)
        for block in self.blocks:
            x = block(x, rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
