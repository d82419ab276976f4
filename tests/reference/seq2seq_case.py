"""Cases of encoder-decoders, with their batches: what is common to T5 and Whisper."""

import argparse
import copy
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from case import INIT_STD
from family_case import SPREAD, Mutation, in_f32
from generate import BATCH, IGNORED, OPTIMIZER, TRAIN_LOSS, distance, noise_floor
from rope_tables import in_f64


@dataclass
class Seq2SeqCase:
    """One model by its class in transformers and the keys of its configuration. A family adds `sources`."""

    name: str
    seed: int
    architecture: str
    keys: dict
    mutations: list
    # Keys that the folder does not have, and those that it has in their place.
    dropped: tuple = ()
    older: dict = field(default_factory=dict)
    # Positions of a target. Each row fills a number of its own.
    target: int = 12
    steps: int = 12
    lr: float = 1e-2
    clip: float = 1.0

    @property
    def model_class(self):
        return getattr(transformers, self.architecture)

    def config(self, keys=None):
        return self.model_class.config_class(**(keys or copy.deepcopy(self.keys)), dtype="float32")

    def new_model(self, config):
        return self.model_class(config)

    def build_model(self):
        """A random model in which no vector has the value that it begins with in transformers."""
        torch.manual_seed(self.seed)
        model = self.new_model(self.config())
        with torch.no_grad():
            for name, value in model.named_parameters():
                if value.dim() == 1:
                    value.normal_(mean=1.0 if name.endswith("norm.weight") else 0.0, std=SPREAD)
                elif value.requires_grad:
                    value.normal_(std=self.spread(name))
        return model

    def spread(self, name):
        """Standard deviation of a matrix."""
        return INIT_STD

    def sources(self, rng):
        """Inputs of the encoder in one step, by the arguments of the model."""
        raise NotImplementedError

    def batches(self):
        """Arguments of the model in each step: targets end at uneven positions, and some inside are ignored, too."""
        rng = np.random.default_rng(self.seed)
        batches = []
        for _ in range(self.steps):
            batch = self.sources(rng)
            labels = self.targets(batch, rng)
            ends = rng.integers(2, self.target + 1, BATCH)
            for row, end in enumerate(ends):
                labels[row, end:] = IGNORED
            labels[1, 1 : self.target : 3] = IGNORED
            labels[2, 2 : self.target : 4] = IGNORED
            batches.append(batch | {"labels": torch.from_numpy(labels)})
        return batches

    def targets(self, batch, rng):
        """Targets of one step: a noisy arithmetic progression modulo the vocabulary."""
        vocab = self.keys["vocab_size"]
        starts = rng.integers(vocab, size=(BATCH, 1))
        noise = np.where(rng.random((BATCH, self.target)) < 0.2, rng.integers(vocab, size=(BATCH, self.target)), 0)
        return (starts + 3 * np.arange(self.target) + noise) % vocab

    def forward(self, model, batch):
        return model(**batch)

    def loss_and_logits(self, model, batch):
        output = self.forward(model, {key: value.to(model.dtype) if value.is_floating_point() else value
                                      for key, value in batch.items()})
        logits = output.logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED)
        return loss, logits

    def save_model(self, model, folder):
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        path = folder / "config.json"
        keys = json.loads(path.read_text())
        keys = {key: value for key, value in keys.items() if key not in self.dropped} | self.older
        path.write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")

    def load_model(self, folder, dtype, config=None):
        with in_f32():
            options = {"config": config, "attn_implementation": "eager", "dtype": torch.float32}
            model = self.model_class.from_pretrained(folder, **options)
        if dtype == torch.float64:
            model = model.double()
        return model.eval()

    def load_mutated(self, folder, mutation):
        keys = json.loads((folder / "config.json").read_text()) | mutation.keys
        model = self.load_model(folder, torch.float32, self.model_class.config_class.from_dict(keys))
        if mutation.edit is not None:
            with torch.no_grad():
                mutation.edit(model)
        return model

    def train(self, model, batches):
        """Loss and gradient norm (before clipping) of each AdamW step."""
        trained = [p for p in model.parameters() if p.requires_grad]
        groups = [{"params": [p for p in trained if p.dim() > 1]},
                  {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.lr, **OPTIMIZER, foreach=False)
        losses, norms = [], []
        for batch in batches:
            loss, _ = self.loss_and_logits(model, batch)
            loss.backward()
            losses.append(loss.item())
            norms.append(torch.nn.utils.clip_grad_norm_(trained, self.clip).item())
            optimizer.step()
            optimizer.zero_grad()
        return losses, norms

    def run(self, folder, dtype, batches):
        model = self.load_model(folder, dtype)
        loss, logits = self.loss_and_logits(model, batches[0])
        loss.backward()
        tensors = {"logits": logits.detach()}
        tensors |= {f"grad.{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
        losses, norms = self.train(self.load_model(folder, dtype), batches)
        return {"loss": loss.item(), "train_losses": losses, "train_grad_norms": norms}, tensors

    def write(self, out):
        """Writes the folder; returns the mutations that hardly move a loss."""
        folder = out / self.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.save_model(self.build_model(), folder)
        batches = self.batches()
        single = self.run(folder, torch.float32, batches)
        with in_f64():
            double = self.run(folder, torch.float64, batches)
        arrays = {key: torch.stack([batch[key] for batch in batches]).numpy() for key in batches[0]}
        arrays = {key: np.where(value == IGNORED, 2**32 - 1, value).astype(np.uint32)
                  if np.issubdtype(value.dtype, np.integer) else value for key, value in arrays.items()}
        arrays |= {key: value.contiguous().numpy() for key, value in single[1].items()}
        save_file(arrays, folder / "expected.safetensors")
        expected = {"batch": BATCH, "steps": self.steps, "lr": self.lr, **OPTIMIZER, "clip": self.clip,
                    **single[0], "f64": double[0], "noise_floor": noise_floor(single, double)}
        (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        print(self.name)
        for key in ("train_losses", "train_grad_norms"):
            print(f"  {key}: " + " ".join(f"{value:.3f}" for value in single[0][key]))
        print("  noise: " + " ".join(f"{k}={v:.1e}" for k, v in expected["noise_floor"].items()))
        table = []
        for mutation in self.mutations:
            losses, _ = self.train(self.load_mutated(folder, mutation), self.changed(batches, mutation))
            moved = max(map(distance, losses, single[0]["train_losses"]))
            print(f"  {mutation.name}: {moved:.1e}")
            table.append({"mutation": mutation.name, "keys": mutation.keys, "by": "losses",
                          "moved": float(f"{moved:.1e}"), "tolerances": int(moved / TRAIN_LOSS), "loss": losses[0]})
        rows = ",\n".join(" " + json.dumps(row) for row in table)
        (folder / "mutations.json").write_text(f"[\n{rows}\n]\n")
        return [f"{self.name}: {row['mutation']}" for row in table if row["tolerances"] < 10]

    def changed(self, batches, mutation):
        """The batches of a mutation: those of `DataMutation` are changed."""
        return [mutation.change(batch) for batch in batches] if isinstance(mutation, DataMutation) else batches


@dataclass
class DataMutation(Mutation):
    """A feature of the data changed."""

    change: object = None


def main(cases, description, write_more=lambda out: None):
    """Writes cases to the fixtures, or another folder."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="by name; all of them by default")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    args = parser.parse_args()
    chosen = [case for case in cases if not args.cases or case.name in args.cases]
    idle = [name for case in chosen for name in case.write(args.out)]
    write_more(args.out)
    assert not idle, f"these mutations move no loss by ten tolerances: {', '.join(idle)}"
