"""Short training runs that must reproduce the losses of others."""

import re
from dataclasses import replace

from .schedule import Item
from .trainings import GPT2, LLAMA, train

TINY = replace(LLAMA, name="two layers", flags="--hidden 256 --layers 2 --heads 8 --kv-heads 4 --ffn 512",
               batch=8, seq=128, vocab=1024)
# Relative difference of f32 losses between devices: sums are rounded in another order.
F32 = 1e-4
# CUDA graphs are captured after two steps, so the last steps launch them.
STEPS = 5


def items():
    yield Item("works/two layers in f32 against the CPU", 5, against_cpu)
    for case, seconds in [(LLAMA, 15), (GPT2, 10)]:
        yield Item(f"works/{case.model} with and without CUDA graphs", seconds,
                   lambda kit, case=case: graphs(kit, case))


def against_cpu(kit):
    runs = [losses(kit, TINY, 10, ["--device", device, "--dtype", "f32"]) for device in ("cuda", "cpu")]
    return compared(runs, lambda a, b: abs(a - b) <= F32 * abs(b), "the CPU")


def graphs(kit, case):
    """Deterministic runs have the same losses and norms to the last bit."""
    runs = [losses(kit, case, STEPS, ["--device", "cuda", *flags]) for flags in ([], ["--no-graphs"])]
    return compared(runs, lambda a, b: a == b, "the run without graphs")


def losses(kit, case, steps, flags):
    """Returns the outcome, and the loss and gradient norm of each step."""
    outcome, done = train(kit, case, steps, flags, 120)
    if outcome.ok and len(done) != steps:
        outcome = replace(outcome, status="failed", why=f"{len(done)} of {steps} steps are in the metrics")
    return outcome, [(step["loss"], step["grad_norm"]) for step in done]


def compared(runs, same, with_what):
    for outcome, _ in runs:
        if not outcome.ok:
            return {"kind": "agreement", "status": outcome.status, "why": outcome.why}
    (_, got), (_, expected) = runs
    record = {"kind": "agreement", "got": got, "expected": expected}
    for step, (mine, other) in enumerate(zip(got, expected, strict=True), 1):
        for name, a, b in zip(("loss", "gradient norm"), mine, other):
            if not same(a, b):
                return record | {"status": "failed", "why": f"{name} of step {step}: {a} instead of {b} of {with_what}"}
    return record | {"status": "ok", "why": f"loss {got[0][0]:.4f} to {got[-1][0]:.4f}, as {with_what}"}
