"""Cases of any causal family, by the keys of its `config.json`, and mutations of them."""

import copy
import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import transformers
from safetensors.torch import load_file, save_file

from case import INIT_STD, Case
from rope_tables import in_f64

PAD = 5
# A large rate, and many tokens for padding, so that gradients that must not be there show in the losses of few steps.
OPTIONS = {"hidden": 32, "ffn": 24, "heads": 4, "vocab": 64, "seq": 24, "steps": 12, "lr": 1e-2, "padding": PAD,
           "padding_share": 0.25}
SPREAD = 0.3  # Standard deviation of norm weights, biases and sinks.
# Each is looked up only in families whose configuration has it.
COMMON = {
    "num_key_value_heads": 2, "rms_norm_eps": 0.03, "layer_norm_eps": 0.03, "max_position_embeddings": 64,
    "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": INIT_STD, "use_cache": False,
}
# Names of f32, which `in_f64` changes.
F32 = torch.float, torch.float32, torch.Tensor.float


@contextmanager
def in_f32():
    """The inverse of `in_f64` within it: files are read in f32."""
    original = torch.float, torch.float32, torch.Tensor.float
    torch.float, torch.float32, torch.Tensor.float = F32
    yield
    torch.float, torch.float32, torch.Tensor.float = original


@dataclass
class Mutation:
    """A feature changed: other keys of `config.json` (with dots, of objects inside of it), or an edit of the model."""

    name: str
    keys: dict = field(default_factory=dict)
    edit: Callable | None = None
    # True where only the tolerance of logits tells the two apart.
    is_fine: bool = False


@dataclass
class FamilyCase(Case):
    """One model by its class in transformers and the keys of its configuration, and its data."""

    architecture: str
    keys: dict
    layers: int = 2
    # Keys that the folder does not have, and those that it has in their place.
    dropped: tuple = ()
    older: dict = field(default_factory=dict)
    # What a norm multiplies by is its weight plus this number.
    norm_offset: float = 0.0

    final_parameters = ()

    @property
    def model_class(self):
        return getattr(transformers, self.architecture)

    def config(self):
        sizes = {"vocab_size": self.vocab, "hidden_size": self.hidden, "intermediate_size": self.ffn,
                 "num_hidden_layers": self.layers, "num_attention_heads": self.heads}
        known = self.model_class.config_class().to_dict()
        common = {key: value for key, value in COMMON.items() if key in known}
        return self.model_class.config_class(**(sizes | common | copy.deepcopy(self.keys)), dtype="float32")

    def build_model(self):
        """A random model in which no vector has the value that it begins with in transformers."""
        torch.manual_seed(self.seed)
        model = self.model_class(self.config())
        is_drawn = lambda name, value: value.dim() == 1 or name.endswith("bias")
        drawn = [item for item in model.named_parameters() if is_drawn(*item)]
        drawn += [item for item in model.named_buffers() if item[0].endswith("e_score_correction_bias")]
        with torch.no_grad():
            for name, value in drawn:
                mean = 1.0 - self.norm_offset if name.endswith("norm.weight") else 0.0
                value.normal_(mean=mean, std=SPREAD)
            if self.padding is not None:
                model.get_input_embeddings().weight[self.padding].normal_(std=INIT_STD)
        return model

    def save_model(self, model, folder):
        super().save_model(model, folder)
        path = folder / "config.json"
        keys = json.loads(path.read_text())
        keys = {key: value for key, value in keys.items() if key not in self.dropped} | self.older
        path.write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")

    def load_model(self, folder, dtype, config=None):
        with in_f32():
            options = {"config": config, "attn_implementation": "eager", "dtype": torch.float32}
            model = self.model_class.from_pretrained(folder, **options)
        if dtype == torch.float64:
            values = {name: value.double() for name, value in model.state_dict().items()}
            model = self.model_class(model.config).double()
            model.load_state_dict(values)
            model.eval()
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")  # The grouped matmul is not there in f64.
        return model

    def load_mutated(self, folder, mutation):
        """The model with the same weights and one feature changed."""
        keys = json.loads((folder / "config.json").read_text())
        for path, value in mutation.keys.items():
            *outer, last = path.split(".")
            inner = keys
            for key in outer:
                inner = inner[key]
            inner[last] = value
        model = self.load_model(folder, torch.float32, self.model_class.config_class.from_dict(keys))
        if mutation.edit is not None:
            with torch.no_grad():
                mutation.edit(model)
        return model

    def decays(self, name, parameter):
        """Biases of experts are a vector for each, in one tensor."""
        return super().decays(name, parameter) and not name.endswith("bias")

    def stored(self, tensors):
        """Checkpoints have tensors for each expert; in memory, all are in one, and gate and up are fused.
        Those of gpt-oss are stored as they are in memory. The head of a GPT-NeoX has another name."""
        stored = {}
        for name, value in tensors.items():
            if self.architecture == "GPTNeoXForCausalLM":
                name = name.replace("lm_head", "embed_out")
            layer, is_of_experts, projection = name.partition(".experts.")
            if not is_of_experts or self.architecture == "GptOssForCausalLM":
                stored[name] = value
                continue
            for expert, weight in enumerate(value):
                prefix = f"{layer}.experts.{expert}"
                if projection == "gate_up_proj":
                    gate, up = weight.chunk(2)
                    stored[f"{prefix}.gate_proj.weight"], stored[f"{prefix}.up_proj.weight"] = gate, up
                else:
                    stored[f"{prefix}.down_proj.weight"] = weight
        return stored

    def mutated_keys(self, mutation):
        """Keys of the folder that a mutation changes."""
        return mutation.keys

    @contextmanager
    def exact(self):
        """transformers computes norms, rotary tables, softmax and routers in `torch.float32`, by this name."""
        with in_f64():
            yield


def family(name, seed, architecture, keys, mutations, kind=FamilyCase, **options):
    """A case with the usual sizes, which `options` may change."""
    return kind(name, seed, architecture=architecture, keys=keys, mutations=mutations, **(OPTIONS | options))


@dataclass
class MultimodalCase(FamilyCase):
    """The text model of a folder that may hold others: `text_config`, and a prefix before all names, as
    Gemma3ForConditionalGeneration saves them."""

    prefix: str = "language_model."
    outer: dict = field(default_factory=dict)

    def stored(self, tensors):
        return {self.prefix + name: value for name, value in super().stored(tensors).items()}

    def mutated_keys(self, mutation):
        return {f"text_config.{key}": value for key, value in mutation.keys.items()}

    def finish(self, folder):
        tensors = load_file(folder / "model.safetensors")
        save_file(self.stored(tensors), folder / "model.safetensors", metadata={"format": "pt"})
        path = folder / "config.json"
        text = json.loads(path.read_text())
        outer = self.outer | {"dtype": text["dtype"], "transformers_version": text.pop("transformers_version")}
        path.write_text(json.dumps(outer | {"text_config": text}, indent=2, sort_keys=True) + "\n")


def without(*names):
    """Replaces modules by the identity."""

    def edit(model):
        for path, module in list(model.named_modules()):
            for child in names:
                if hasattr(module, child) and isinstance(getattr(module, child), torch.nn.Module):
                    setattr(module, child, torch.nn.Identity())

    return edit


def zeroed(ending):
    """Sets the parameters and buffers with this end of their names to zero."""
    return replaced(ending, lambda value: value.zero_())


def replaced(ending, change):
    """Changes the parameters and buffers with this end of their names in place."""

    def edit(model):
        found = [*model.named_parameters(), *model.named_buffers()]
        found = [value for name, value in found if name.endswith(ending)]
        assert found, ending
        for value in found:
            change(value)

    return edit
