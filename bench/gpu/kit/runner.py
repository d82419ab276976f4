"""Execution of programs with time limits, including their child processes."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

# Minimum remaining time to start a program, in seconds.
LEAST = 5
# Maximum characters of each output in the log; the beginning and the end are kept.
LOGGED = 100_000


@dataclass(frozen=True)
class Outcome:
    """Outcome of a program. `status` is ok, failed, stopped (at its own limit) or cut (at the end of
    the call's time)."""

    status: str
    stdout: str
    stderr: str
    seconds: float
    why: str = ""

    @property
    def ok(self):
        return self.status == "ok"


def shortened(text):
    if len(text) <= LOGGED:
        return text
    half = LOGGED // 2
    return f"{text[:half]}\n... {len(text) - LOGGED} characters ...\n{text[-half:]}"


class Runner:
    def __init__(self, folder, log, environment, deadline):
        """Runs programs in `folder`, until `deadline` (of time.monotonic) at the latest."""
        self.folder = folder
        self.log = log
        self.environment = environment
        self.deadline = deadline
        self.programs = []
        self.is_ended = False
        # Held while a program starts, which must not happen after the end.
        self.lock = threading.Lock()

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, limit, environment=None):
        [outcome] = self.together([(command, environment or {})], limit)
        return outcome

    def together(self, commands, limit):
        """Runs programs concurrently, each with its own environment, within one limit in seconds."""
        allowed = min(limit, self.left())
        if allowed < LEAST:
            return [Outcome("cut", "", "", 0, "no time is left")] * len(commands)
        start = time.monotonic()
        with ExitStack() as stack:
            programs = [self._start(stack, command, variables) for command, variables in commands]
            return [self._outcome(program, start, allowed, allowed < limit) for program in programs]

    def end_all(self):
        """Kills all programs; those that are requested later do not start."""
        with self.lock:
            self.is_ended = True
        for program in self.programs:
            if program.poll() is None:
                end(program)

    def _log(self, text):
        # In one write, because other programs may end at the same time.
        self.log.write(text)
        self.log.flush()

    def _start(self, stack, command, variables):
        words = " ".join([f"{name}={value}" for name, value in variables.items()] + list(map(str, command)))
        self._log(f"$ {words}\n")
        # Files, because a full pipe blocks the program.
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in range(2)]
        environment = self.environment | {name: str(value) for name, value in variables.items()}
        try:
            with self.lock:
                if self.is_ended:
                    raise OSError("the call has ended")
                program = subprocess.Popen(
                    list(map(str, command)), stdin=subprocess.DEVNULL, stdout=outputs[0], stderr=outputs[1],
                    cwd=self.folder, env=environment, start_new_session=True)
                self.programs.append(program)
        except OSError as error:
            return error, outputs, words
        stack.callback(end, program)
        return program, outputs, words

    def _outcome(self, started, start, allowed, is_cut):
        program, outputs, words = started
        if isinstance(program, OSError):
            return Outcome("cut" if self.is_ended else "failed", "", "", 0, f"cannot be started: {program}")
        status, why = "ok", ""
        try:
            program.wait(max(0, start + allowed - time.monotonic()))
        except subprocess.TimeoutExpired:
            end(program)
            status, why = "cut" if is_cut else "stopped", f"stopped after {allowed:.0f} s"
        seconds = time.monotonic() - start
        texts = []
        for output in outputs:
            output.seek(0)
            texts.append(output.read())
        self._log("\n".join([f"# output of {words}", *map(shortened, texts), f"[{seconds:.1f} s]\n"]))
        if self.is_ended:
            status, why = "cut", "the call has ended"
        elif status == "ok" and program.returncode != 0:
            last = (texts[1].strip() or texts[0].strip() or "no output").splitlines()[-1]
            status, why = "failed", f"exit code {program.returncode}: {last}"
        return Outcome(status, *texts, round(seconds, 2), why)


def end(program):
    """Kills a program with all its child processes."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()
