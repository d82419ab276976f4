"""Several processes on one GPU with NCCL between them. NCCL treats each as a host of its own and
communicates over loopback: this checks results, not speed."""

import json
import socket

from .schedule import Item
from .tests import test_item
from .trainings import tokens

# Short training runs of several processes, compared with one process. With two stages per rank, a rank exchanges
# activations and gradients with the same neighbor in both directions.
MESHES = {"1": 1, "dp=2": 2, "tp=2": 2, "fsdp=2 --zero 3": 2, "dp=2,tp=2": 4,
          "pp=2 --micro-batches 4": 2, "pp=2 --micro-batches 4 --schedule interleaved": 2}
# Those whose messages are also sent in rounds, which CUDA graphs capture.
GROUPED = ["pp=2 --micro-batches 4 --schedule interleaved"]
# Relative difference of losses: bf16 sums are rounded in another order.
APART = 0.02


def items():
    yield test_item("nccl/processes", "processes", 150)
    for messages, meshes in (("edges", MESHES), ("grouped", GROUPED)):
        for mesh in meshes:
            ranks = MESHES[mesh]
            yield Item(name(mesh, messages), 20 + 10 * ranks,
                       lambda kit, mesh=mesh, ranks=ranks, messages=messages: train(kit, mesh, ranks, messages))


def name(mesh, messages="edges"):
    return f"nccl/--mesh {mesh}" + ("" if messages == "edges" else f", {messages}")


def train(kit, mesh, ranks, messages="edges"):
    """Trains with a process per rank, all on the first GPU."""
    metrics = kit.scratch / "nccl.jsonl"
    metrics.unlink(missing_ok=True)
    data = tokens(kit, 16385, 1024)
    flags = (f"--device cuda --mesh {mesh} --hidden 256 --layers 4 --heads 8 --kv-heads 4 "
             f"--ffn 512 --vocab 1024 --seq 128 --batch 8 --steps 8 --data {data} "
             f"--metrics {metrics} --sample-tokens 0 --lr 3e-4")
    program = [kit.programs / "bin" / "train_llama", *flags.split()]
    processes = [(program, variables | {"MESHWRIGHT_NCCL_P2P": messages}) for variables in environments(ranks)]
    outcomes = kit.runner.together(processes, 90)
    for outcome in outcomes:
        if not outcome.ok:
            return {"kind": "mesh", "status": outcome.status, "why": outcome.why}
    losses = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
    record = {"kind": "mesh", "losses": losses, "status": "ok", "why": f"loss {losses[0]:.4f} to {losses[-1]:.4f}"}
    one = kit.results.latest().get(name("1"))
    if mesh == "1":
        return record
    if one is None or one["status"] != "ok":
        return record | {"status": "failed", "why": "nothing to compare with: --mesh 1 has no losses"}
    apart = max(abs(a - b) / abs(b) for a, b in zip(losses, one["losses"], strict=True))
    verdict = f"{apart:.1e} apart from one rank"
    # Written so that NaN fails.
    if not apart < APART:
        return record | {"status": "failed", "why": verdict}
    return record | {"why": f"{record['why']}, {verdict}"}


def environments(ranks):
    """Returns the environment variables of each process; none for a single one."""
    if ranks == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    together = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port, "MESHWRIGHT_JOB": f"check {port}", "MESHWRIGHT_SHARE_GPUS": 1,
                "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": 1, "NCCL_MULTI_RANK_GPU_ENABLE": 1}
    return [together | {"RANK": rank, "LOCAL_RANK": rank, "NCCL_HOSTID": f"rank{rank}"} for rank in range(ranks)]
