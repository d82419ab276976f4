"""NVIDIA's tools, if installed: memory checks of the tests, and hardware counters of kernels."""

import csv
import io
import re
import shutil
from collections import defaultdict
from dataclasses import replace

from .schedule import Item
from .tests import module_command
from .trainings import LLAMA, train

# Few steps with the sizes of a layer, to run under a tool.
TWO_LAYERS = replace(LLAMA, name="two layers",
                     flags="--hidden 2048 --layers 2 --heads 32 --kv-heads 8 --ffn 8192")
# Exit code of compute-sanitizer if it finds an error.
FOUND = 99
# Tools and modules of the test program, the most intricate kernels first: attention copies asynchronously into shared
# memory.
CHECKED = [("memcheck", "attention"), ("racecheck", "attention"), ("memcheck", "routing"), ("racecheck", "routing"),
           ("memcheck", "norm"), ("racecheck", "norm"), ("initcheck", "norm"), ("memcheck", "loss"),
           ("initcheck", "loss"), ("memcheck", "embedding"), ("memcheck", "copy"), ("memcheck", "map"),
           ("memcheck", "reduce"), ("memcheck", "softmax"), ("memcheck", "rope"), ("memcheck", "optim"),
           ("memcheck", "combine"), ("memcheck", "rows")]
# Estimated seconds of a module under a tool, and its time limit: attention has the most tests, of the largest kernels.
SECONDS, LIMIT = 40, 150
SLOW = {"attention": (80, 450)}
METRICS = {"ns": "gpu__time_duration.sum", "bytes": "dram__bytes.sum",
           "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
           "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed"}
# Maximum kernels of a table.
SHOWN = 25
# Maximum size of a kept file, in bytes.
KEPT = 4_000_000


def items():
    yield Item("tools/ncu", 90, ncu)
    yield Item("tools/nsys", 60, nsys)
    for tool, module in CHECKED:
        yield sanitizer_item(tool, module)


def missing(program):
    return {"kind": "text", "status": "skipped", "why": f"{program} is not installed", "text": ""}


def sanitizer_item(tool, module):
    seconds, limit = SLOW.get(module, (SECONDS, LIMIT))
    return Item(f"tools/{tool} of {module}", seconds, lambda kit: sanitize(kit, tool, module, limit), concurrent=True)


def sanitize(kit, tool, module, limit):
    if shutil.which("compute-sanitizer") is None:
        return missing("compute-sanitizer")
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", FOUND, "--print-limit", 20,
               *module_command(kit, module)]
    environment = {"MESHWRIGHT_TEST_DEVICE": "cuda", "MESHWRIGHT_TEST_ATTENTION": "own"}
    outcome = kit.runner.run(command, limit, environment)
    text = f"{outcome.stdout}\n{outcome.stderr}"
    found = [line for line in text.splitlines() if line.startswith("=========")]
    if not outcome.ok:
        kit.results.keep({f"{tool}-{module}.txt": text.encode()[:KEPT]})
    summary = [line.strip("= ") for line in found if "SUMMARY" in line]
    return {"kind": "text", "status": outcome.status, "why": (summary or [outcome.why])[-1],
            "text": "" if outcome.ok else "\n".join(found[:40])}


def ncu(kit):
    """Measures time, bytes and throughput of the kernels of an eager step."""
    if shutil.which("ncu") is None:
        return missing("ncu")
    path = kit.scratch / "ncu.csv"
    # The clocks are not changed, because they belong to the machine.
    prefix = ["ncu", "--metrics", ",".join(METRICS.values()), "--clock-control", "none", "--csv",
              "--log-file", path, "--launch-count", 600]
    outcome = under(kit, prefix, 180)
    text = path.read_text(errors="replace") if path.exists() else ""
    kit.results.keep({"ncu.csv": text.encode()[:KEPT]} if text else {})
    return {"kind": "text", "status": outcome.status, "why": outcome.why, "text": kernel_table(text)}


def nsys(kit):
    if shutil.which("nsys") is None:
        return missing("nsys")
    report = kit.scratch / "step.nsys-rep"
    prefix = ["nsys", "profile", "--trace", "cuda", "--stats", "true", "--force-overwrite", "true",
              "--output", report]
    outcome = under(kit, prefix, 120)
    if report.exists() and report.stat().st_size <= KEPT:
        kit.results.keep({report.name: report.read_bytes()})
    kit.results.keep({"nsys.txt": outcome.stdout.encode()[:KEPT]})
    return {"kind": "text", "status": outcome.status, "why": outcome.why, "text": "in nsys.txt"}


def under(kit, prefix, limit):
    """Runs two eager steps of two layers under a tool."""
    outcome, _ = train(kit, TWO_LAYERS, 2, ["--device", "cuda", "--no-graphs"], limit, prefix=prefix)
    return outcome


def kernel_table(text):
    """Returns a Markdown table of ncu's CSV, slowest kernels first."""
    start = re.search(r'^"ID"', text, re.MULTILINE)
    if start is None:
        return ""
    launches = defaultdict(dict)
    names = {}
    for row in csv.DictReader(io.StringIO(text[start.start():])):
        value = (row.get("Metric Value") or "").replace(",", "")
        try:
            launches[row["ID"]][row["Metric Name"]] = float(value) * UNITS.get(row["Metric Unit"], 1)
        except (KeyError, ValueError):
            continue
        names[row["ID"]] = row["Kernel Name"]
    total = defaultdict(lambda: [0, 0.0, 0.0, 0.0, 0.0])
    for number, found in launches.items():
        got = {short: found.get(name, 0.0) for short, name in METRICS.items()}
        row = total[names[number]]
        row[0] += 1
        for at, value in enumerate([got["ns"], got["bytes"], got["sm"] * got["ns"], got["dram"] * got["ns"]], 1):
            row[at] += value
    lines = ["| kernel | launches | ms | GB/s | SM | DRAM |", "|---|---|---|---|---|---|"]
    for name, (count, ns, moved, sm, dram) in sorted(total.items(), key=lambda pair: -pair[1][1])[:SHOWN]:
        each = max(ns, 1e-9)
        lines.append(f"| `{name[:90]}` | {count} | {ns * 1e-6:.3f} | {moved / each:.0f} | {sm / each:.0f} % | "
                     f"{dram / each:.0f} % |")
    return "\n".join(lines)


# To nanoseconds and bytes.
UNITS = {"nsecond": 1, "ns": 1, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
