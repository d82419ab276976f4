"""The speed of kernels, and where the time of a training step goes."""

import json
import shutil

from .schedule import Item
from .trainings import GPT2, LLAMA, train

# The tables of bin/gpu with their estimated seconds.
TABLES = {"limits": 10, "matmul": 15, "attention": 6, "attention-nondeterministic": 6, "elementwise": 5,
          "loss": 8, "epilogues": 6, "optimizer": 4, "attention-own": 5, "matmul-nondeterministic": 15}
# Maximum lines of a profile in the report.
SHOWN = 60


def items():
    for table, seconds in TABLES.items():
        yield Item(f"speed/{table}", seconds, lambda kit, table=table: bench(kit, table))
    for case, seconds in [(LLAMA, 8), (GPT2, 6)]:
        yield Item(f"speed/profile of {case.model}", seconds, lambda kit, case=case: profile(kit, case))


def bench(kit, table):
    path = kit.scratch / "rows.jsonl"
    path.unlink(missing_ok=True)
    outcome = kit.runner.run([kit.programs / "bin" / "gpu", "--tables", table, "--json", path], 180)
    # Rows measured before a failure are valid.
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return {"kind": "bench", "status": outcome.status, "why": outcome.why, "rows": rows}


def profile(kit, case):
    """Times of each kernel and shape in eager steps, and the matmul algorithms that were chosen."""
    folder = kit.scratch / f"profile of {case.model}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "profile.txt"
    flags = ["--device", "cuda", "--no-graphs"]
    outcome, _ = train(kit, case, 4, flags, 120, {"MESHWRIGHT_PROFILE": path})
    files = {f"{case.model}-{found.name}": found.read_bytes() for found in sorted(folder.iterdir())}
    kit.results.keep(files)
    lines = path.read_text().splitlines() if path.exists() else []
    if outcome.ok and not lines:
        return {"kind": "text", "status": "failed", "why": "MESHWRIGHT_PROFILE left no file"}
    return {"kind": "text", "status": outcome.status, "why": outcome.why or f"whole: {', '.join(files)}",
            "text": "\n".join(lines[:SHOWN])}
