"""Training runs with Meshwright and with PyTorch, of the same models on the same number of random tokens."""

import array
import json
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import sampler
from .schedule import Item

HERE = Path(__file__).resolve().parent.parent
# Warm-up steps, which compile kernels, autotune and capture CUDA graphs.
WARM_UP = 6
TIMED = 30
# Time limit of a hung program, as a multiple of its estimated time.
PATIENCE = 4


@dataclass(frozen=True)
class Case:
    """A training run with the flags of both programs."""

    name: str
    model: str
    program: str
    flags: str
    batch: int
    seq: int
    vocab: int


LLAMA = Case("Llama 1.2B, 4 x 4096", "llama-1.2b", "train_llama",
             "--hidden 2048 --layers 16 --heads 32 --kv-heads 8 --ffn 8192", 4, 4096, 32000)
GPT2 = Case("GPT-2 124M, 32 x 1024", "gpt2-124m", "train_gpt2",
            "--hidden 768 --layers 12 --heads 12 --ffn 3072", 32, 1024, 50304)
# So little work that the launch overhead determines the time of a step.
SHORT = Case("GPT-2 124M, 1 x 64", "gpt2-124m", "train_gpt2",
             "--hidden 768 --layers 12 --heads 12 --ffn 3072", 1, 64, 50304)


@dataclass(frozen=True)
class Row:
    """Configuration of one of the programs."""

    name: str
    flags: list = field(default_factory=list)
    deterministic: bool = False
    torch: bool = False
    # True if the row takes part in the comparison of the fastest rows.
    compared: bool = True


NONDETERMINISTIC = Row("Meshwright, --nondeterministic", ["--nondeterministic"])
OURS = Row("Meshwright", deterministic=True)
KEEPS_ALL = Row("Meshwright, --nondeterministic --recompute none", ["--nondeterministic", "--recompute", "none"])
EAGER = Row("Meshwright, --no-graphs", ["--no-graphs"], deterministic=True, compared=False)
NONDETERMINISTIC_EAGER = Row("Meshwright, --nondeterministic --no-graphs", ["--nondeterministic", "--no-graphs"],
                             compared=False)
COMPILED = Row("PyTorch, torch.compile", ["--compile"], torch=True)
TORCH = Row("PyTorch", torch=True)
TORCH_DETERMINISTIC = Row("PyTorch, deterministic", ["--deterministic"], deterministic=True, torch=True)

# Rows of each case with their estimated seconds, most important first.
ROWS = {
    "llama": [(LLAMA, [(OURS, 15), (COMPILED, 75), (NONDETERMINISTIC, 15), (TORCH, 40),
                       (NONDETERMINISTIC_EAGER, 15), (TORCH_DETERMINISTIC, 40), (EAGER, 15)])],
    "gpt2": [(GPT2, [(OURS, 10), (COMPILED, 45), (NONDETERMINISTIC, 8), (KEEPS_ALL, 8), (TORCH, 20),
                     (TORCH_DETERMINISTIC, 25), (EAGER, 8)]),
             (SHORT, [(OURS, 5), (COMPILED, 45), (TORCH, 15), (EAGER, 5)])],
}
CASES = {case.name: rows for cases in ROWS.values() for case, rows in cases}


def items():
    for part, cases in ROWS.items():
        for case, rows in cases:
            for row, seconds in rows:
                do = torch if row.torch else ours
                limit = PATIENCE * seconds
                yield Item(f"{part}/{case.name}: {row.name}", seconds,
                           lambda kit, do=do, case=case, row=row, limit=limit: do(kit, case, row, limit))


def tokens(kit, count, vocab):
    """Returns a file of random tokens, created once per call."""
    path = kit.scratch / f"tokens-{vocab}-{count}.bin"
    if not path.exists():
        seed, ids = 1, array.array("H")
        for _ in range(count):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            ids.append((seed >> 33) % vocab)
        path.write_bytes(ids.tobytes())
    return path


def train(kit, case, steps, flags, limit, environment=None, prefix=()):
    """Trains on one rank with our program, started by `prefix` if given. Returns the outcome and the
    metrics of each step."""
    metrics = kit.scratch / "steps.jsonl"
    metrics.unlink(missing_ok=True)
    data = tokens(kit, steps * case.batch * case.seq + 1, case.vocab)
    words = (f"--mesh 1 {case.flags} --vocab {case.vocab} --seq {case.seq} --batch {case.batch} "
             f"--steps {steps} --data {data} --metrics {metrics} --sample-tokens 0 --lr 3e-4")
    command = [*prefix, kit.programs / "bin" / case.program, *words.split(), *flags]
    outcome = kit.runner.run(command, limit, environment)
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return outcome, [json.loads(line) for line in lines if line.endswith("}")]


def ours(kit, case, row, limit):
    steps = WARM_UP + kit.settings.steps
    path = kit.scratch / "samples.csv"
    with sampler.sampling(kit, path):
        outcome, done = train(kit, case, steps, ["--device", "cuda", *row.flags], limit)
    if not outcome.ok:
        return {"kind": "training", "status": outcome.status, "why": outcome.why}
    timed = done[WARM_UP:]
    return {"kind": "training", "status": "ok", "case": case.name, "row": row.name,
            **times([step["step_ms"] for step in timed]),
            "tokens": case.batch * case.seq, "mfu": statistics.median(step["mfu"] or 0 for step in timed),
            "peak_bytes": done[-1]["peak_bytes"]["total"], "losses": [step["loss"] for step in done],
            "samples": sampler.summary(path.read_text())}


def torch(kit, case, row, limit):
    command = [sys.executable, HERE / "torch_train.py", "--model", case.model, "--batch", case.batch,
               "--seq", case.seq, "--warm-up", WARM_UP, "--steps", WARM_UP + kit.settings.steps, *row.flags]
    path = kit.scratch / "samples.csv"
    with sampler.sampling(kit, path):
        outcome = kit.runner.run(command, limit)
    if not outcome.ok:
        return {"kind": "training", "status": outcome.status, "why": outcome.why}
    values = json.loads(outcome.stdout.splitlines()[-1])
    return {"kind": "training", "status": "ok", "case": case.name, "row": row.name,
            **times(values["times"]), "tokens": case.batch * case.seq, "mfu": None,
            "peak_bytes": values["peak_bytes"], "losses": values["losses"],
            "attention": values["attention"], "torch": values["torch"],
            "samples": sampler.summary(path.read_text())}


def times(milliseconds):
    ordered = sorted(milliseconds)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return {"step_ms": round(statistics.median(ordered), 3), "p10": round(at(0.1), 3), "p90": round(at(0.9), 3)}
