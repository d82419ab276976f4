#!/usr/bin/env python3
"""Trains the same Llama with Meshwright and with eager PyTorch, alternately, and compares them.

Usage, from anywhere in the repository, after bench/pytorch/setup.sh:

    python3 bench/compare.py                            # one rank, f32, on one thread and on two
    python3 bench/compare.py --cases two-ranks          # DDP and FSDP, f32 and bf16
    python3 bench/compare.py --cases f32,recompute      # what recomputation costs
    python3 bench/compare.py --isa native,avx2          # also as on a CPU without AVX-512
    python3 bench/compare.py --list

Both start from the same weights (a Hugging Face folder of 34M parameters, written on the first
run) and read the same tokens in the same order, on the same cores. Only the standard library is
needed here. Prints Markdown, so that a run can be kept as it is. Exit code 1 if the losses differ:
then the times mean nothing.
"""

import argparse
import itertools
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
# Largest relative difference of a step's losses, over the 8 steps of the default. Measured: 7e-7 in
# f32; PyTorch's own bf16 training is up to 1e-4 from its f32 training (pytorch/precision.py).
F32, BF16 = 1e-5, 5e-4


@dataclass(frozen=True)
class Case:
    """A training run with the flags of both programs."""

    name: str
    ranks: int
    meshwright: str
    pytorch: str
    tolerance: float = F32
    dtype: str = "f32"


CASES = [
    Case("f32", 1, "--mesh dp=1", "--strategy none"),
    Case("bf16", 1, "--mesh dp=1 --dtype bf16", "--strategy none --dtype bf16", BF16, "bf16"),
    Case("recompute", 1, "--mesh dp=1 --recompute full", "--strategy none --recompute"),
    Case("recompute-bf16", 1, "--mesh dp=1 --recompute full --dtype bf16",
         "--strategy none --recompute --dtype bf16", BF16, "bf16"),
    Case("ddp", 2, "--mesh dp=2", "--strategy ddp"),
    Case("ddp-bf16", 2, "--mesh dp=2 --dtype bf16", "--strategy ddp --dtype bf16", BF16, "bf16"),
    Case("fsdp", 2, "--mesh fsdp=2 --zero 3", "--strategy fsdp2"),
    Case("fsdp-bf16", 2, "--mesh fsdp=2 --zero 3 --dtype bf16", "--strategy fsdp2 --dtype bf16",
         BF16, "bf16"),
    Case("fsdp-recompute", 2, "--mesh fsdp=2 --zero 3 --recompute full",
         "--strategy fsdp2 --recompute"),
]
# The environment that keeps both programs, and their libraries, to an instruction set.
ISAS = {
    "native": {},
    "avx2": {
        "MESHWRIGHT_MAX_CPU_ISA": "avx2", "GEMMKIT_REQUIRE_ISA": "fma",
        "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
GROUPS = {
    "one-rank": ["f32", "bf16", "recompute", "recompute-bf16"],
    "two-ranks": ["ddp", "ddp-bf16", "fsdp", "fsdp-bf16"],
    "all": [case.name for case in CASES],
}


@dataclass
class Contestant:
    """A program in one case, and what its runs have shown so far."""

    name: str
    step_ms: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    peak_rss: int = 0
    gemm_gflops: float = 0.0

    def record(self, steps, peak_rss):
        self.step_ms += [step["step_ms"] for step in steps[WARM_UP:]]
        self.losses = [step["loss"] for step in steps]
        self.peak_rss = max(self.peak_rss, peak_rss)

    def reached(self, gemm_gflops):
        self.gemm_gflops = max(self.gemm_gflops, gemm_gflops)

    def median(self):
        return statistics.median(self.step_ms)

    def best(self):
        return min(self.step_ms)


@dataclass
class Match:
    """A case on some threads per rank, kept to an instruction set; its programs, ours first."""

    case: Case
    threads: int
    isa: str
    contestants: list

    def cores(self):
        return self.case.ranks * self.threads


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="f32", help="comma-separated cases or groups of --list")
    parser.add_argument("--list", action="store_true", help="print the cases and exit")
    parser.add_argument("--threads", default="1,2",
                        help="comma-separated thread counts per rank; a case is left out where "
                        "there are too few cores for it")
    parser.add_argument("--isa", default="native",
                        help="comma-separated instruction sets that both programs are kept to: "
                        + ", ".join(ISAS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each program, in turns")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step on each rank")
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--model", type=Path, default=ROOT / "target" / "bench-model",
                        help="Hugging Face folder with a tokens.bin (u16); written if missing")
    parser.add_argument("--python", default=str(PYTORCH / ".venv" / "bin" / "python"))
    parser.add_argument("--meshwright", help="a train_llama executable (default: build it)")
    parser.add_argument("--no-mkl-avx512", action="store_true",
                        help="leave out PyTorch with MKL's AVX-512 kernels forced on")
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    args = parser.parse_args()
    if args.list:
        list_cases()
        sys.exit()
    if args.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}: the first ones are a warm-up")
    args.matches = choose_matches(parser, args)
    return args


def list_cases():
    for case in CASES:
        print(f"{case.name:<16}{case.meshwright}   |   {case.pytorch}")
    for group, names in GROUPS.items():
        print(f"{group:<16}{', '.join(names)}")


def choose_matches(parser, args):
    """Returns the requested cases in the order of the table, for each valid number of threads."""
    wanted = set()
    for name in args.cases.split(","):
        if name not in GROUPS and name not in GROUPS["all"]:
            parser.error(f"--cases {name}: no such case or group; see --list")
        wanted |= set(GROUPS.get(name, [name]))
    isas = args.isa.split(",")
    for isa in isas:
        if isa not in ISAS:
            parser.error(f"--isa {isa}: choose from {', '.join(ISAS)}")
    cores = len(os.sched_getaffinity(0))
    matches = []
    for isa, threads in itertools.product(isas, [int(n) for n in args.threads.split(",")]):
        programs = ["Meshwright", "PyTorch"]
        if isa == "native" and has_avx512() and not args.no_mkl_avx512:
            programs.append("PyTorch, AVX-512 forced")
        for case in CASES:
            if case.name in wanted and case.ranks * threads <= cores:
                contestants = [Contestant(name) for name in programs]
                matches.append(Match(case, threads, isa, contestants))
    if not matches:
        parser.error(f"--cases {args.cases} --threads {args.threads}: {cores} cores are too few")
    return matches


def has_avx512():
    try:
        return " avx512f " in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def run(command, cores, isa):
    """Runs on the first `cores` cores; returns the output and the peak resident memory."""
    first_cores = sorted(os.sched_getaffinity(0))[:cores]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, cwd=ROOT,
                                   env={**os.environ, **ISAS[isa]},
                                   preexec_fn=lambda: os.sched_setaffinity(0, first_cores))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"exit code {process.returncode} from: {' '.join(map(str, command))}")
        output.seek(0)
        return output.read(), usage.ru_maxrss * 1024


def build(kind, name):
    """Builds a program of ours; cargo reports the path of the executable."""
    command = ["cargo", "build", "--release", kind, name, "--message-format=json"]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"cargo could not build {name}")
    for line in result.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    sys.exit(f"cargo built no executable named {name}")


def settings(args, match):
    """Settings that both programs receive in the same words."""
    return ["--batch", str(args.batch * match.case.ranks), "--seq", str(args.seq),
            "--steps", str(args.steps), "--threads", str(match.threads), "--lr", "1e-3"]


def run_meshwright(contestant, args, match):
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        _, peak_rss = run([
            args.meshwright, "--init-from", args.model, "--data", args.model / "tokens.bin",
            "--order", "sequential", "--sample-tokens", "0", "--metrics", metrics,
            *settings(args, match), *match.case.meshwright.split(),
        ], match.cores(), match.isa)
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    if len(steps) != args.steps:
        sys.exit(f"train_llama wrote {len(steps)} lines of metrics for {args.steps} steps")
    contestant.record(steps, peak_rss)
    output, _ = run([args.gemm_peak, str(match.cores()), match.case.dtype], match.cores(),
                    match.isa)
    contestant.reached(json.loads(output)["gemm_gflops"])


def run_pytorch(contestant, args, match, *options):
    output, _ = run([
        args.python, PYTORCH / "train_llama.py", "--config", args.model,
        "--ranks", str(match.case.ranks), *settings(args, match), *match.case.pytorch.split(),
        *options,
    ], match.cores(), match.isa)
    *steps, summary = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    contestant.record(steps, summary["peak_rss_bytes"])
    contestant.reached(summary["gemm_gflops"])


def run_round(match, args):
    ours, stock, *forced = match.contestants
    run_meshwright(ours, args, match)
    run_pytorch(stock, args, match)
    for contestant in forced:
        run_pytorch(contestant, args, match, "--mkl-avx512")


def flops_per_step(args, match):
    """6 N + 12 L H Q T per token (PaLM, appendix B), N without the input embedding.

    One formula for every program. It counts causal attention as if it were full, and does not
    count what is computed twice.
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
    return per_token * args.batch * match.case.ranks * args.seq


def markdown(header, rows):
    """Text columns first: columns whose header ends in a colon are aligned to the right."""
    rule = ["---:" if name.endswith(":") else "---" for name in header]
    lines = [[name.rstrip(":") for name in header], rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times_table(matches, args):
    header = ["case", "ISA", "ranks x threads", "program", "best ms:", "median ms:",
              "best, x ours:", "median, x ours:", "peak MB:", "GFLOP/s:", "GEMM peak:", "of peak:"]
    rows = []
    for match in matches:
        ours = match.contestants[0]
        flops = flops_per_step(args, match)
        for each in match.contestants:
            reached, peak = flops / each.median() / 1e6, each.gemm_gflops
            rows.append([
                match.case.name, match.isa, f"{match.case.ranks} x {match.threads}", each.name,
                f"{each.best():.0f}", f"{each.median():.0f}", f"{each.best() / ours.best():.2f}",
                f"{each.median() / ours.median():.2f}", f"{each.peak_rss / 1e6:.0f}",
                f"{reached:.0f}", f"{peak:.0f}", f"{reached / peak:.0%}"])
    return markdown(header, rows)


def recompute_table(matches):
    """What each program pays for recomputation; None if no case was run both with and without."""
    plain_of = {"recompute": "f32", "recompute-bf16": "bf16", "fsdp-recompute": "fsdp"}
    by_case = {(match.case.name, match.threads, match.isa): match for match in matches}
    rows = []
    for match in matches:
        plain = by_case.get((plain_of.get(match.case.name), match.threads, match.isa))
        if plain is None:
            continue
        for each, without in zip(match.contestants, plain.contestants):
            rows.append([
                match.case.name, plain.case.name, match.isa,
                f"{match.case.ranks} x {match.threads}",
                each.name, f"{each.best() / without.best():.2f}",
                f"{each.median() / without.median():.2f}",
                f"{each.peak_rss / without.peak_rss:.0%}"])
    header = ["case", "against", "ISA", "ranks x threads", "program", "best:", "median:",
              "peak memory:"]
    return markdown(header, rows) if rows else None


def loss_table(matches):
    header = ["case", "ISA", "ranks x threads", "program", "loss of the first step:",
              "of the last:", "largest difference to ours:", "allowed:"]
    rows = []
    for match in matches:
        for each in match.contestants:
            difference = loss_difference(match, each)
            rows.append([
                match.case.name, match.isa, f"{match.case.ranks} x {match.threads}", each.name,
                f"{each.losses[0]:.6f}", f"{each.losses[-1]:.6f}", f"{difference:.1e}",
                f"{match.case.tolerance:.0e}"])
    return markdown(header, rows)


def loss_difference(match, contestant):
    """The largest relative difference of a step's loss to ours; infinite where one is NaN."""
    ours = match.contestants[0].losses
    differences = [abs(a - b) / abs(b) for a, b in zip(contestant.losses, ours)]
    return max(x if x == x else float("inf") for x in differences)


def report(args):
    sections = [
        f"Batch {args.batch} per rank, sequence {args.seq}, {args.rounds} x "
        f"{args.steps - WARM_UP} timed steps of each program, in turns. Peak memory is the sum "
        "over processes.",
        times_table(args.matches, args), recompute_table(args.matches), loss_table(args.matches)]
    text = "\n\n".join(section for section in sections if section)
    print("\n" + text)
    if args.output:
        args.output.write_text(text + "\n")


def main():
    args = parse_args()
    if not Path(args.python).exists():
        sys.exit(f"{args.python} does not exist: run bench/pytorch/setup.sh, or pass --python")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: load average {load:.1f}: other work makes these times worthless",
              file=sys.stderr)
    args.model = args.model.resolve()
    if not (args.model / "tokens.bin").exists():
        subprocess.run([args.python, PYTORCH / "make_model.py", args.model], check=True)
    args.meshwright = args.meshwright or build("--example", "train_llama")
    args.gemm_peak = build("--bin", "gemm_peak")
    for _ in range(args.rounds):
        for match in args.matches:
            run_round(match, args)
    report(args)
    different = [match.case.name for match in args.matches for each in match.contestants
                 if loss_difference(match, each) > match.case.tolerance]
    if different:
        sys.exit(f"the losses differ by more than is allowed: {', '.join(sorted(set(different)))}")


if __name__ == "__main__":
    main()
