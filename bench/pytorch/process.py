"""What must be settled before torch is loaded, and what a process says about itself.

This module imports neither torch nor numpy.
"""

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path


def start_ranks(ranks):
    """Replaces this process by torchrun, which starts `ranks` copies of it. Does not return."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # Each rank sets its own count later.
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--standalone",
                              f"--nproc-per-node={ranks}", *sys.argv])


def started_by_torchrun():
    return "RANK" in os.environ


def torchrun_ranks():
    return int(os.environ["WORLD_SIZE"])


def pin_to_own_cores(threads):
    """Gives every local rank `threads` cores of its own, if there are enough of them."""
    cores = sorted(os.sched_getaffinity(0))
    first = int(os.environ["LOCAL_RANK"]) * threads
    if int(os.environ["LOCAL_WORLD_SIZE"]) * threads <= len(cores):
        os.sched_setaffinity(0, cores[first : first + threads])


def keep_freed_memory():
    """Avoids the page faults of eager PyTorch from remapping every large activation."""
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # Read by torch when it is imported.
    m_mmap_max, m_trim_threshold = -4, -1  # From malloc.h.
    libc = ctypes.CDLL(None)
    libc.mallopt(m_mmap_max, 0)
    libc.mallopt(m_trim_threshold, 2**31 - 1)


def enable_mkl_avx512():
    """Answers MKL's question for an Intel CPU with yes; otherwise it stays with AVX2 kernels.

    MKL is linked into torch and finds this definition first if it is loaded before torch. This is
    not a setting that PyTorch or MKL document.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "mkl_avx512.so"
        source = "int mkl_serv_intel_cpu_true(void) { return 1; }"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source.encode(), check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
