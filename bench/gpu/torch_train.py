#!/usr/bin/env python3
"""PyTorch's side of the comparison on one GPU: bf16 with f32 weights and moments, SDPA, fused AdamW.

Attention takes the faster of FlashAttention and cuDNN at the sizes of the model, which is measured
first. Steps are queued one after the other: the host waits for none of them before the last.
Prints one JSON object. With --compile the model goes through torch.compile; with --deterministic the
same bits come out of every run, or it fails where an operation cannot. Needs PyTorch 2.6.

Usage: torch_train.py --model llama-1.2b --batch 4 --steps 36 [--seq N] [--compile] [--deterministic]
                      [--params bf16]
"""

import argparse
import json
import os
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from models import MODELS, Model

OTHERS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
ATTENTION = {
    "flash": [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, *OTHERS],
    "cudnn": [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, *OTHERS],
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences of a step")
    parser.add_argument("--seq", type=int, help="tokens of a sequence, by default the model's")
    parser.add_argument("--steps", type=int, default=36, help="those that are not timed included")
    parser.add_argument("--warm-up", type=int, default=6, help="steps at the beginning that are not timed")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--params", choices=["autocast", "bf16"], default="autocast",
                        help="bf16: weights and moments in bf16 too, which needs fewer casts and "
                        "loses precision")
    args = parser.parse_args()
    if args.steps <= args.warm_up:
        parser.error(f"--steps must be more than {args.warm_up}")
    return args


def milliseconds(run, count):
    """Returns the time of each of `count` runs."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [first.elapsed_time(second) for first, second in zip(events, events[1:])]


def fastest_attention(batch, seq, hidden, heads, kv_heads):
    """Returns the name of the faster order of SDPA kernels, forward and backward."""
    q, k, v = (torch.randn(batch, count, seq, hidden // heads, device="cuda", dtype=torch.bfloat16,
                           requires_grad=True) for count in (heads, kv_heads, kv_heads))

    def time_of(name):
        def run():
            with sdpa_kernel(ATTENTION[name], set_priority=True):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                   enable_gqa=heads != kv_heads)
            torch.autograd.grad(y, (q, k, v), y.detach())

        milliseconds(run, 3)
        return statistics.median(milliseconds(run, 9))

    return min(ATTENTION, key=time_of)


def main():
    args = parse_args()
    family, sizes, longest = MODELS[args.model]
    seq = args.seq or longest
    if args.deterministic:
        # cuBLAS needs workspaces that are not shared between streams, and reads this when it starts.
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    attention = fastest_attention(args.batch, seq, sizes["hidden"], sizes["heads"],
                                  sizes["kv_heads"])
    model = Model(family, longest, **sizes).cuda()
    if args.params == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    run = torch.compile(model) if args.compile else model
    tokens = torch.randint(sizes["vocab"], (args.steps, args.batch, seq + 1), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    losses = []

    def step():
        index = len(losses)
        with torch.autocast("cuda", torch.bfloat16, enabled=args.params == "autocast"):
            loss = run(tokens[index, :, :-1], tokens[index, :, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())

    with sdpa_kernel(ATTENTION[attention], set_priority=True):
        milliseconds(step, args.warm_up)
        times = milliseconds(step, args.steps - args.warm_up)
    median = statistics.median(times)
    print(json.dumps(dict(
        model=args.model, compile=args.compile, params=args.params, batch=args.batch, seq=seq,
        deterministic=args.deterministic, attention=attention, step_ms=round(median, 2),
        times=[round(time, 3) for time in times],
        tokens_per_s=round(args.batch * seq / median * 1e3),
        losses=[loss.item() for loss in losses],
        parameters=sum(p.numel() for p in model.parameters()),
        peak_bytes=torch.cuda.max_memory_allocated(), torch=torch.__version__,
        device=torch.cuda.get_device_name())))


if __name__ == "__main__":
    main()
