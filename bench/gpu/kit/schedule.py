"""Which items a call runs, in which order, and when it begins no more."""

import fnmatch
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace


@dataclass(frozen=True)
class Item:
    """One thing that is run and has one result."""

    # As in `llama/ours`: the part, then the item.
    name: str
    # About how long it takes. With less time left it is not begun.
    seconds: float
    # Takes a Kit, and gives the fields of a record, `status` among them.
    do: Callable


@dataclass
class Kit:
    """What items work with."""

    runner: object
    results: object
    # Where the unpacked programs are.
    programs: Path
    # For files of an item, which are gone after the call unless they are kept.
    scratch: Path
    settings: SimpleNamespace


def chosen(items, parts, only):
    """The items of these parts that one of the patterns matches, or all of them without patterns."""
    of_parts = [item for item in items if item.name.split("/")[0] in parts]
    if not only:
        return of_parts
    return [item for item in of_parts
            if any(fnmatch.fnmatch(item.name, f"*{pattern}*") for pattern in only)]


def work(kit, items, again, say, after):
    """Runs the items that have no result yet, or all with `again`, as far as there is time, and calls
    `after` after each."""
    for item in items:
        if not again and kit.results.is_done(item.name):
            say(f"{item.name}: kept from before")
            continue
        left = kit.runner.left()
        if left < item.seconds:
            say(f"{item.name}: not begun, needs about {item.seconds:.0f} s of {max(left, 0):.0f} s")
            continue
        start = time.monotonic()
        try:
            record = item.do(kit)
        except Exception as error:  # The items after it still tell something.
            traceback.print_exc(file=kit.runner.log)
            record = {"status": "failed", "why": f"check.py failed: {type(error).__name__}: {error}"}
        seconds = round(time.monotonic() - start, 1)
        kit.results.add({"item": item.name, "seconds": seconds} | record)
        say(f"{item.name}: {record['status']} in {seconds:.0f} s"
            + (f", {record['why']}" if record.get("why") else ""))
        after()
