#!/usr/bin/env python3
"""Checks Meshwright on a machine with a GPU, and writes a report.

Runs what pack.sh has put beside this file: the libraries that are found, every kernel and whole
models against the processor, the speed of every kernel, and trainings beside the same ones of
PyTorch. What fails is in the report, and does not stop the rest.

Usage: python3 .gpu/check.py OUT [--parts probe,tests,kernels,training] [--minutes 9]

OUT/report.md is the report, OUT/log.txt what every program printed.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ["probe", "tests", "kernels", "training"]
WARM_UP = 4  # Steps that are not timed.


@dataclass(frozen=True)
class Training:
    """One training, as each of the two programs is told to do it."""

    model: str
    program: str
    flags: str
    batch: int
    seq: int
    vocab: int


TRAININGS = [
    Training("llama-1.2b", "train_llama",
             "--hidden 2048 --layers 16 --heads 32 --kv-heads 8 --ffn 8192", 4, 4096, 32000),
    Training("gpt2-124m", "train_gpt2",
             "--hidden 768 --layers 12 --heads 12 --ffn 3072", 32, 1024, 50304),
]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--minutes", type=float, default=9, help="stop beginning work after these")
    parser.add_argument("--steps", type=int, default=12, help="of every training")
    args = parser.parse_args()
    args.parts = args.parts.split(",")
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(PARTS)}")
    if args.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}")
    return args


def library_folders():
    """The folders of the vendor's libraries among the Python packages here."""
    found = importlib.util.find_spec("nvidia")
    roots = [Path(path) for path in found.submodule_search_locations] if found else []
    return [str(folder) for root in roots for folder in sorted(root.glob("*/lib"))]


class Check:
    def __init__(self, args):
        self.args = args
        self.end = time.monotonic() + 60 * args.minutes
        self.out = args.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = open(self.out / "log.txt", "w")
        self.environment = os.environ | {"RUST_BACKTRACE": "1"}
        folders = library_folders() + os.environ.get("MESHWRIGHT_CUDA_LIBS", "").split(":")
        self.environment["MESHWRIGHT_CUDA_LIBS"] = ":".join(filter(None, folders))
        self.report = open(self.out / "report.md", "w")

    def write(self, text=""):
        for stream in (self.report, sys.stdout):
            print(text, file=stream, flush=True)

    def run(self, command, limit=240, **environment):
        """Standard output of a program and whether it succeeded; both outputs go into the log."""
        left = self.end - time.monotonic()
        if left < 5:
            return "", "not run: out of time"
        print(f"$ {' '.join(map(str, command))}", file=self.log, flush=True)
        try:
            done = subprocess.run(command, text=True, capture_output=True, cwd=HERE,
                                  env=self.environment | environment, timeout=min(limit, left))
        except subprocess.TimeoutExpired as expired:
            for output in (expired.stdout, expired.stderr):
                print((output or b"").decode(errors="replace"), file=self.log)
            return "", f"stopped after {min(limit, left):.0f} s"
        print(done.stdout, done.stderr, sep="\n", file=self.log, flush=True)
        if done.returncode == 0:
            return done.stdout, None
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return done.stdout, f"exit code {done.returncode}: {last}"

    def probe(self):
        self.write("# GPU check\n\n## Libraries\n\n```")
        text, failure = self.run(["bin/meshwright", "probe"])
        self.write((text or "").rstrip())
        self.write(f"```{'' if failure is None else chr(10) + failure}")

    def tests(self):
        self.write("\n## Kernels and models against the processor\n\n| tests | result |\n|---|---|")
        for test in sorted((HERE / "tests").iterdir()):
            text, failure = self.run([test, "--test-threads=1"], MESHWRIGHT_TEST_DEVICE="cuda")
            results = [line for line in text.splitlines() if line.startswith("test result:")]
            counts = results[-1].removeprefix("test result: ").split("; finished")[0] if results else ""
            self.write(f"| {test.name} | {counts or failure} |")
            for line in text.splitlines():
                if line.startswith("test ") and line.endswith("FAILED"):
                    self.write(f"| | {line} |")

    def kernels(self):
        self.write("\n## Speed of kernels\n")
        text, failure = self.run(["bin/gpu"])
        self.write(text.rstrip())
        if failure:
            self.write(f"\n{failure}")

    def training(self):
        self.write("\n## Training\n\n| model | program | step, ms | tokens/s | MFU | peak memory | "
                   "loss of the last step |\n|---|---|---|---|---|---|---|")
        for case in TRAININGS:
            rates = {"Meshwright": self.ours(case)}
            for name, flags in [("PyTorch", []), ("PyTorch, torch.compile", ["--compile"])]:
                rates[name] = self.torch(case, name, flags)
            others = [rate for name, rate in rates.items() if name != "Meshwright" and rate]
            if rates["Meshwright"] and others:
                ratio = rates["Meshwright"] / max(others)
                self.write(f"| {case.model} | Meshwright over the best PyTorch | | {ratio:.2f}x | | | |")

    def row(self, case, name, milliseconds, mfu, peak, loss):
        rate = case.batch * case.seq / milliseconds * 1e3
        share = f"{100 * mfu:.1f} %" if mfu else ""
        self.write(f"| {case.model} | {name} | {milliseconds:.1f} | {rate:.0f} | {share} | "
                   f"{peak / 1e9:.1f} GB | {loss:.4f} |")
        return rate

    def ours(self, case):
        tokens = self.out / f"{case.model}.bin"
        metrics = self.out / f"{case.model}.jsonl"
        metrics.unlink(missing_ok=True)
        count = self.args.steps * case.batch * case.seq + 1
        seed, ids = 1, bytearray()
        for _ in range(count):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            ids += ((seed >> 33) % case.vocab).to_bytes(2, "little")
        tokens.write_bytes(ids)
        flags = (f"--device cuda --mesh 1 {case.flags} --vocab {case.vocab} --seq {case.seq} "
                 f"--batch {case.batch} --steps {self.args.steps} --data {tokens} "
                 f"--metrics {metrics} --sample-tokens 0 --lr 3e-4")
        _, failure = self.run([f"bin/{case.program}", *flags.split()])
        tokens.unlink()
        if failure:
            self.write(f"| {case.model} | Meshwright | {failure} | | | | |")
            return None
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
        timed = steps[WARM_UP:]
        return self.row(case, "Meshwright", statistics.median(s["step_ms"] for s in timed),
                        statistics.median(s["mfu"] for s in timed),
                        sum(steps[-1]["peak_bytes"].values()), steps[-1]["loss"])

    def torch(self, case, name, flags):
        command = [sys.executable, "torch_train.py", "--model", case.model, "--batch",
                   str(case.batch), "--steps", str(self.args.steps), *flags]
        text, failure = self.run(command)
        if failure:
            self.write(f"| {case.model} | {name} | {failure} | | | | |")
            return None
        values = json.loads(text.splitlines()[-1])
        return self.row(case, name, values["step_ms"], None, values["peak_bytes"],
                        values["losses"][-1])


def main():
    args = parse_args()
    check = Check(args)
    for part in PARTS:
        if part in args.parts:
            getattr(check, part)()


if __name__ == "__main__":
    main()
