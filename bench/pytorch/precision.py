"""How far PyTorch's own bf16 training of a Llama is from its f32 training.

Bounds on bf16 against f32 can be stated relative to these figures. Prints two Markdown tables: the
first step's loss and gradients, and the losses of a short training.

Usage: python precision.py --config DIR [--batch 8] [--seq 512] [--steps 8] [--threads 1]
"""

import argparse
import statistics
from pathlib import Path

import torch
import transformers

import llama


def f32_loss(model, inputs, targets):
    return llama.loss_of(model, inputs, targets)


def autocast_loss(model, inputs, targets):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return llama.loss_of(model, inputs, targets)


def rounded_loss(model, inputs, targets):
    """Everything in bf16 with parameters rounded from f32, as under FSDP2; gradients are f32."""
    rounded = {name: p.bfloat16() for name, p in model.named_parameters()}

    def call(**arguments):
        return torch.func.functional_call(model, rounded, kwargs=arguments)

    return llama.loss_of(call, inputs, targets)


MODES = {"f32": f32_loss, "bf16 autocast": autocast_loss, "bf16 parameters": rounded_loss}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, metavar="DIR", help="a Hugging Face folder")
    parser.add_argument("--data", type=Path, help="u16 tokens (default: DIR/tokens.bin)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def train(mode, args):
    """The loss of every step, and the first step's gradients by parameter, before clipping."""
    model = llama.build_model(args.config)
    needed = args.steps * args.batch * args.seq + 1
    tokens = llama.load_tokens(args.config, args.data, needed, model.config.vocab_size)
    optimizer = llama.build_optimizer(model, args.lr, "fused")
    losses, gradients = [], None
    for step in range(args.steps):
        loss = MODES[mode](model, *llama.batch_of_step(tokens, step, args.batch, args.seq))
        loss.backward()
        if gradients is None:
            gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, gradients


def norm(gradients):
    return torch.stack([g.double().norm() for g in gradients.values()]).norm().item()


def deviations(gradients, exact):
    """|g - e| / |e| of every parameter, and of all together under the name "all"."""
    errors = {name: gradients[name] - exact[name] for name in exact}
    found = {name: (errors[name].norm() / exact[name].norm()).item() for name in exact}
    return found | {"all": norm(errors) / norm(exact)}


def print_first_step(results):
    exact_losses, exact = results["f32"]
    print("| first step | loss | against f32 | gradient norm | against f32 | gradient: relative "
          "error | median parameter | worst parameter |")
    print("|---|---|---|---|---|---|---|---|")
    for mode, (losses, gradients) in results.items():
        found = deviations(gradients, exact)
        of_all = found.pop("all")
        worst = max(found, key=found.get)
        print(f"| {mode} | {losses[0]:.6f} | {losses[0] / exact_losses[0] - 1:+.1e} "
              f"| {norm(gradients):.6f} | {norm(gradients) / norm(exact) - 1:+.1e} | {of_all:.1e} "
              f"| {statistics.median(found.values()):.1e} | {found[worst]:.1e} ({worst}) |")


def print_training(results):
    exact_losses, _ = results["f32"]
    print("\n| loss of step |", " | ".join(results), "|")
    print("|---|" + "---|" * len(results))
    for step, exact in enumerate(exact_losses):
        cells = (f"{losses[step]:.6f} ({losses[step] / exact - 1:+.1e})"
                 for losses, _ in results.values())
        print(f"| {step} |", " | ".join(cells), "|")


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("highest")
    transformers.utils.logging.disable_progress_bar()
    results = {mode: train(mode, args) for mode in MODES}
    print_first_step(results)
    print_training(results)


if __name__ == "__main__":
    main()
