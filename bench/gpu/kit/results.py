"""Results of a check in few files, written immediately.

`results.jsonl` has one JSON object per item that was run, `files.tar.gz` larger outputs (profiles,
logs of failures, metrics). Both are added to by later calls; of several results of one item the
last one counts.
"""

import io
import json
import os
import shutil
import tarfile
import threading
from pathlib import Path

RESULTS = "results.jsonl"
FILES = "files.tar.gz"
# Files of a check in its folder.
NAMES = [RESULTS, FILES, "report.md", "log.txt"]
# Items with another status run again in the next call.
DONE = {"ok", "failed", "stopped", "skipped"}


class Results:
    def __init__(self, out, earlier=None):
        """Results in the folder `out`, which begins with the results of the folder `earlier` if it has none."""
        self.out = Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        # Items that run at the same time have results at the same time.
        self.lock = threading.Lock()
        if earlier is not None and not (self.out / RESULTS).exists():
            for name in NAMES:
                if (Path(earlier) / name).exists():
                    shutil.copy(Path(earlier) / name, self.out / name)
        self.records = list(self._read())
        self.files = self._read_files()

    def _read(self):
        path = self.out / RESULTS
        if not path.exists():
            return
        text = path.read_text()
        if text and not text.endswith("\n"):
            # The machine was shut down in the middle of a line.
            text = text[:text.rfind("\n") + 1]
            path.write_text(text)
        yield from (json.loads(line) for line in text.splitlines())

    def _read_files(self):
        path = self.out / FILES
        if not path.exists():
            return {}
        try:
            with tarfile.open(path) as archive:
                members = [member for member in archive if member.isfile()]
                return {member.name: archive.extractfile(member).read() for member in members}
        except (tarfile.TarError, EOFError, OSError):
            # Truncated while it was copied; results.jsonl has the numbers.
            return {}

    def add(self, record):
        with self.lock, open(self.out / RESULTS, "a") as file:
            self.records.append(record)
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def latest(self):
        """Returns the last record of each item by name, in the order of first execution."""
        found = {}
        for record in list(self.records):
            found[record["item"]] = record
        return found

    def is_done(self, item):
        record = self.latest().get(item)
        return record is not None and record["status"] in DONE

    def keep(self, files):
        """Adds files, given as bytes by name, to the archive."""
        if not files:
            return
        with self.lock:
            self.files |= files
            self._write_files()

    def _write_files(self):
        path = self.out / FILES
        whole = path.with_suffix(".new")
        with tarfile.open(whole, "w:gz") as archive:
            for name, data in sorted(self.files.items()):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        os.replace(whole, path)
