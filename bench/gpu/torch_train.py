#!/usr/bin/env python3
"""PyTorch's side of the comparison on one GPU: bf16 with f32 weights and moments, SDPA, fused AdamW.

Prints one JSON object. With --compile the model goes through torch.compile.

Usage: torch_train.py --model llama-1.2b --batch 4 --steps 12 [--compile] [--params bf16]
"""

import argparse
import json
import statistics

import torch

from models import MODELS, Model

WARM_UP = 4


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences of a step")
    parser.add_argument("--steps", type=int, default=12, help=f"the first {WARM_UP} are not timed")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--params", choices=["autocast", "bf16"], default="autocast",
                        help="bf16: weights and moments in bf16 too, which needs fewer casts and "
                        "loses precision")
    args = parser.parse_args()
    if args.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}")
    return args


def main():
    args = parse_args()
    family, sizes, seq = MODELS[args.model]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Model(family, seq, **sizes).cuda()
    if args.params == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    run = torch.compile(model) if args.compile else model
    tokens = torch.randint(sizes["vocab"], (args.steps, args.batch, seq + 1), device="cuda")
    times, losses = [], []
    for step in range(args.steps):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        with torch.autocast("cuda", torch.bfloat16, enabled=args.params == "autocast"):
            loss = run(tokens[step, :, :-1], tokens[step, :, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        end.record()
        losses.append(loss.item())
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    median = statistics.median(times[WARM_UP:])
    print(json.dumps(dict(
        model=args.model, compile=args.compile, params=args.params, batch=args.batch, seq=seq,
        step_ms=round(median, 2), step_ms_min=round(min(times[WARM_UP:]), 2),
        tokens_per_s=round(args.batch * seq / median * 1e3), losses=losses,
        parameters=sum(p.numel() for p in model.parameters()),
        peak_bytes=torch.cuda.max_memory_allocated(), torch=torch.__version__,
        device=torch.cuda.get_device_name())))


if __name__ == "__main__":
    main()
