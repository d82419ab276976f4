"""Several processes on one GPU with NCCL between them. NCCL treats each as a host of its own and
communicates over loopback: this checks results, not speed."""

import json
import socket

from .schedule import Item
from .tests import test_item
from .trainings import tokens

# The token that separates documents: one in 64 of theirs.
DOCUMENTS = "--documents 7"
# Short training runs of several processes, compared with one process. With two stages per rank, a rank exchanges
# activations and gradients with the same neighbor in both directions.
MESHES = {"1": 1, f"1 {DOCUMENTS}": 1, "dp=2": 2, "tp=2": 2, "fsdp=2 --zero 3": 2, "dp=2,tp=2": 4,
          "cp=2 --cp ring": 2, "cp=2 --cp gather": 2, "cp=2 --cp ulysses": 2, f"cp=2 --cp ring {DOCUMENTS}": 2,
          "pp=2 --micro-batches 4": 2, "pp=2 --micro-batches 4 --schedule interleaved": 2}
# Those whose messages are sent in rounds, which CUDA graphs capture, with their ranks. A graph with `tp` has the calls
# of two communicators besides.
GROUPED = {"pp=2 --micro-batches 4 --schedule interleaved": 2, "tp=2,pp=2 --micro-batches 4": 4}
# Mixtures of experts, whose rows ranks exchange by all-to-all, with their ranks.
EXPERTS = {"1": 1, "ep=2": 2, "fsdp=2,ep=2 --zero 3": 4, "ep=2,tp=2": 4}
# Relative difference of losses: bf16 sums are rounded in another order.
APART = 0.02


def items():
    yield test_item("nccl/processes", "processes", 45)
    for what, meshes in (("pairs", MESHES), ("grouped", GROUPED), ("experts", EXPERTS)):
        for mesh, ranks in meshes.items():
            yield Item(name(mesh, what), 3 + 3 * ranks,
                       lambda kit, mesh=mesh, ranks=ranks, what=what: train(kit, mesh, ranks, what))


def name(mesh, what="pairs"):
    return f"nccl/--mesh {mesh}" + ("" if what == "pairs" else f", {what}")


def reference(mesh):
    """Returns the run of one process that has the same losses."""
    return f"1 {DOCUMENTS}" if DOCUMENTS in mesh else "1"


def train(kit, mesh, ranks, what="pairs"):
    """Trains with a process per rank, all on the first GPU."""
    metrics = kit.scratch / "nccl.jsonl"
    metrics.unlink(missing_ok=True)
    data = tokens(kit, 16385, 64 if DOCUMENTS in mesh else 1024)
    flags = (f"--device cuda --mesh {mesh} --hidden 256 --layers 4 --heads 8 --kv-heads 4 "
             f"--ffn 512 --vocab 1024 --seq 128 --batch 8 --steps 8 --data {data} "
             f"--metrics {metrics} --sample-tokens 0 --lr 3e-4")
    model, messages = ("train_mixtral", "pairs") if what == "experts" else ("train_llama", what)
    program = [kit.programs / "bin" / model, *flags.split()]
    processes = [(program, variables | {"MESHWRIGHT_NCCL_P2P": messages}) for variables in environments(ranks)]
    outcomes = kit.runner.together(processes, 45)
    for outcome in outcomes:
        if not outcome.ok:
            return {"kind": "mesh", "status": outcome.status, "why": outcome.why}
    losses = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
    record = {"kind": "mesh", "losses": losses, "status": "ok", "why": f"loss {losses[0]:.4f} to {losses[-1]:.4f}"}
    if ranks == 1:
        return record
    one = kit.results.latest().get(name(reference(mesh), what if what == "experts" else "pairs"))
    if one is None or one["status"] != "ok":
        why = f"nothing to compare with: --mesh {reference(mesh)} has no losses"
        return record | {"status": "failed", "why": why}
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
