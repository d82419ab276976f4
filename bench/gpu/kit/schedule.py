"""Selection and scheduling of the items of a call within its time limit."""

import fnmatch
import itertools
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace


@dataclass(frozen=True)
class Item:
    """A unit of work with one result."""

    # Part and item, as in `llama/ours`.
    name: str
    # Estimated seconds. With less time left it is not started.
    seconds: float
    # Takes a Kit and returns the fields of a record, including `status`.
    do: Callable
    # True if its result depends neither on time nor on other items, so that it may run at the same time as others.
    concurrent: bool = False


@dataclass
class Kit:
    """Resources of items."""

    runner: object
    results: object
    # Folder of the unpacked programs.
    programs: Path
    # Folder for files of an item, deleted after the call unless they are kept.
    scratch: Path
    settings: SimpleNamespace


def chosen(items, parts, only):
    """Returns the items of these parts that match a pattern, or all without patterns."""
    of_parts = [item for item in items if item.name.split("/")[0] in parts]
    if not only:
        return of_parts
    return [item for item in of_parts
            if any(fnmatch.fnmatch(item.name, f"*{pattern}*") for pattern in only)]


def work(kit, items, again, say, after, jobs=1):
    """Runs the items without a result, or all with `again`, while there is time, and calls
    `after` after each. Up to `jobs` consecutive items that are concurrent run at the same time."""
    def work_on_item(item):
        work_on(kit, item, again, say, after)

    for is_concurrent, group in itertools.groupby(items, lambda item: item.concurrent):
        if is_concurrent and jobs > 1:
            work_together(kit, group, work_on_item, jobs)
        else:
            for item in group:
                work_on_item(item)


def work_together(kit, items, work_on_item, jobs):
    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(work_on_item, items))
        except BaseException:
            # The threads end when their programs have.
            pool.shutdown(wait=False, cancel_futures=True)
            kit.runner.end_all()
            raise


def work_on(kit, item, again, say, after):
    if not again and kit.results.is_done(item.name):
        say(f"{item.name}: kept from before")
        return
    left = kit.runner.left()
    if left < item.seconds:
        say(f"{item.name}: not begun, needs about {item.seconds:.0f} s of {max(left, 0):.0f} s")
        return
    start = time.monotonic()
    try:
        record = item.do(kit)
    except Exception as error:  # Later items are still useful.
        kit.runner.log.write(traceback.format_exc())
        record = {"status": "failed", "why": f"check.py failed: {type(error).__name__}: {error}"}
    seconds = round(time.monotonic() - start, 1)
    kit.results.add({"item": item.name, "seconds": seconds} | record)
    say(f"{item.name}: {record['status']} in {seconds:.0f} s" + (f", {record['why']}" if record.get("why") else ""))
    after()
