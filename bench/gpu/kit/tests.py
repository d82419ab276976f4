"""Tests of kernels and models on the GPU: modules of one test program."""

import re

from .schedule import Item

# The test program.
PROGRAM = "device"
# Its modules, with their estimated seconds on an H200. A name stands for the module of `conformance` and the one of
# that name beside it.
SMALL = {
    "cudnn_device": 25, "epilogues": 30, "copy": 3, "map": 15, "norm": 3, "reduce": 3, "loss": 3,
    "optim": 3, "embedding": 3, "rope": 3, "softmax": 3, "combine": 3, "random": 3, "routing": 3,
    "rows": 3, "collectives": 3, "bits": 6, "batched_matmul": 3, "convolution": 3, "index": 3, "middle_dim": 3,
    "strided": 3,
}
# The modules of `models`. All modules run separately, so that a hung one does not affect the others.
MODELS = {
    "llama": 5, "gpt2": 4, "graphs": 6, "operations": 10, "trainer": 4, "pipeline": 4, "functions": 8, "head": 3,
    "context": 4, "context_windows": 12, "moe": 5,
}
# Time limit of a hung module: a multiple of its estimated time, and seconds besides.
PATIENCE, LEAST_LIMIT = 4, 40
# Maximum failed tests of one module that are rerun with logs.
RERUN = 3
# Maximum size of each kept log, in bytes.
KEPT = 400_000

# Location of a panic, and the first line of its message.
PANIC = re.compile(r"panicked at ([^\n]*)\n([^\n]*)")
LINE = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ?(ok|FAILED|ignored)?", re.MULTILINE)


def items():
    for name, seconds in SMALL.items():
        yield test_item(f"works/{name}", name, seconds)
    own = {"MESHWRIGHT_TEST_ATTENTION": "own"}
    yield test_item("works/attention, own kernels", "attention", 60, environment=own)
    yield test_item("works/attention, cuDNN", "attention", 60)


def model_items():
    for module, seconds in MODELS.items():
        yield test_item(f"models/{module}", f"models::{module}", seconds)


def module_command(kit, module):
    """Returns the command that runs the tests of a module, one at a time."""
    return [kit.programs / "tests" / PROGRAM, "--test-threads=1", f"{module}::"]


def test_item(item, module, seconds, environment=None):
    environment = {"MESHWRIGHT_TEST_DEVICE": "cuda", "MESHWRIGHT_REQUIRE_CUDNN_DEVICE": "1"} | (environment or {})
    limit = LEAST_LIMIT + PATIENCE * seconds
    return Item(item, seconds, lambda kit: test(kit, item, module, environment, limit), concurrent=True)


def test(kit, item, module, environment, limit):
    """Runs the tests of a module, and reruns failed tests with the logs of the libraries."""
    outcome = kit.runner.run(module_command(kit, module), limit, environment)
    record = parsed(outcome)
    culprits = record["failed"] or ([record["unfinished"]] if record["unfinished"] else [])
    if outcome.status == "failed" and culprits:
        record["logs"] = with_logs(kit, item, culprits[:RERUN], environment)
    if module == "cudnn_device":
        # It prints the device description for the plan tests.
        kit.results.keep({"cudnn_device.txt": outcome.stderr.encode()})
    return record


def parsed(outcome):
    """Returns the record of the test program's output."""
    tests = LINE.findall(outcome.stdout)
    having = lambda result: [name for name, got in tests if got == result]
    notes = [line for line in outcome.stderr.splitlines() if line.startswith(("NOT CHECKED", "NOT FUSED"))]
    unfinished = having("")
    why = outcome.why
    if outcome.status == "failed" and (panic := PANIC.search(f"{outcome.stdout}\n{outcome.stderr}")):
        why = " ".join(panic.groups())
    if outcome.ok and not having("ok"):
        # A filter without matches exits successfully too.
        return {"kind": "test", "status": "failed", "why": "no test was run", "passed": 0, "failed": [],
                "unfinished": None, "notes": notes}
    if unfinished:
        why = f"{why} (in {unfinished[-1]})"
    return {"kind": "test", "status": outcome.status, "why": why, "passed": len(having("ok")),
            "failed": having("FAILED"), "unfinished": unfinished[-1] if unfinished else None, "notes": notes}


def with_logs(kit, item, tests, environment):
    """Runs these tests with the logs of the libraries and synchronous launches, and keeps their output.
    Returns the names of the files."""
    name = re.sub(r"\W+", "-", item)
    logs = {kind: kit.scratch / f"{name}.{kind}.log" for kind in ("cublaslt", "cudnn", "nccl")}
    variables = {
        "CUDA_LAUNCH_BLOCKING": 1, "CUBLASLT_LOG_LEVEL": 5, "CUBLASLT_LOG_FILE": logs["cublaslt"],
        "CUDNN_LOGLEVEL_DBG": 3, "CUDNN_LOGDEST_DBG": logs["cudnn"],
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": logs["nccl"], "RUST_BACKTRACE": "full"}
    command = [kit.programs / "tests" / PROGRAM, "--test-threads=1", "--nocapture", "--exact", *tests]
    outcome = kit.runner.run(command, 60, environment | variables)
    files = {f"{name}.txt": f"{outcome.stdout}\n{outcome.stderr}".encode()}
    files |= {path.name: path.read_bytes() for path in logs.values() if path.exists()}
    files = {name: data[-KEPT:] for name, data in files.items()}
    kit.results.keep(files)
    return sorted(files)
