"""Losses of a language-model head and reductions by PyTorch: values and gradients, for given numbers.

Usage: python loss_cases.py [--out DIR]. Every number is computed in f64 and stored in f32.

`x`, `weight`, `bias`, `teacher_x`, `teacher`, `targets` and `weights` are the operands of all cases of heads; a case is
`name.value` with the gradients `name.dx`, `name.dweight` and, if it has a bias, `name.dbias`. Reductions of `x` along
its dims are `name.value` and `name.dx`, the gradient of their product with `factors`.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

SEQ, HIDDEN, VOCAB, IGNORED = 6, 5, 11, -100
TEMPERATURE = 2.0

# Soft cap, label smoothing, factor of the z-loss, and whether the head has a bias.
HEADS = {
    "plain": (None, 0.0, 0.0, False),
    "bias": (None, 0.0, 0.0, True),
    "soft_cap": (2.0, 0.0, 0.0, False),
    "label_smoothing": (None, 0.2, 0.0, False),
    "z_loss": (None, 0.0, 0.05, False),
    "all_options": (2.0, 0.1, 0.05, True),
}


def operands():
    torch.manual_seed(7)
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float64).float().double()
    return {
        "x": normal(SEQ, HIDDEN),
        "weight": normal(VOCAB, HIDDEN),
        "bias": normal(VOCAB),
        "teacher_x": normal(SEQ, HIDDEN),
        "teacher": normal(VOCAB, HIDDEN),
        "targets": torch.tensor([3, IGNORED, 0, 10, 7, IGNORED]),
        "weights": torch.tensor([0.5, 3.0, 0.0, 1.25, 2.0, 1.0], dtype=torch.float64),
    }


def logits(x, weight, bias, cap):
    y = x @ weight.T + (0 if bias is None else bias)
    return y if cap is None else cap * torch.tanh(y / cap)


def head_cases(given):
    targets, weights = given["targets"], given["weights"]
    counted = targets != IGNORED
    for name, (cap, smoothing, z_loss, has_bias) in HEADS.items():
        leaves = [given[leaf].clone().requires_grad_() for leaf in ("x", "weight", "bias")]
        bias = leaves[2] if has_bias else None
        z = logits(leaves[0], leaves[1], bias, cap)
        loss = F.cross_entropy(z, targets, ignore_index=IGNORED, label_smoothing=smoothing)
        penalty = z_loss * (z.logsumexp(-1) ** 2)[counted].mean()
        yield from case(name, loss, loss + penalty, leaves, has_bias)

        z = logits(leaves[0], leaves[1], bias, cap)
        index = targets.clamp(min=0)[:, None]
        log_probs = z.log_softmax(-1).gather(-1, index)[:, 0] * counted
        mean = -(log_probs * weights).sum() / weights.sum()
        yield from case(f"{name}.log_probs", log_probs, mean, leaves, has_bias)

        z = logits(leaves[0], leaves[1], bias, cap) / TEMPERATURE
        teacher = logits(given["teacher_x"], given["teacher"], None, cap) / TEMPERATURE
        inputs = (z.log_softmax(-1), teacher.log_softmax(-1))
        kl = F.kl_div(*inputs, log_target=True, reduction="none").sum(-1)
        yield from case(f"{name}.kl", kl, kl.mean(), leaves, has_bias)


def case(name, value, objective, leaves, has_bias):
    leaves = dict(zip(("dx", "dweight", "dbias"), leaves if has_bias else leaves[:2]))
    gradients = torch.autograd.grad(objective, list(leaves.values()))
    yield f"{name}.value", value
    for leaf, gradient in zip(leaves, gradients):
        yield f"{name}.{leaf}", gradient


def reductions(given):
    functions = {
        "amax": lambda x, dim: x.amax(dim),
        "amin": lambda x, dim: x.amin(dim),
        "var": lambda x, dim: x.var(dim, correction=0),
        "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
        "logsumexp": lambda x, dim: x.logsumexp(dim),
        "softmax": lambda x, dim: x.softmax(dim),
        "log_softmax": lambda x, dim: x.log_softmax(dim),
    }
    for name, function in functions.items():
        for dim in range(2):
            x = given["x"].clone().requires_grad_()
            value = function(x, dim)
            factors = torch.linspace(-1, 2, value.numel(), dtype=torch.float64).reshape(value.shape)
            # Meshwright takes the mean over the elements.
            (dx,) = torch.autograd.grad((value * factors).mean(), x)
            yield f"{name}_{dim}.value", value
            yield f"{name}_{dim}.dx", dx


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures" / "losses")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    given = operands()
    tensors = {name: given[name] for name in given} | dict(head_cases(given)) | dict(reductions(given))
    stored = {name: tensor.detach().float().contiguous() for name, tensor in tensors.items()}
    save_file(stored, out / "losses.safetensors")


if __name__ == "__main__":
    main()
