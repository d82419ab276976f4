"""Writes the fixtures of local SGD: DiLoCo of four replicas of a tiny Llama, trained by PyTorch one after the other.

Usage: python local_sgd.py [--out DIR]. The model is that of the fixture `untied_mha`. The fixture `local_sgd`
synchronizes the whole model in one step, and `streaming_diloco` fragments in turn, which arrive after a delay.

Each replica has its own AdamW, takes STEPS_EACH steps on its rows of each batch, and is clipped by its own norm. Then
SGD with Nesterov momentum takes a step on the parameters that all replicas began with; its gradient is the mean over
the replicas of (parameters at the beginning - parameters now). Losses and norms are means over the replicas.

With fragments, those of layer l are in fragment l mod FRAGMENTS and all others in the first one, and each is
synchronized once in STEPS_EACH steps. The gradient is that of DELAY steps before, and a replica goes on from
ALPHA * (its own parameters) + (1 - ALPHA) * (the new ones).
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

import llama_cases
from generate import distance

REPLICAS, BATCH, STEPS, STEPS_EACH = 4, 8, 40, 8
LR, EPS, OUTER_LR, OUTER_MOMENTUM = 3e-3, 1e-6, 0.7, 0.9
FRAGMENTS, DELAY, ALPHA = 2, 2, 0.5
ADAMW = {"lr": LR, "betas": (0.9, 0.95), "eps": EPS, "weight_decay": 0.1, "foreach": False}
CASE = next(case for case in llama_cases.CASES if case.name == "untied_mha")


def token_stream():
    """A noisy arithmetic progression modulo the vocabulary."""
    rng = np.random.default_rng(46)
    tokens = [int(rng.integers(CASE.vocab))]
    for _ in range(STEPS * BATCH * CASE.seq):
        jump = rng.integers(CASE.vocab) if rng.random() < 0.2 else 3
        tokens.append(int((tokens[-1] + jump) % CASE.vocab))
    return np.array(tokens, dtype=np.uint16)


def rows_of(stream, step, replica):
    """The rows of a replica: consecutive ones of the batch."""
    each = BATCH // REPLICAS
    starts = [(step * BATCH + replica * each + row) * CASE.seq for row in range(each)]
    rows = np.stack([stream[start : start + CASE.seq + 1] for start in starts]).astype(np.int64)
    return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())


def inner_optimizer(model):
    decays = [p for name, p in model.named_parameters() if CASE.decays(name, p)]
    others = [p for name, p in model.named_parameters() if not CASE.decays(name, p)]
    return torch.optim.AdamW([{"params": decays}, {"params": others, "weight_decay": 0.0}], **ADAMW)


def fragment_of(name, fragments):
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    return numbers[0] % fragments if numbers else 0


def run(folder, dtype, stream, fragments, delay, alpha):
    """Losses and norms by step, and the last parameters that all replicas have."""
    turn = STEPS_EACH // fragments
    shared = CASE.load_model(folder, dtype)
    outer = torch.optim.SGD(shared.parameters(), lr=OUTER_LR, momentum=OUTER_MOMENTUM, nesterov=True)
    replicas = [CASE.load_model(folder, dtype) for _ in range(REPLICAS)]
    inners = [inner_optimizer(model) for model in replicas]
    losses, norms = [], []
    for step in range(STEPS):
        step_losses, step_norms = [], []
        for index, (model, inner) in enumerate(zip(replicas, inners)):
            tokens, targets = rows_of(stream, step, index)
            loss = CASE.loss(CASE.forward(model, tokens).logits, targets)
            inner.zero_grad()
            loss.backward()
            step_losses.append(loss.item())
            step_norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CASE.clip).item())
            inner.step()
        losses.append(float(np.mean(step_losses)))
        norms.append(float(np.mean(step_norms)))
        done = step + 1
        for event in (["end", "start"] if delay else ["start", "end"]):
            due = done + (delay if event == "start" else 0)
            if due % turn != 0:
                continue
            in_fragment = [
                (name, parameter) for name, parameter in shared.named_parameters()
                if fragment_of(name, fragments) == (due // turn - 1) % fragments
            ]
            with torch.no_grad():
                if event == "start":
                    for name, parameter in in_fragment:
                        moved = [parameter - model.get_parameter(name) for model in replicas]
                        parameter.grad = torch.stack(moved).mean(dim=0)
                    continue
                outer.step()
                outer.zero_grad()
                for name, parameter in in_fragment:
                    for model in replicas:
                        own = model.get_parameter(name)
                        own.copy_(alpha * own + (1 - alpha) * parameter)
    parameters = {name: p.detach() for name, p in shared.named_parameters()}
    return {"losses": losses, "norms": norms}, {name: parameters[name] for name in CASE.final_parameters}


def write(out, name, fragments, delay, alpha):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    stream = token_stream()
    stream.astype("<u2").tofile(folder / "tokens.bin")
    single = run(out / CASE.name, torch.float32, stream, fragments, delay, alpha)
    with CASE.exact():
        double = run(out / CASE.name, torch.float64, stream, fragments, delay, alpha)
    noise = {key: max(map(distance, single[0][key], double[0][key])) for key in single[0]}
    noise["parameters"] = max(distance(value, double[1][name]) for name, value in single[1].items())
    settings = {
        "mesh": f"dp={REPLICAS}", "batch": BATCH, "seq": CASE.seq, "steps": STEPS, "local_steps": STEPS_EACH,
        "lr": LR, "eps": EPS, "betas": ADAMW["betas"], "weight_decay": ADAMW["weight_decay"], "clip": CASE.clip,
        "outer_lr": OUTER_LR, "outer_momentum": OUTER_MOMENTUM, "fragments": fragments, "fragment_delay": delay,
    }
    expected = {**settings, **single[0], "noise_floor": noise}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    save_file({f"final.{name}": value.contiguous().numpy() for name, value in single[1].items()},
              folder / "expected.safetensors")
    print("losses: " + " ".join(f"{loss:.3f}" for loss in single[0]["losses"]))
    print("norms: " + " ".join(f"{norm:.3f}" for norm in single[0]["norms"]))
    print("noise: " + " ".join(f"{key}={value:.1e}" for key, value in noise.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    folder = parser.parse_args().out
    write(folder, "local_sgd", 1, 0, 0)
    write(folder, "streaming_diloco", FRAGMENTS, DELAY, ALPHA)
