"""Writes fixtures/data: the same documents in every format of data, by the tools that define the formats.

Usage: python data_files.py [--out DIR]. Needs numpy, pyarrow, megatron-core and the program zstd.
"""

import argparse
import gzip
import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

TEXTS = ["one", "two\nlines", "naïve \U0001f980 東京", 'a "quoted" \\ word\t', "long " * 60]
END = 256


def tokens_of(text):
    return list(text.encode()) + [END]


def write_npy(out, ids):
    np.save(out / "u16.npy", ids.astype("uint16"))
    np.save(out / "i64.npy", ids.astype("int64"))
    for version in (2, 3):
        with open(out / f"version{version}.npy", "wb") as file:
            np.lib.format.write_array(file, ids.astype("uint32"), version=(version, 0))


def write_llm_c(out, ids):
    """As write_datafile of llm.c's dev/data/data_common.py."""
    for name, magic, version, dtype in [("gpt2", 20240520, 1, "uint16"), ("llama3", 20240801, 7, "uint32")]:
        header = np.zeros(256, dtype=np.int32)
        header[:3] = [magic, version, len(ids)]
        (out / f"llm_c_{name}.bin").write_bytes(header.tobytes() + ids.astype(dtype).tobytes())


def write_megatron(out, documents):
    """Documents without an end token, the second of two sequences."""
    import torch

    for name, dtype in [("megatron", np.uint16), ("megatron_i32", np.int32)]:
        builder = IndexedDatasetBuilder(str(out / f"{name}.bin"), dtype=dtype)
        for index, document in enumerate(documents):
            ids = torch.tensor(document[:-1])
            for part in ids.split(5) if index == 1 else [ids]:
                builder.add_item(part)
            builder.end_document()
        builder.finalize(str(out / f"{name}.idx"))


def write_json_lines(out):
    lines = [json.dumps({"id": index, "meta": {"text": 1}, "text": text}) + "\n" for index, text in enumerate(TEXTS)]
    (out / "texts.jsonl").write_text("".join(lines))
    head, tail = ("".join(part).encode() for part in (lines[:2], lines[2:]))
    (out / "members.jsonl.gz").write_bytes(b"".join(gzip.compress(part, mtime=0) for part in (head, tail)))

    def zstd(part, *flags):
        return subprocess.run(["zstd", "-q", "-c", *flags], input=part, stdout=subprocess.PIPE, check=True).stdout

    (out / "texts.jsonl.zst").write_bytes(zstd(head + tail, "-19"))
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"notes"
    (out / "frames.jsonl.zst").write_bytes(skipped + zstd(head, "--no-check") + skipped + zstd(tail))


def write_parquet(out):
    table = pa.table({"id": range(len(TEXTS)), "text": TEXTS, "nested": [["a"]] * len(TEXTS)})
    for codec in ("snappy", "zstd", "gzip", "none"):
        pq.write_table(table, out / f"{codec}.parquet", compression=codec, row_group_size=2)
    large = pa.table({"text": pa.array(TEXTS, pa.large_string())})
    pq.write_table(large, out / "delta.parquet", use_dictionary=False, data_page_version="2.0",
                   column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY"})
    pq.write_table(pa.table({"text": ["a", None, "b"]}), out / "null.parquet")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures" / "data")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    documents = [tokens_of(text) for text in TEXTS]
    ids = np.concatenate(documents)
    write_npy(out, ids)
    write_llm_c(out, ids)
    write_megatron(out, documents)
    write_json_lines(out)
    write_parquet(out)
    (out / "expected.json").write_text(json.dumps({"texts": TEXTS, "ids": ids.tolist()}) + "\n")


if __name__ == "__main__":
    main()
