"""Writes the reference of validation losses: trained models of other cases, evaluated by PyTorch/transformers.

Usage: python validation.py [--out DIR]. README.md beside this file describes what is written.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import transformers

from generate import BATCH, CASES

EVALUATED = ["untied_mha", "gpt2_masked_sharded", "mixtral_masked_sharded"]
END = 0  # The token that ends documents.


def validation_stream(case):
    """Two batches, one row and five tokens more, in documents of up to a row."""
    rng = np.random.default_rng(1000 + case.seed)
    length = (2 * BATCH + 1) * case.seq + 6
    tokens = rng.integers(1, case.vocab, size=length)
    at = 0
    while (at := at + int(rng.integers(2, case.seq + 1))) < length:
        tokens[at - 1] = END
    return tokens.astype(np.uint16)


def rows_of(stream, seq):
    """Rows of seq + 1 tokens that share one with the next; the last one is shorter."""
    return [stream[start : start + seq + 1] for start in range(0, len(stream) - 1, seq)]


def documents_of(stream):
    """The documents, each with the token that ends it."""
    ends = [int(at) + 1 for at in np.flatnonzero(stream == END)]
    return np.split(stream, [end for end in ends if end < len(stream)])


def mean_loss(case, model, pieces):
    """Mean over all next tokens inside of the pieces, and their number."""
    total, count = 0.0, 0
    with torch.no_grad():
        for piece in pieces:
            ids = torch.from_numpy(piece.astype(np.int64))
            if len(ids) > 1:
                logits = case.forward(model, ids[None, :-1]).logits[0]
                total += torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum").item()
                count += len(ids) - 1
    return {"loss": total / count, "targets": count}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures")
    transformers.utils.logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    out = parser.parse_args().out
    folder = out / "validation"
    folder.mkdir(parents=True, exist_ok=True)
    expected = {"end": END}
    for case in CASES:
        if case.name in EVALUATED:
            stream = validation_stream(case)
            stream.astype("<u2").tofile(folder / f"{case.name}.bin")
            with case.exact():
                model = case.load_model(out / case.name, torch.float64).eval()
                whole = mean_loss(case, model, rows_of(stream, case.seq))
                packed = mean_loss(case, model, documents_of(stream))
            expected[case.name] = {"rows": whole, "packed": packed}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
