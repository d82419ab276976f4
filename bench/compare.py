#!/usr/bin/env python3
"""Trains the same Llama with Meshwright and with eager PyTorch, alternately, and compares them.

Usage, from anywhere in the repository, after bench/pytorch/setup.sh:

    python3 bench/compare.py [--threads 1,2] [--steps 8] [--rounds 2]

Both start from the same weights (a Hugging Face folder of 34M parameters, written on the first
run) and read the same tokens in the same order, on the same cores. Only the standard library is
needed here. Exit code 1 if the losses differ: then the times mean nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTORCH = ROOT / "bench" / "pytorch"
WARM_UP = 2  # Steps of every run that are not timed.


@dataclass
class Contestant:
    """A program, and what its runs have shown so far."""

    name: str
    step_ms: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    peak_rss: int = 0
    gemm_gflops: float | None = None

    def record(self, steps, peak_rss):
        self.step_ms += [step["step_ms"] for step in steps[WARM_UP:]]
        self.losses = [step["loss"] for step in steps]
        self.peak_rss = max(self.peak_rss, peak_rss)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2", help="comma-separated thread counts to compare")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each program, in turns")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--model", type=Path, default=ROOT / "target" / "bench-model",
                        help="Hugging Face folder with a tokens.bin (u16); written if missing")
    parser.add_argument("--python", default=str(PYTORCH / ".venv" / "bin" / "python"))
    parser.add_argument("--meshwright", help="a train_llama executable (default: build it)")
    parser.add_argument("--no-mkl-avx512", action="store_true",
                        help="leave out PyTorch with MKL's AVX-512 kernels forced on")
    parser.add_argument("--tolerance", type=float, default=1e-3,
                        help="largest relative difference of a step's losses")
    args = parser.parse_args()
    args.threads = [int(count) for count in args.threads.split(",")]
    cores = len(os.sched_getaffinity(0))
    if max(args.threads) > cores:
        parser.error(f"--threads {max(args.threads)}: only {cores} cores are available")
    if args.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}: the first ones are a warm-up")
    return args


def run(command, threads):
    """Runs on the first `threads` cores; returns the output and the peak resident memory."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, cwd=ROOT,
                                   preexec_fn=lambda: os.sched_setaffinity(0, cores))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"exit code {process.returncode} from: {' '.join(map(str, command))}")
        output.seek(0)
        return output.read(), usage.ru_maxrss * 1024


def build(kind, name):
    """Builds a program of ours; cargo says where the executable lies."""
    command = ["cargo", "build", "--release", kind, name, "--message-format=json"]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"cargo could not build {name}")
    for line in result.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    sys.exit(f"cargo built no executable named {name}")


def run_meshwright(contestant, args, threads):
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        _, peak_rss = run([
            args.meshwright, "--init-from", args.model, "--data", args.model / "tokens.bin",
            "--order", "sequential", "--batch", str(args.batch), "--seq", str(args.seq),
            "--steps", str(args.steps), "--mesh", "dp=1", "--threads", str(threads),
            "--lr", "1e-3", "--sample-tokens", "0", "--metrics", metrics,
        ], threads)
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    if len(steps) != args.steps:
        sys.exit(f"train_llama wrote {len(steps)} lines of metrics for {args.steps} steps")
    contestant.record(steps, peak_rss)


def run_pytorch(contestant, args, threads, *options):
    output, peak_rss = run([
        args.python, PYTORCH / "train_llama.py", "--config", args.model,
        "--batch", str(args.batch), "--seq", str(args.seq), "--steps", str(args.steps),
        "--threads", str(threads), "--lr", "1e-3", *options,
    ], threads)
    *steps, summary = [json.loads(line) for line in output.splitlines()]
    contestant.record(steps, peak_rss)
    contestant.gemm_gflops = max(contestant.gemm_gflops or 0.0, summary["gemm_gflops"])


def flops_per_step(args):
    """6 N + 12 L H Q T per token (PaLM, appendix B), N without the input embedding.

    One formula for every program. It counts causal attention as if it were full.
    """
    config = json.loads((args.model / "config.json").read_text())
    hidden, layers, heads = (config[key] for key in
                             ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    attention = hidden * head_dim * 2 * (heads + kv_heads)
    per_layer = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    parameters = layers * per_layer + hidden + config["vocab_size"] * hidden
    per_token = 6 * parameters + 12 * layers * heads * head_dim * args.seq
    return per_token * args.batch * args.seq


def print_table(contestants, args, threads):
    ours, stock = contestants[0], contestants[1]
    flops = flops_per_step(args)
    print(f"\n{threads} thread(s), batch {args.batch}, seq {args.seq}, {args.rounds} x "
          f"{args.steps - WARM_UP} timed steps, {flops / 1e9:.0f} GFLOP per step")
    row = "{:<22}{:>11}{:>11}{:>13}{:>11}{:>11}{:>11}{:>11}{:>9}"
    print(row.format("", "median ms", "min ms", "x meshwright", "peak MB", "of stock",
                     "GFLOP/s", "GEMM peak", "of peak"))
    for each in contestants:
        median = statistics.median(each.step_ms)
        reached = flops / median / 1e6
        peak = each.gemm_gflops
        print(row.format(
            each.name, f"{median:.0f}", f"{min(each.step_ms):.0f}",
            f"{median / statistics.median(ours.step_ms):.2f}",
            f"{each.peak_rss / 1e6:.0f}", f"{each.peak_rss / stock.peak_rss:.0%}",
            f"{reached:.0f}", f"{peak:.0f}" if peak else "?",
            f"{reached / peak:.0%}" if peak else "?"))


def largest_difference(contestants):
    """Prints the losses side by side; returns the largest relative difference to the first."""
    print("loss per step".ljust(16) + "".join(f"{each.name:>22}" for each in contestants))
    worst = 0.0
    for step, losses in enumerate(zip(*(each.losses for each in contestants))):
        print(f"{step:<16}" + "".join(f"{loss:>22.6f}" for loss in losses))
        # Written so that a NaN, too, counts as a difference.
        differences = [abs(loss - losses[0]) / abs(losses[0]) for loss in losses]
        worst = max([worst] + [x if x == x else float("inf") for x in differences])
    return worst


def compare(args, threads):
    ours, stock = Contestant("meshwright"), Contestant("pytorch")
    contestants = [ours, stock]
    if not args.no_mkl_avx512:
        forced = Contestant("pytorch (mkl avx-512)")
        contestants.append(forced)
    for _ in range(args.rounds):
        run_meshwright(ours, args, threads)
        run_pytorch(stock, args, threads)
        if not args.no_mkl_avx512:
            run_pytorch(forced, args, threads, "--mkl-avx512")
        output, _ = run([args.gemm_peak, str(threads)], threads)
        ours.gemm_gflops = max(ours.gemm_gflops or 0.0, json.loads(output)["gemm_gflops"])
    print_table(contestants, args, threads)
    return largest_difference(contestants)


def main():
    args = parse_args()
    if not Path(args.python).exists():
        sys.exit(f"{args.python} does not exist: run bench/pytorch/setup.sh, or pass --python")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: load average {load:.1f}: other work makes these times worthless")
    args.model = args.model.resolve()
    if not (args.model / "tokens.bin").exists():
        subprocess.run([args.python, PYTORCH / "make_model.py", args.model], check=True)
    args.meshwright = args.meshwright or build("--example", "train_llama")
    args.gemm_peak = build("--bin", "gemm_peak")
    worst = max(compare(args, threads) for threads in args.threads)
    print(f"\nlargest relative difference of losses: {worst:.1e}")
    if worst > args.tolerance:
        sys.exit(f"the losses differ by more than {args.tolerance:.0e}: not the same training")


if __name__ == "__main__":
    main()
