"""Cases of encoders: texts of several lengths, with targets of some tokens, or labels of tokens or of texts."""

from dataclasses import dataclass

import numpy as np
import torch

from family_case import PAD, FamilyCase, Mutation, family

BATCH, IGNORED = 4, -100
MASK = 3  # The id of masked tokens.


@dataclass
class EncoderCase(FamilyCase):
    """A model with `use`: "masked", "text", "number" or "token"."""

    use: str = "masked"
    labels: int = 3
    has_types: bool = True

    has_small_gradients = True

    def config(self):
        config = super().config()
        if self.use != "masked":
            config.num_labels = self.labels
        return config

    def rows(self, step):
        """The texts of a step. What follows a text in its row are tokens, too, which nothing may see."""
        rng = np.random.default_rng([self.seed, step])
        # A whole row, and three shorter ones.
        lengths = np.array([self.seq, *rng.integers(5, self.seq, BATCH - 1)])
        starts = rng.integers(self.vocab, size=(BATCH, 1))
        jumps = 3 + 2 * (rng.random((BATCH, self.seq)) < 0.2)
        ids = (starts + jumps.cumsum(1)) % self.vocab
        ids[rng.random(ids.shape) < self.padding_share] = PAD
        places = np.arange(self.seq)
        is_valid = places < lengths[:, None]
        texts = {"input_ids": ids, "attention_mask": is_valid.astype(np.int64)}
        if self.has_types:
            # Of half of the rows, the second part is another text.
            borders = np.where(np.arange(BATCH) % 2 == 0, lengths // 2, self.seq)
            texts["token_type_ids"] = (places >= borders[:, None]).astype(np.int64)
        if self.use == "masked":
            is_target = is_valid & (rng.random(ids.shape) < np.array([0.2, 0.6, 0.3, 0.0])[:, None])
            targets = np.where(is_target, ids, IGNORED)
            texts["input_ids"] = np.where(is_target & (rng.random(ids.shape) < 0.8), MASK, ids)
        elif self.use == "token":
            targets = np.where(is_valid, (ids + np.roll(ids, 1, 1)) % self.labels, IGNORED)
        elif self.use == "text":
            targets = starts[:, 0] % self.labels
        else:
            targets = (starts[:, 0] / self.vocab - 0.5).astype(np.float32)
        return {key: torch.from_numpy(value.copy()) for key, value in texts.items()}, torch.from_numpy(targets.copy())

    def forward(self, model, texts):
        if getattr(model, "ignores_lengths", False):
            texts = texts | {"attention_mask": torch.ones_like(texts["attention_mask"])}
        return model(**texts)

    def loss(self, logits, targets):
        if self.use == "number":
            return torch.nn.functional.mse_loss(logits.squeeze(-1), targets.to(logits.dtype))
        return super().loss(logits, targets)

    def batch_of_step(self, stream, step):
        return self.rows(step)

    def arrays(self, tokens, targets):
        """The rows of all steps, by name."""
        steps = [self.rows(step) for step in range(self.steps)]
        stacked = {key: torch.stack([texts[key] for texts, _ in steps]).numpy() for key in steps[0][0]}
        arrays = {"ids": stacked["input_ids"], "lengths": stacked["attention_mask"].sum(-1)}
        if self.has_types:
            arrays["types"] = stacked["token_type_ids"]
        targets = torch.stack([targets for _, targets in steps]).numpy()
        if self.use == "number":
            return {key: value.astype(np.uint32) for key, value in arrays.items()} | {"numbers": targets}
        arrays["targets"] = np.where(targets == IGNORED, 2**32 - 1, targets)
        return {key: value.astype(np.uint32) for key, value in arrays.items()}

    def write_stream(self, stream, folder):
        """The rows are in `expected.safetensors`."""


def encoder(name, seed, architecture, use, keys, mutations, **options):
    return family(name, seed, architecture, keys, mutations, kind=EncoderCase, use=use, **options)


def without_lengths(model):
    model.ignores_lengths = True


LENGTHS = Mutation("padding is seen", edit=without_lengths)
