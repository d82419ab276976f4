"""The GPU's clocks, power and memory while a program runs, by nvidia-smi."""

import statistics
import subprocess
from contextlib import contextmanager

QUERY = ["clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "memory.used"]
# Name of the field since driver 535.
REASONS = "clocks_event_reasons.active"
EVERY_MS = 200
# Fraction of the highest power from which a sample counts as under load.
LOADED = 0.7


@contextmanager
def sampling(kit, path):
    """Writes samples to a file while the block runs. Without nvidia-smi, or if it does not support the
    query, the file has no samples."""
    command = ["nvidia-smi", f"--query-gpu={','.join([*QUERY, REASONS])}",
               "--format=csv,noheader,nounits", "-i", "0", "-lms", str(EVERY_MS)]
    with open(path, "w") as file:
        try:
            program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.DEVNULL, env=kit.runner.environment)
        except OSError:
            program = None
        try:
            yield
        finally:
            if program is not None:
                program.kill()
                program.wait()


def summary(text):
    """Returns medians under load, and the peak memory in bytes. Empty without samples."""
    rows = [row for row in map(numbers, text.splitlines()) if row is not None]
    if not rows:
        return {}
    highest = max(row["power.draw"] for row in rows)
    loaded = [row for row in rows if row["power.draw"] >= LOADED * highest]
    median = lambda name: statistics.median(row[name] for row in loaded)
    reasons = sorted({row["reasons"] for row in loaded})
    return {"samples": len(loaded), "sm_mhz": median("clocks.sm"), "power_w": median("power.draw"),
            "celsius": max(row["temperature.gpu"] for row in rows),
            "memory_bytes": int(max(row["memory.used"] for row in rows) * 2**20),
            "slowed_by": reasons}


def numbers(line):
    """Returns the fields of a line, or None if it is not a sample."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(QUERY) + 1:
        return None
    try:
        return dict(zip(QUERY, map(float, fields))) | {"reasons": fields[-1]}
    except ValueError:
        return None
