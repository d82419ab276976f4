"""Images, and what Pillow and transformers make of them.

Usage: python image_cases.py [--out DIR]
"""

import argparse
import json
from pathlib import Path

import numpy as np
import transformers
from PIL import Image
from safetensors.numpy import save_file

BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
SIZES = {"smaller": (16, 12, BILINEAR), "larger": (61, 50, BILINEAR), "wider": (80, 23, BILINEAR),
         "narrow": (7, 23, BILINEAR), "cubic": (17, 40, BICUBIC), "cubic_larger": (64, 64, BICUBIC)}
PREPARATIONS = {
    "square": {"size": {"height": 14, "width": 14}, "image_mean": [0.485, 0.456, 0.406],
               "image_std": [0.229, 0.224, 0.225]},
    "center": {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": {"height": 16, "width": 18},
               "resample": 3, "rescale_factor": 0.25, "do_normalize": False},
}


def pictures():
    """Images of every kind of pixels: waves and noise in 37 by 23 pixels."""
    rng = np.random.default_rng(7)
    row, column = np.mgrid[0:23, 0:37]
    waves = [128 + 100 * np.sin(row * a + column * b) for a, b in ((0.3, 0.1), (0.1, 0.7), (1.5, 0.2))]
    noisy = np.stack(waves, axis=-1) + rng.normal(0, 20, size=(23, 37, 3))
    colored = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
    transparent = colored.copy()
    transparent.putalpha(colored.convert("L"))
    return {"rgb.png": colored, "gray.png": colored.convert("L"), "palette.png": colored.quantize(12),
            "bits.png": colored.convert("1"), "rgba.png": transparent, "la.png": transparent.convert("LA")}


def write(out):
    folder = out / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in pictures().items():
        image.save(folder / name, optimize=True)
    colored = Image.open(folder / "rgb.png")
    smooth = colored.resize((40, 24), BICUBIC)
    smooth.save(folder / "whole.jpg", quality=92, subsampling=0)
    smooth.save(folder / "halves.jpg", quality=85, subsampling=2, progressive=True)
    smooth.convert("L").save(folder / "gray.jpg", quality=90)
    arrays = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in (".png", ".jpg"):
            arrays[f"decoded.{path.name}"] = np.asarray(Image.open(path).convert("RGB"))
    for name, (width, height, resample) in SIZES.items():
        arrays[f"resized.{name}"] = np.asarray(colored.resize((width, height), resample))
    for name, keys in PREPARATIONS.items():
        prepare = transformers.ViTImageProcessorPil(**keys)
        arrays[f"values.{name}"] = prepare(colored, return_tensors="np")["pixel_values"][0]
        (folder / f"{name}.json").write_text(json.dumps(prepare.to_dict(), indent=1, sort_keys=True) + "\n")
    sizes = {name: [*size[:2], int(size[2])] for name, size in SIZES.items()}
    (folder / "sizes.json").write_text(json.dumps(sizes) + "\n")
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures")
    write(parser.parse_args().out)
