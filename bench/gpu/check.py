#!/usr/bin/env python3
"""Checks Meshwright on a machine with a GPU, and writes a report.

Runs what pack.sh has put beside this file: the libraries that are found, every kernel and whole
models against the processor, the speed of every kernel, trainings beside the same ones of
PyTorch, and several processes on one card with NCCL between them. What fails is in the report,
and does not stop the rest.

Usage: python3 .gpu/check.py OUT [--parts probe,tests,kernels,training,nccl] [--minutes 9]

OUT/report.md is the report, OUT/log.txt what every program printed.
"""

import argparse
import array
import importlib.util
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# In order, with the share of the remaining time that each may take.
PARTS = {"probe": 1.0, "tests": 0.4, "kernels": 0.4, "training": 0.6, "nccl": 1.0}
WARM_UP = 4  # Steps that are not timed.


@dataclass(frozen=True)
class Training:
    """One training, as each of the two programs is told to do it."""

    name: str
    model: str
    program: str
    flags: str
    batch: int
    seq: int
    vocab: int


TRAININGS = [
    Training("llama-1.2b", "llama-1.2b", "train_llama",
             "--hidden 2048 --layers 16 --heads 32 --kv-heads 8 --ffn 8192", 4, 4096, 32000),
    Training("gpt2-124m", "gpt2-124m", "train_gpt2",
             "--hidden 768 --layers 12 --heads 12 --ffn 3072", 32, 1024, 50304),
    # So little for the card to do that the step takes as long as the host needs to ask for it.
    Training("gpt2-124m, one short sequence", "gpt2-124m", "train_gpt2",
             "--hidden 768 --layers 12 --heads 12 --ffn 3072", 1, 64, 50304),
]


# Short trainings of several processes, which are compared with that of one.
MESHES = [("dp=2", 2), ("tp=2", 2), ("fsdp=2 --zero 3", 2), ("dp=2,tp=2", 4)]
# Losses apart, relative: sums of bf16 are rounded in another order.
APART = 0.02


@dataclass(frozen=True)
class Ours:
    """What a training of ours came to."""

    milliseconds: float
    mfu: float


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
    def __init__(self, args, programs):
        self.args = args
        self.programs = programs
        self.end = time.monotonic() + 60 * args.minutes
        self.part_end = self.end
        self.out = args.out.resolve()
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
        [(text, failure)] = self.run_together([(command, environment)], limit)
        return text, failure

    def run_together(self, commands, limit):
        """As `run`, for programs that run at the same time, each with its own variables."""
        left = min(limit, self.part_end - time.monotonic())
        if left < 5:
            return [("", "not run: out of time")] * len(commands)
        end = time.monotonic() + left
        started = []
        for index, (command, environment) in enumerate(commands):
            print(f"$ {' '.join(map(str, command))}", file=self.log, flush=True)
            # Files, because a pipe that nobody reads stops the program.
            outputs = [open(self.out / f"{name}.{index}", "w+", errors="replace")
                       for name in ("stdout", "stderr")]
            try:
                program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=outputs[0],
                                           stderr=outputs[1], cwd=self.programs, start_new_session=True,
                                           env=self.environment | environment)
            except OSError as error:
                program = error
            started.append((program, outputs))
        return [self.outcome(program, outputs, end, left) for program, outputs in started]

    def outcome(self, program, outputs, end, limit):
        failure = None
        if isinstance(program, OSError):
            failure = f"cannot be started: {program}"
        else:
            try:
                program.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                # With what it has started.
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
                failure = f"stopped after {limit:.0f} s"
        texts = []
        for output in outputs:
            output.seek(0)
            texts.append(output.read())
            output.close()
            os.unlink(output.name)
        print(*texts, sep="\n", file=self.log, flush=True)
        if failure is None and program.returncode != 0:
            last = (texts[1].strip() or texts[0].strip() or "no output").splitlines()[-1]
            failure = f"exit code {program.returncode}: {last}"
        return texts[0], failure

    def guarded(self, part):
        """Runs a part; a fault of this program is in the report too."""
        try:
            getattr(self, part)()
        except Exception as error:  # The parts after it still tell something.
            traceback.print_exc(file=self.log)
            self.write(f"\n**{part} could not go on: {type(error).__name__}: {error}**")

    def probe(self):
        self.write("# GPU check\n\n## Libraries\n\n```")
        text, failure = self.run(["bin/meshwright", "probe"])
        self.write((text or "").rstrip())
        self.write(f"```{'' if failure is None else chr(10) + failure}")

    def tests(self):
        self.write("\n## Kernels and models against the processor\n\n| tests | result |\n|---|---|")
        for test in sorted((self.programs / "tests").iterdir()):
            # One that hangs leaves time for the others.
            self.test(test, limit=max((self.part_end - time.monotonic()) / 3, 20))

    def test(self, test, limit):
        """Runs a test program, and writes rows: its result, and what has failed."""
        # Barriers are taken out of the kernels of a simulated device alone.
        command = [test, "--test-threads=1", "--skip", "barriers::"]
        text, failure = self.run(command, limit, MESHWRIGHT_TEST_DEVICE="cuda")
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
            ours = self.ours(case)
            others = [self.torch(case, name, flags, ours) for name, flags in
                      [("PyTorch", []), ("PyTorch, torch.compile", ["--compile"])]]
            others = [milliseconds for milliseconds in others if milliseconds]
            if ours and others:
                self.write(f"| {case.name} | Meshwright over the best PyTorch | | "
                           f"{min(others) / ours.milliseconds:.2f}x | | | |")
        self.write("\nThe step of one short sequence is as long as the host takes to queue it. MFU counts "
                   "the same operations for all programs.")

    def row(self, case, name, milliseconds, mfu, peak, loss):
        rate = case.batch * case.seq / milliseconds * 1e3
        share = f"{100 * mfu:.1f} %" if mfu else ""
        self.write(f"| {case.name} | {name} | {milliseconds:.1f} | {rate:.0f} | {share} | "
                   f"{peak / 1e9:.1f} GB | {loss:.4f} |")

    def tokens(self, name, count, vocab):
        """A file of random tokens."""
        path = self.out / f"{name}.bin"
        seed, ids = 1, array.array("H")
        for _ in range(count):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            ids.append((seed >> 33) % vocab)
        path.write_bytes(ids.tobytes())
        return path

    def ours(self, case):
        metrics = self.out / f"{case.model}-{case.seq}.jsonl"
        metrics.unlink(missing_ok=True)
        tokens = self.tokens("training", self.args.steps * case.batch * case.seq + 1, case.vocab)
        flags = (f"--device cuda --mesh 1 {case.flags} --vocab {case.vocab} --seq {case.seq} "
                 f"--batch {case.batch} --steps {self.args.steps} --data {tokens} "
                 f"--metrics {metrics} --sample-tokens 0 --lr 3e-4")
        _, failure = self.run([f"bin/{case.program}", *flags.split()])
        tokens.unlink()
        if failure:
            self.write(f"| {case.name} | Meshwright | {failure} | | | | |")
            return None
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
        timed = steps[WARM_UP:]
        ours = Ours(statistics.median(step["step_ms"] for step in timed),
                    statistics.median(step["mfu"] or 0 for step in timed))
        self.row(case, "Meshwright", ours.milliseconds, ours.mfu,
                 sum(steps[-1]["peak_bytes"].values()), steps[-1]["loss"])
        return ours

    def torch(self, case, name, flags, ours):
        """Milliseconds of a step."""
        command = [sys.executable, HERE / "torch_train.py", "--model", case.model, "--batch",
                   str(case.batch), "--seq", str(case.seq), "--steps", str(self.args.steps), *flags]
        text, failure = self.run(command)
        if failure:
            self.write(f"| {case.name} | {name} | {failure} | | | | |")
            return None
        values = json.loads(text.splitlines()[-1])
        # As many operations, in another time.
        mfu = ours.mfu * ours.milliseconds / values["step_ms"] if ours else None
        self.row(case, f"{name} ({values['attention']})", values["step_ms"], mfu,
                 values["peak_bytes"], values["losses"][-1])
        return values["step_ms"]


    def nccl(self):
        self.write("\n## Several processes on this card, with NCCL between them\n\nEach is a host of "
                   "its own to NCCL, which goes over loopback: this is about results, not speed.\n\n"
                   "| tests | result |\n|---|---|")
        left = self.part_end - time.monotonic()
        self.test(self.programs / "processes" / "processes", limit=max(left / 2, 5))
        self.write("\n| mesh | first and last loss | apart from one rank |\n|---|---|---|")
        tokens = self.tokens("nccl", 16385, 1024)
        expected = None
        for mesh, ranks in [("1", 1), *MESHES]:
            losses, failure = self.short_training(mesh, ranks, tokens)
            if failure:
                self.write(f"| {mesh} | {failure} | |")
                continue
            ends = f"{losses[0]:.4f}, {losses[-1]:.4f}"
            if mesh == "1":
                expected = losses
                self.write(f"| {mesh} | {ends} | |")
            elif expected:
                apart = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
                verdict = "ok" if apart < APART else "**WRONG**"
                self.write(f"| {mesh} | {ends} | {apart:.1e}, {verdict} |")
            else:
                self.write(f"| {mesh} | {ends} | nothing to compare with |")
        tokens.unlink()

    def short_training(self, mesh, ranks, tokens):
        """Losses of a training with a process for each rank, all on this card."""
        metrics = self.out / "nccl.jsonl"
        metrics.unlink(missing_ok=True)
        flags = (f"--device cuda --mesh {mesh} --hidden 256 --layers 4 --heads 8 --kv-heads 4 "
                 f"--ffn 512 --vocab 1024 --seq 128 --batch 8 --steps 8 --data {tokens} "
                 f"--metrics {metrics} --sample-tokens 0 --lr 3e-4")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        together = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port, "MESHWRIGHT_JOB": f"check {port}",
                    "MESHWRIGHT_SHARE_GPUS": 1, "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": 1,
                    "NCCL_MULTI_RANK_GPU_ENABLE": 1}
        of_rank = lambda rank: {"RANK": rank, "LOCAL_RANK": rank, "NCCL_HOSTID": f"rank{rank}"}
        variables = [{} if ranks == 1 else {name: str(value) for name, value in
                                            (together | of_rank(rank)).items()}
                     for rank in range(ranks)]
        program = ["bin/train_llama", *flags.split()]
        outcomes = self.run_together([(program, own) for own in variables], limit=90)
        failures = [failure for _, failure in outcomes if failure]
        if failures:
            return None, failures[0]
        return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()], None


def main():
    args = parse_args()
    archive = HERE / "programs.tar.gz"
    if not archive.exists():
        sys.exit(f"{archive} is not there: make it with bench/gpu/pack.sh, which copies this file beside it")
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        shutil.unpack_archive(archive, folder)
        run(Check(args, Path(folder)))


def run(check):
    """Every part that was asked for."""
    for part, share in PARTS.items():
        if part in check.args.parts:
            now = time.monotonic()
            check.part_end = now + max(0, check.end - now) * share
            check.guarded(part)


if __name__ == "__main__":
    main()
