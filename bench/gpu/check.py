#!/usr/bin/env python3
"""Checks Meshwright on a machine with a GPU, in calls of some minutes each, and writes a report.

Runs what pack.sh has put beside this file. A check is made of parts, and parts of items. Each item
has a result, which is written into OUT as soon as it is known; a later call with the same OUT, or
with a copy of it in --earlier, goes on with the items that have none. README.md beside this file
says which parts a call of ten minutes has time for.

Usage: python3 .gpu/check.py OUT [--parts works,speed] [--only NAME,..] [--again] [--minutes 9]

OUT/report.md is the report of all calls, OUT/results.jsonl the same for programs, OUT/log.txt what
every program printed, OUT/files.tar.gz profiles and logs of failures.
"""

import argparse
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from kit import agreement, nccl, probe, report, speed, tests, tools, trainings
from kit.results import Results
from kit.runner import Runner
from kit.schedule import Kit, chosen, work

HERE = Path(__file__).resolve().parent


def all_items():
    """All items, in the order of execution."""
    return [*probe.items(), *tests.items(), *agreement.items(), *speed.items(), *trainings.items(),
            *tests.model_items(), *tools.items(), *nccl.items()]


def parse_args(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--parts", default=",".join(report.PARTS), help=f"of {', '.join(report.PARTS)}")
    parser.add_argument("--only", default="", help="parts of names of items, with * for any text")
    parser.add_argument("--again", action="store_true", help="also items that have a result")
    parser.add_argument("--earlier", type=Path, default=HERE / "earlier",
                        help="a copy of OUT of an earlier call [default: earlier, beside this file]")
    parser.add_argument("--minutes", type=float, default=9, help="end within these [default: 9]")
    parser.add_argument("--jobs", type=int, default=1, help="tests that run at the same time [default: 1]")
    parser.add_argument("--steps", type=int, default=trainings.TIMED, help="timed steps of a training")
    parser.add_argument("--list", action="store_true", help="print the items and their seconds, and run none")
    args = parser.parse_args(words)
    args.parts = args.parts.split(",")
    args.only = [pattern for pattern in args.only.split(",") if pattern]
    if unknown := set(args.parts) - set(report.PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(report.PARTS)}")
    for name in ("jobs", "steps"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return args


def library_folders():
    """The folders of NVIDIA's libraries in the installed Python packages."""
    found = importlib.util.find_spec("nvidia")
    roots = [Path(path) for path in found.submodule_search_locations] if found else []
    return [str(folder) for root in roots for folder in sorted(root.glob("*/lib"))]


def environment(programs):
    """The environment variables of every program."""
    folders = library_folders() + os.environ.get("MESHWRIGHT_CUDA_LIBS", "").split(":")
    # No program may compile a simulated device, which takes minutes: a test that tries fails immediately.
    return os.environ | {"RUST_BACKTRACE": "1", "CXX": "/no/simulated/device",
                         "MESHWRIGHT_CACHE": str(programs / "kernels"),
                         "MESHWRIGHT_CUDA_LIBS": ":".join(filter(None, folders))}


def run(args, programs, scratch):
    """Runs the requested items. The report is updated before every item."""
    started = time.monotonic()
    earlier = args.earlier if args.earlier.is_dir() else None
    results = Results(args.out, earlier)
    items = all_items()

    lock = threading.Lock()

    def write_report():
        with lock:
            (args.out / "report.md").write_text(report.render(items, results.latest()))

    def say(line):
        with lock:
            print(f"[{time.monotonic() - started:4.0f} s] {line}", flush=True)

    with open(args.out / "log.txt", "a") as log:
        runner = Runner(programs, log, environment(programs), started + 60 * args.minutes)
        kit = Kit(runner, results, programs, scratch, args)
        write_report()
        work(kit, chosen(items, args.parts, args.only), args.again, say, write_report, args.jobs)


def main(words):
    args = parse_args(words)
    if args.list:
        for item in chosen(all_items(), args.parts, args.only):
            print(f"{item.seconds:5.0f} s  {item.name}")
        return
    archive = HERE / "programs.tar.xz"
    if not archive.exists():
        sys.exit(f"{archive} is not there: make it with bench/gpu/pack.sh, which copies this file beside it")
    # Child processes must end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    args.out = args.out.resolve()
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        programs, scratch = Path(folder) / "programs", Path(folder) / "scratch"
        shutil.unpack_archive(archive, programs)
        scratch.mkdir()
        run(args, programs, scratch)
    text = (args.out / "report.md").read_text()
    # The parts are in the file.
    print(text.split("\n## ")[0])
    print(f"The report is {args.out / 'report.md'}.")


if __name__ == "__main__":
    main(sys.argv[1:])
