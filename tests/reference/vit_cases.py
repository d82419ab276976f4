"""The case of a ViT: images in a folder, their labels in a JSONL file, and losses of the classifier.

Usage: python vit_cases.py [--out DIR]
"""

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.numpy import save_file

import generate
from family_case import SPREAD, FamilyCase, Mutation, family, replaced, without

CLASSES, SIZE = 5, 12
# Names in memory, and in a folder.
STORED = {
    r"vit\.layers\.(\d+)\.attention\.q_proj": r"vit.encoder.layer.\1.attention.attention.query",
    r"vit\.layers\.(\d+)\.attention\.k_proj": r"vit.encoder.layer.\1.attention.attention.key",
    r"vit\.layers\.(\d+)\.attention\.v_proj": r"vit.encoder.layer.\1.attention.attention.value",
    r"vit\.layers\.(\d+)\.attention\.o_proj": r"vit.encoder.layer.\1.attention.output.dense",
    r"vit\.layers\.(\d+)\.mlp\.fc1": r"vit.encoder.layer.\1.intermediate.dense",
    r"vit\.layers\.(\d+)\.mlp\.fc2": r"vit.encoder.layer.\1.output.dense",
    r"vit\.layers\.": "vit.encoder.layer.",
}


@dataclass
class VitCase(FamilyCase):
    """A classifier of images."""

    def config(self):
        keys = {"hidden_size": self.hidden, "intermediate_size": self.ffn, "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads, "image_size": SIZE, "num_labels": CLASSES, "layer_norm_eps": 0.03,
                "initializer_range": 0.2}
        return self.model_class.config_class(**(keys | self.keys), dtype="float32")

    def build_model(self):
        """A random model in which no vector has the value that it begins with in transformers."""
        torch.manual_seed(self.seed)
        model = self.model_class(self.config())
        with torch.no_grad():
            for name, value in model.named_parameters():
                is_token = name.endswith(("cls_token", "position_embeddings"))
                if value.dim() == 1 or is_token:
                    mean = 1.0 if "layernorm" in name and name.endswith("weight") else 0.0
                    value.normal_(mean=mean, std=SPREAD)
        return model

    def forward(self, model, tokens):
        return model(pixel_values=tokens.to(model.dtype))

    def stored(self, tensors):
        stored = {}
        for name, value in tensors.items():
            for pattern, replacement in STORED.items():
                name = re.sub(pattern, replacement, name)
            stored[name] = value
        return stored

    def stream(self):
        """Images of noise with a bright spot, whose place and color are those of the class; and their labels."""
        rng = np.random.default_rng(self.seed)
        count = self.steps * generate.BATCH
        labels = rng.integers(CLASSES, size=count)
        images = rng.integers(0, 130, size=(count, SIZE, SIZE, 3))
        for image, label in zip(images, labels):
            row, column = divmod(int(label), 3)
            image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4, int(label) % 3] += 100
        return images.astype(np.uint8), labels

    def batch_of_step(self, stream, step):
        images, labels = (part[step * generate.BATCH : (step + 1) * generate.BATCH] for part in stream)
        pixels = (images.astype(np.float32) / 255.0 - 0.5) / 0.5
        pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        return torch.from_numpy(pixels), torch.from_numpy(labels.copy())


def write(case, out):
    """The folder, the images, the labels, and what is expected of them."""
    folder = out / case.name
    (folder / "images").mkdir(parents=True, exist_ok=True)
    case.save_model(case.build_model(), folder)
    images, labels = stream = case.stream()
    lines = []
    for index, (image, label) in enumerate(zip(images, labels)):
        name = f"images/{index:02}.png"
        Image.fromarray(image).save(folder / name, optimize=True)
        lines.append(json.dumps({"image": name, "label": int(label)}))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    preprocessor = transformers.ViTImageProcessorPil(size={"height": SIZE, "width": SIZE})
    preprocessor.save_pretrained(folder)
    pixels, targets = case.batch_of_step(stream, 0)
    made = preprocessor([Image.fromarray(image) for image in images[: generate.BATCH]], return_tensors="pt")
    assert (made["pixel_values"] - pixels).abs().max() < 1e-6, "the pixels of transformers"

    single = generate.run(case, folder, torch.float32, stream, pixels, targets)
    with case.exact():
        double = generate.run(case, folder, torch.float64, stream, pixels, targets)
    arrays = {"pixels": pixels.numpy(), "labels": targets.numpy().astype(np.uint32)}
    arrays |= {key: value.contiguous().numpy() for key, value in single[1].items()}
    save_file(arrays, folder / "expected.safetensors")
    expected = {
        "batch": generate.BATCH, "steps": case.steps, "lr": case.lr, **generate.OPTIMIZER, "clip": case.clip,
        **single[0], "f64": double[0], "noise_floor": generate.noise_floor(single, double),
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(expected["train_losses"], expected["train_grad_norms"], expected["noise_floor"], sep="\n")
    table = generate.mutation_table(case, folder, stream, single)
    rows = ",\n".join(" " + json.dumps(row) for row in table)
    (folder / "mutations.json").write_text(f"[\n{rows}\n]\n")
    idle = [row["mutation"] for row in table if row["tolerances"] < 10]
    assert not idle, f"these mutations move no loss by ten tolerances: {', '.join(idle)}"


def transposed_patches(weight):
    """Pixels of a patch by column."""
    weight.copy_(weight.transpose(2, 3).contiguous())


def channels_last(weight):
    """Pixels of a patch as an image has them, with the channels last."""
    weight.copy_(weight.permute(0, 2, 3, 1).reshape(weight.shape).contiguous())


CASE = family(
    "vit", 61, "ViTForImageClassification", {"patch_size": 4, "num_channels": 3},
    [
        Mutation("eps of norms", {"layer_norm_eps": 1e-12}),
        Mutation("activation", {"hidden_act": "relu"}),
        Mutation("approximate activation", {"hidden_act": "gelu_new"}, is_fine=True),
        Mutation("no biases of queries, keys and values", {"qkv_bias": False}),
        Mutation("other heads", {"num_attention_heads": 2}),
        Mutation("no class token", edit=replaced("cls_token", lambda value: value.zero_())),
        Mutation("no positions", edit=replaced("position_embeddings", lambda value: value.zero_())),
        Mutation("positions of the patches from the first one on",
                 edit=replaced("position_embeddings", lambda value: value.copy_(value.roll(1, dims=1)))),
        Mutation("patches by column", edit=replaced("projection.weight", transposed_patches)),
        Mutation("patches with channels last", edit=replaced("projection.weight", channels_last)),
        Mutation("no norm before attention", edit=without("layernorm_before")),
        Mutation("no norm before the MLP", edit=without("layernorm_after")),
        Mutation("no last norm", edit=without("layernorm")),
    ],
    kind=VitCase, padding=None, padding_share=0.0,
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    write(CASE, parser.parse_args().out)
