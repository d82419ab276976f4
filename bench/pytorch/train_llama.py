"""Eager PyTorch/transformers training of a Llama on CPU: the baseline of the benchmark.

Prints one JSON object per step and a last one with `"summary": true`. The defaults are the fastest
eager settings that were found; README.md beside this file lists what was tried.

Usage: python train_llama.py --config DIR [--data DIR/tokens.bin] --threads 1 --steps 8
       python train_llama.py --config DIR --strategy ddp --ranks 2 --dtype bf16
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import process

WARM_UP = 2  # Steps that are not timed: the process is still growing.
GEMM_SHAPE = (2048, 512, 1408)  # tokens x hidden x ffn: the most frequent matmul of the model.


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, metavar="DIR|SIZES",
                        help="a Hugging Face folder, or random weights of the given sizes: "
                        "hidden=512,ffn=1408,layers=8,heads=8,kv_heads=8,vocab=8192")
    parser.add_argument("--data", type=Path, help="u16 tokens (default: DIR/tokens.bin, or random)")
    parser.add_argument("--strategy", choices=["none", "ddp", "fsdp2"], default="none")
    parser.add_argument("--ranks", type=int, default=1, help="processes of ddp and fsdp2")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--pin", action="store_true", help="give each process cores of its own")
    parser.add_argument("--steps", type=int, default=8,
                        help=f"the first {WARM_UP} are a warm-up and not timed")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step, over all ranks")
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32",
                        help="bf16: autocast (for fsdp2: its MixedPrecisionPolicy) on f32 weights")
    parser.add_argument("--reduce-dtype", choices=["f32", "bf16"], default="f32",
                        help="element type in which gradients are summed over ranks")
    parser.add_argument("--zero", type=int, choices=[2, 3], default=3,
                        help="fsdp2: free gathered parameters after forward (3) or keep them (2)")
    parser.add_argument("--bucket-mb", type=int, default=25, help="ddp: size of a bucket")
    parser.add_argument("--recompute", action="store_true",
                        help="recompute every block in backward (torch.utils.checkpoint)")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused")
    parser.add_argument("--allocator", choices=["keep", "default"], default="keep",
                        help="keep: freed memory stays in the process, on huge pages")
    parser.add_argument("--mkl-avx512", action="store_true",
                        help="make MKL use its AVX-512 kernels on CPUs of other vendors (needs cc)")
    args = parser.parse_args()
    if args.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}: the first ones are a warm-up")
    if args.strategy == "none" and args.ranks != 1:
        parser.error(f"--ranks {args.ranks}: --strategy none trains on one process")
    if process.started_by_torchrun() and process.torchrun_ranks() != args.ranks:
        parser.error(f"--ranks {args.ranks}: torchrun started {process.torchrun_ranks()}")
    if args.batch % args.ranks != 0:
        parser.error(f"--batch {args.batch} does not divide over --ranks {args.ranks}")
    if args.pin and args.strategy == "none":
        parser.error("--pin: --strategy none has no processes to keep apart")
    if args.reduce_dtype == "bf16" and args.strategy == "none":
        parser.error("--reduce-dtype bf16: --strategy none sums nothing over ranks")
    return args


def train_step(model, optimizer, inputs, targets, args):
    with parallel.compute_context(args):
        loss = llama.loss_of(model, inputs, targets)
    loss.backward()
    grad_norm = parallel.clip_gradients(model, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), grad_norm


def gemm_gflops(dtype):
    """The best of many runs of one matmul: what the BLAS in use can reach on these threads."""
    rows, inner, columns = GEMM_SHAPE
    a = torch.randn(rows, inner, dtype=dtype)
    b = torch.randn(inner, columns, dtype=dtype)
    seconds = []
    for _ in range(30):
        start = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - start)
    return 2 * rows * inner * columns / min(seconds) / 1e9


def main(args):
    import_rss = process.peak_rss_bytes()
    if args.strategy != "none":
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0

    def report(**values):
        if rank == 0:
            print(json.dumps(values), flush=True)

    model = llama.build_model(args.config, args.attention)
    parameters = sum(p.numel() for p in model.parameters())
    needed = args.steps * args.batch * args.seq + 1
    tokens = llama.load_tokens(args.config, args.data, needed, model.config.vocab_size)
    if args.recompute:  # Nothing here is random, so no generator state has to be kept.
        model.activation_checkpointing_enable(
            {"use_reentrant": False, "preserve_rng_state": False})
    model = parallel.parallelize(model, args)
    optimizer = llama.build_optimizer(model, args.lr, args.optimizer)
    step_ms, cpu_ms = [], []
    for step in range(args.steps):
        inputs, targets = llama.batch_of_step(tokens, step, args.batch, args.seq, rank, args.ranks)
        if dist.is_initialized():
            dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        loss, grad_norm = train_step(model, optimizer, inputs, targets, args)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        step_ms.append(parallel.over_ranks(seconds * 1e3, "max"))
        cpu_ms.append(parallel.over_ranks(cpu_seconds * 1e3, "max"))
        loss = parallel.over_ranks(loss, "mean")
        report(step=step, loss=loss, grad_norm=grad_norm, step_ms=round(step_ms[-1], 1),
               cpu_ms=round(cpu_ms[-1], 1))
    median = statistics.median(step_ms[WARM_UP:])
    peak_rss = process.peak_rss_bytes()
    report(
        summary=True,
        step_ms_median=round(median, 1),
        step_ms_min=round(min(step_ms[WARM_UP:]), 1),
        step_ms=[round(ms, 1) for ms in step_ms],
        # Of all threads of the busiest process: hardly changed by other work on the machine.
        cpu_ms_min=round(min(cpu_ms[WARM_UP:]), 1),
        tokens_per_s=round(args.batch * args.seq / median * 1e3, 1),
        loss=loss,
        peak_rss_bytes=int(parallel.over_ranks(peak_rss, "sum")),
        peak_rss_bytes_per_process=int(parallel.over_ranks(peak_rss, "max")),
        import_rss_bytes=import_rss,
        # Of all processes, each on its own threads at the same time.
        gemm_gflops=round(parallel.over_ranks(gemm_gflops(parallel.DTYPES[args.dtype]), "sum"), 1),
        parameters=parameters,
        torch=torch.__version__,
        **{name: getattr(args, name) for name in [
            "strategy", "ranks", "threads", "pin", "dtype", "reduce_dtype", "zero", "bucket_mb",
            "recompute", "attention", "optimizer", "allocator", "mkl_avx512"]},
    )
    if dist.is_initialized():
        dist.barrier()
        # Not through the interpreter's end: threads of gloo now and then abort the process there.
        os._exit(0)


if __name__ == "__main__":
    arguments = parse_args()
    if arguments.strategy != "none" and not process.started_by_torchrun():
        process.start_ranks(arguments.ranks)
    # All of this must happen before torch is loaded.
    if arguments.pin:
        process.pin_to_own_cores(arguments.threads)
    if arguments.allocator == "keep":
        process.keep_freed_memory()
    if arguments.mkl_avx512:
        process.enable_mkl_avx512()
    import torch
    import torch.distributed as dist
    import transformers

    import llama
    import parallel

    torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("highest")
    transformers.utils.logging.disable_progress_bar()
    main(arguments)
