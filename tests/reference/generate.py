"""Writes the one-rank reference fixtures: tiny models trained by PyTorch/transformers.

Usage: python generate.py [--out DIR] [CASE ..]. README.md beside this file describes what is written.

Every case is run twice, in f32 (the expected values) and in f64 (from the same f32 weights). The
distance between the two is the noise that any correct f32 implementation may show, and is
recorded with the case so that test tolerances can be judged against it.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

import bert_cases
import decoder_cases
import deepseek_cases
import gemma_cases
import gpt2_cases
import llama_cases
import mixtral_cases
import moe_cases
import norm_cases

BATCH = 4
IGNORED = -100  # PyTorch's ignore index; written to the files as the largest u32.
OPTIMIZER = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CASES = llama_cases.CASES + gpt2_cases.CASES + mixtral_cases.CASES
FAMILIES = (decoder_cases.CASES + gemma_cases.CASES + norm_cases.CASES + moe_cases.CASES
            + deepseek_cases.CASES + bert_cases.CASES)
# Tolerances of the tests of families. A mutation moves a loss of a training run by at least ten times as much.
TRAIN_LOSS, LOGITS = 2e-4, 5e-6


def token_stream(case):
    """A noisy arithmetic progression modulo the vocabulary: learnable, and reaches every token."""
    rng = np.random.default_rng(case.seed)
    tokens = [int(rng.integers(case.vocab))]
    for _ in range(case.steps * BATCH * case.seq):
        jump = rng.integers(case.vocab) if rng.random() < 0.2 else 3
        tokens.append(int((tokens[-1] + jump) % case.vocab))
    tokens = np.array(tokens, dtype=np.uint16)
    if case.padding_share > 0.0:
        tokens[rng.random(len(tokens)) < case.padding_share] = case.padding
    return tokens


def batch_of_step(case, stream, step):
    """Sequential order: sample i of step s is stream[(s * BATCH + i) * seq ..][.. seq + 1]; images have their own."""
    if hasattr(case, "batch_of_step"):
        return case.batch_of_step(stream, step)
    starts = [(step * BATCH + i) * case.seq for i in range(BATCH)]
    samples = np.stack([stream[start : start + case.seq + 1] for start in starts]).astype(np.int64)
    return torch.from_numpy(samples[:, :-1].copy()), torch.from_numpy(samples[:, 1:].copy())


def mask_targets(case, targets):
    """Uneven on purpose: nothing, a prefix, scattered positions and a whole sample are ignored."""
    targets = targets.clone()
    targets[1, : case.seq // 2] = IGNORED
    targets[2, ::3] = IGNORED
    targets[3, :] = IGNORED
    return targets


def loss_and_logits(case, model, tokens, targets):
    """Cross-entropy averaged over the targets that are not ignored, the objective, and the logits."""
    output = case.forward(model, tokens)
    loss = case.loss(output.logits, targets)
    return loss, loss + case.penalty(output), output.logits


def gradients(case, model, tokens, targets):
    """Forward and backward of one batch: loss, logits and the gradient of every parameter."""
    loss, objective, logits = loss_and_logits(case, model, tokens, targets)
    objective.backward()
    return loss.item(), logits.detach(), {name: p.grad for name, p in model.named_parameters()}


def train(case, model, stream):
    """Loss and gradient norm (before clipping) of each AdamW step, and the last parameters."""
    decays = [p for name, p in model.named_parameters() if case.decays(name, p)]
    others = [p for name, p in model.named_parameters() if not case.decays(name, p)]
    groups = [{"params": decays}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=case.lr, **OPTIMIZER, foreach=False)
    losses, norms = [], []
    for step in range(case.steps):
        loss, objective, _ = loss_and_logits(case, model, *batch_of_step(case, stream, step))
        objective.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip).item())
        optimizer.step()
        optimizer.zero_grad()
    parameters = case.stored({name: p.detach() for name, p in model.named_parameters()})
    return losses, norms, {name: parameters[name] for name in case.final_parameters}


def run(case, folder, dtype, stream, tokens, targets):
    """Everything that is expected of a case, at one precision."""
    loss, logits, grads = gradients(case, case.load_model(folder, dtype), tokens, targets)
    losses, norms, final = train(case, case.load_model(folder, dtype), stream)
    tensors = {"logits": logits}
    tensors |= {f"grad.{name}": value for name, value in case.stored(grads).items()}
    tensors |= {f"final.{name}": value for name, value in final.items()}
    return {"loss": loss, "train_losses": losses, "train_grad_norms": norms}, tensors


def mutation_table(case, folder, stream, single):
    """How far each mutation of a case moves the losses, and the loss of the first step with it."""
    table = []
    for mutation in case.mutations:
        if mutation.is_fine:
            with torch.no_grad():
                tokens, targets = batch_of_step(case, stream, 0)
                loss, _, logits = loss_and_logits(case, case.load_mutated(folder, mutation), tokens, targets)
            by, loss, moved, tolerance = "logits", loss.item(), distance(logits, single[1]["logits"]), LOGITS
        else:
            losses, _, _ = train(case, case.load_mutated(folder, mutation), stream)
            moved = max(map(distance, losses, single[0]["train_losses"]))
            by, loss, tolerance = "losses", losses[0], TRAIN_LOSS
        print(f"  {mutation.name}: {by} {moved:.1e}")
        table.append({"mutation": mutation.name, "keys": case.mutated_keys(mutation), "by": by,
                      "moved": float(f"{moved:.1e}"), "tolerances": int(moved / tolerance), "loss": loss})
    return table


def distance(value, reference):
    """Norm of the difference over the norm of the reference, both in f64."""
    value, reference = (torch.as_tensor(x).double() for x in (value, reference))
    return ((value - reference).norm() / reference.norm()).item()


def noise_floor(single, double):
    """The largest distance between the f32 and the f64 run, per kind of value."""
    floor = {key: max(map(distance, np.atleast_1d(single[0][key]), np.atleast_1d(double[0][key])))
             for key in single[0]}
    for key, value in single[1].items():
        kind = key.split(".")[0]
        floor[kind] = max(floor.get(kind, 0.0), distance(value, double[1][key]))
    return floor


def noise_of_gradients(single, double):
    """The same of each gradient, where it is above the tenth of the tolerance of tests."""
    noise = {key: distance(value, double[1][key]) for key, value in single[1].items() if key.startswith("grad.")}
    return {key: value for key, value in noise.items() if value > 1e-6}


def write_case(case, out):
    """Both runs of a case, and its files; prints what should be looked at after a change.

    Returns the mutations that hardly move a loss.
    """
    folder = out / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case.save_model(case.build_model(), folder)

    stream = token_stream(case)
    case.write_stream(stream, folder)
    tokens, targets = batch_of_step(case, stream, 0)
    if case.masked:
        targets = mask_targets(case, targets)

    single = run(case, folder, torch.float32, stream, tokens, targets)
    with case.exact():
        double = run(case, folder, torch.float64, stream, tokens, targets)

    arrays = case.arrays(tokens, targets)
    arrays |= {key: value.contiguous().numpy() for key, value in single[1].items()}
    save_file(arrays, folder / "expected.safetensors")
    expected = {
        "batch": BATCH, "seq": case.seq, "steps": case.steps, "lr": case.lr, **OPTIMIZER, "clip": case.clip,
        **single[0], "f64": double[0], "noise_floor": noise_floor(single, double),
    }
    if case.has_small_gradients:
        expected["noise_of_gradients"] = noise_of_gradients(single, double)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    idle = []
    print(case.name)
    for key in ("train_losses", "train_grad_norms"):
        print(f"  {key}: " + " ".join(f"{value:.3f}" for value in single[0][key]))
    print("  noise: " + " ".join(f"{k}={v:.1e}" for k, v in expected["noise_floor"].items()))
    if case.mutations:
        table = mutation_table(case, folder, stream, single)
        rows = ",\n".join(" " + json.dumps(row) for row in table)
        (folder / "mutations.json").write_text(f"[\n{rows}\n]\n")
        idle = [f"{case.name}: {row['mutation']}" for row in table if row["tolerances"] < 10]
    case.finish(folder)
    return idle


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="by name; all of them by default")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    args = parser.parse_args()
    chosen = [case for case in CASES + FAMILIES if not args.cases or case.name in args.cases]
    idle = [name for case in chosen for name in write_case(case, args.out)]
    assert not idle, f"these mutations move no loss by ten tolerances: {', '.join(idle)}"
