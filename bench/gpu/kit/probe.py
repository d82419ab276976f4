"""The software installed on the machine."""

import json
import shutil
import sys

from .schedule import Item

TOOLS = ["nvidia-smi", "ncu", "nsys", "compute-sanitizer", "cuobjdump", "nvcc", "gcc", "g++"]

# torch.compile needs a C compiler and Python's headers.
TORCH = """
import json, torch
found = dict(torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
print(json.dumps(found), flush=True)
torch.compile(lambda x: x + 1)(torch.ones(1, device="cuda"))
print("compiled")
"""


def items():
    yield Item("works/probe", 10, libraries)
    yield Item("works/PyTorch", 40, torch)


def libraries(kit):
    outcome = kit.runner.run([kit.programs / "bin" / "meshwright", "probe"], 60)
    lines = [outcome.stdout.rstrip()]
    for command in (["nvidia-smi"], ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,power.limit,"
                                     "clocks.max.sm,clocks.max.mem,ecc.mode.current", "--format=csv"]):
        if shutil.which(command[0]):
            lines.append(kit.runner.run(command, 30).stdout.rstrip())
    lines += [f"{tool}: {shutil.which(tool) or 'not installed'}" for tool in TOOLS]
    return {"kind": "text", "status": outcome.status, "why": outcome.why, "text": "\n".join(lines)}


def torch(kit):
    outcome = kit.runner.run([sys.executable, "-c", TORCH], 120)
    lines = outcome.stdout.splitlines()
    found = json.loads(lines[0]) if lines else {}
    text = ", ".join(f"{name} {value}" for name, value in found.items())
    why = outcome.why
    if found and not outcome.ok:
        why = f"torch.compile does not work: {why}"
    return {"kind": "text", "status": outcome.status, "why": why, "text": text}
