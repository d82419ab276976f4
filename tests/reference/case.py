"""What the cases of all families have in common."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch

LAYERS, INIT_STD = 2, 0.2


@dataclass
class Case:
    """One model and its data. A family adds `config`, `model_class` and `final_parameters`."""

    name: str
    seed: int
    hidden: int
    ffn: int
    heads: int
    vocab: int
    seq: int
    eps: float = field(default=1e-5, kw_only=True)
    clip: float = field(default=1.0, kw_only=True)
    masked: bool = field(default=False, kw_only=True)
    padding: int | None = field(default=None, kw_only=True)
    max_shard_size: str | None = field(default=None, kw_only=True)
    steps: int = field(default=10, kw_only=True)
    lr: float = field(default=1e-3, kw_only=True)
    # The part of all tokens that are the one for padding, beside those that the stream has anyway.
    padding_share: float = field(default=0.0, kw_only=True)
    mutations: list = field(default_factory=list, kw_only=True)

    # The noise of each gradient is stored.
    has_small_gradients = False

    def build_model(self):
        """A random model whose attention, norms and gradients are far from trivial values."""
        torch.manual_seed(self.seed)
        model = self.model_class(self.config())
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # Norms start at 1 and biases at 0, which would hide their use.
                mean = 0.0 if name.endswith("bias") else 1.0
                torch.nn.init.normal_(parameter, mean=mean, std=0.2)
        if self.padding is not None:  # The row starts at 0, where weight decay would not show.
            with torch.no_grad():
                model.get_input_embeddings().weight[self.padding].normal_(std=INIT_STD)
        return model

    def save_model(self, model, folder):
        """The Hugging Face folder."""
        model.save_pretrained(folder, max_shard_size=self.max_shard_size or "1GB")
        (folder / "generation_config.json").unlink(missing_ok=True)

    def load_model(self, folder, dtype):
        attention = "eager" if dtype == torch.float32 else "sdpa"  # Eager softmax rounds f64 to f32.
        model = self.model_class.from_pretrained(folder, attn_implementation=attention)
        return model.to(dtype)

    def forward(self, model, tokens):
        return model(input_ids=tokens)

    def loss(self, logits, targets):
        """The mean over the targets that are not ignored."""
        flat = logits.reshape(-1, logits.shape[-1])
        return torch.nn.functional.cross_entropy(flat, targets.reshape(-1))

    def arrays(self, tokens, targets):
        """What is stored of the data, beside the stream: the first step."""
        ids = {"tokens": tokens.numpy(), "targets": targets.numpy()}
        return {key: np.where(value == -100, 2**32 - 1, value).astype(np.uint32) for key, value in ids.items()}

    def write_stream(self, stream, folder):
        stream.astype("<u2").tofile(folder / "tokens.bin")

    def penalty(self, output):
        """A term of the objective that is not part of the loss."""
        return 0.0

    def decays(self, name, parameter):
        """Weight decay applies to it."""
        return parameter.dim() >= 2

    def stored(self, tensors):
        """Tensors of the model's parameters under the names of the Hugging Face folder."""
        return tensors

    def finish(self, folder):
        """Changes the folder after everything was computed from it."""

    def exact(self):
        """A context in which a model in f64 computes nothing in f32."""
        return nullcontext()
