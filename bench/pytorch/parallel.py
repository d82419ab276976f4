"""How a step is spread over processes: not at all, by DDP, or by FSDP2, over gloo."""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def parallelize(model, args):
    """The model to call. The parameters in it are f32, whatever the dtype of the computation."""
    if args.strategy == "ddp":
        return replicate(model, args)
    if args.strategy == "fsdp2":
        return shard(model, args)
    return model


def replicate(model, args):
    model = DistributedDataParallel(
        model, bucket_cap_mb=args.bucket_mb, gradient_as_bucket_view=True, static_graph=True,
        forward_sync_buffers=False)
    if args.reduce_dtype == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return model


def shard(model, args):
    """Every block is a unit, and the rest is one: parameters are gathered on use (ZeRO-3)."""
    ranks = dist.get_world_size()
    options = {
        "mesh": init_device_mesh("cpu", (ranks,)),
        "reshard_after_forward": args.zero == 3,
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=DTYPES[args.dtype], reduce_dtype=DTYPES[args.reduce_dtype]),
    }
    for block in model.model.layers:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model


def compute_context(args):
    """Autocast, except for FSDP2, whose parameters are cast as they are gathered."""
    if args.dtype == "f32" or args.strategy == "fsdp2":
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=DTYPES[args.dtype])


def clip_gradients(model, largest_norm):
    """Clips the gradients to one global norm and returns the norm they had."""
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), largest_norm)
    return (norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item()


def over_ranks(value, reduction):
    """A number reduced over all ranks: "mean", "max" or "sum"."""
    if not dist.is_initialized():
        return value
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX if reduction == "max" else dist.ReduceOp.SUM)
    return tensor.item() / (dist.get_world_size() if reduction == "mean" else 1)
