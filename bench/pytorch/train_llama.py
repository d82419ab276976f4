"""Eager PyTorch/transformers training of a Llama on CPU in f32: the baseline of the benchmark.

Prints one JSON object per step and a last one with `"summary": true`. The defaults are the fastest
eager settings that were found; README.md beside this file lists what was tried.

Usage: python train_llama.py --config DIR [--data DIR/tokens.bin] --threads 1 --steps 8
"""

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

WARM_UP = 2  # Steps that are not timed: the process is still growing.
GEMM_SHAPE = (2048, 512, 1408)  # tokens x hidden x ffn: the most frequent product of the model.


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, metavar="DIR|SIZES",
                        help="a Hugging Face folder, or random weights of the given sizes: "
                        "hidden=512,ffn=1408,layers=8,heads=8,kv_heads=8,vocab=8192")
    parser.add_argument("--data", type=Path, help="u16 tokens (default: DIR/tokens.bin, or random)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8,
                        help=f"the first {WARM_UP} are a warm-up and not timed")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused")
    parser.add_argument("--allocator", choices=["keep", "default"], default="keep",
                        help="keep: freed memory stays in the process, on huge pages")
    parser.add_argument("--mkl-avx512", action="store_true",
                        help="make MKL use its AVX-512 kernels on CPUs of other makers (needs cc)")
    args = parser.parse_args()
    if args.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}: the first ones are a warm-up")
    return args


def keep_freed_memory():
    """Spares eager PyTorch the page faults of mapping every large activation anew."""
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # Read by torch when it is imported.
    m_mmap_max, m_trim_threshold = -4, -1  # From malloc.h.
    libc = ctypes.CDLL(None)
    libc.mallopt(m_mmap_max, 0)
    libc.mallopt(m_trim_threshold, 2**31 - 1)


def enable_mkl_avx512():
    """Answers MKL's question for an Intel CPU with yes; otherwise it stays with AVX2 kernels.

    MKL is linked into torch and finds this definition first if it is loaded before torch. This is
    not a setting that PyTorch or MKL document.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "mkl_avx512.so"
        source = "int mkl_serv_intel_cpu_true(void) { return 1; }"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source.encode(), check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def build_model(args):
    from transformers import LlamaConfig, LlamaForCausalLM

    if "=" not in args.config:
        model = LlamaForCausalLM.from_pretrained(
            args.config, dtype="float32", attn_implementation=args.attention)
        return model.train()
    sizes = {key: int(value) for key, value in (x.split("=") for x in args.config.split(","))}
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
        attn_implementation=args.attention,
    )).train()


def build_optimizer(args, model):
    variant = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1,
                             **variant[args.optimizer])


def load_tokens(args, vocab):
    needed = args.steps * args.batch * args.seq + 1
    if args.data is None and "=" in args.config:
        return np.random.default_rng(0).integers(vocab, size=needed)
    path = args.data or Path(args.config) / "tokens.bin"
    tokens = np.fromfile(path, dtype="<u2").astype(np.int64)
    if len(tokens) < needed:
        raise SystemExit(f"{path}: {len(tokens)} tokens, but {args.steps} steps read {needed}")
    return tokens


def batch_of_step(args, tokens, step):
    """Sequential order: sample i of step s is tokens[(s * batch + i) * seq ..][.. seq + 1]."""
    starts = [(step * args.batch + i) * args.seq for i in range(args.batch)]
    samples = np.stack([tokens[start : start + args.seq + 1] for start in starts])
    return torch.from_numpy(samples[:, :-1].copy()), torch.from_numpy(samples[:, 1:].copy())


def train_step(model, optimizer, inputs, targets):
    logits = model(input_ids=inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    del logits
    loss.backward()
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), grad_norm.item()


def gemm_gflops():
    """The best of many runs of one product: what the BLAS in use can reach on these threads."""
    rows, inner, columns = GEMM_SHAPE
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    seconds = []
    for _ in range(30):
        start = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - start)
    return 2 * rows * inner * columns / min(seconds) / 1e9


def main(args):
    import_rss = peak_rss_bytes()
    model = build_model(args)
    optimizer = build_optimizer(args, model)
    tokens = load_tokens(args, model.config.vocab_size)
    step_ms = []
    for step in range(args.steps):
        inputs, targets = batch_of_step(args, tokens, step)
        start = time.perf_counter()
        loss, grad_norm = train_step(model, optimizer, inputs, targets)
        step_ms.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"step": step, "loss": loss, "grad_norm": grad_norm,
                          "step_ms": round(step_ms[-1], 1)}), flush=True)
    median = statistics.median(step_ms[WARM_UP:])
    peak_rss = peak_rss_bytes()
    print(json.dumps({
        "summary": True,
        "step_ms_median": round(median, 1),
        "step_ms_min": round(min(step_ms[WARM_UP:]), 1),
        "step_ms": [round(ms, 1) for ms in step_ms],
        "tokens_per_s": round(args.batch * args.seq / median * 1e3, 1),
        "loss": loss,
        "peak_rss_bytes": peak_rss,
        "import_rss_bytes": import_rss,
        "gemm_gflops": round(gemm_gflops(), 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "threads": args.threads,
        "attention": args.attention,
        "optimizer": args.optimizer,
        "allocator": args.allocator,
        "mkl_avx512": args.mkl_avx512,
        "torch": torch.__version__,
    }), flush=True)


if __name__ == "__main__":
    arguments = parse_args()
    # Both must happen before torch is loaded.
    if arguments.allocator == "keep":
        keep_freed_memory()
    if arguments.mkl_avx512:
        enable_mkl_avx512()
    import numpy as np
    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("highest")
    transformers.utils.logging.disable_progress_bar()
    main(arguments)
