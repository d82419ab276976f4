"""A runner whose programs are scripted, and a clock that only they advance."""

import io
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from kit.results import Results
from kit.runner import Outcome
from kit.schedule import Kit


class FakeRunner:
    """Answers a command by the first of `answers` whose key is part of it, else with success.

    An answer is an Outcome, or a function that takes the command and its variables and gives one."""

    def __init__(self, answers=None, left=1e9):
        self.answers = answers or {}
        self.remaining = left
        self.commands = []
        self.log = io.StringIO()
        self.environment = {"PATH": "/nowhere"}

    def left(self):
        return self.remaining

    def run(self, command, limit, environment=None):
        words = " ".join(map(str, command))
        self.commands.append((words, environment or {}))
        for key, answer in self.answers.items():
            if key in words:
                outcome = answer(words, environment or {}) if callable(answer) else answer
                break
        else:
            outcome = outcome_of("")
        if outcome.seconds > self.remaining:
            outcome = Outcome("cut", "", "", self.remaining, "stopped")
        self.remaining -= outcome.seconds
        return outcome

    def together(self, commands, limit):
        return [self.run(command, limit, environment) for command, environment in commands]


def outcome_of(stdout, stderr="", status="ok", seconds=1.0, why=""):
    return Outcome(status, stdout, stderr, seconds, why)


def training(losses, step_ms=100.0):
    """An answer that writes the metrics of a training."""

    def answer(words, _):
        path = Path(words.split("--metrics ")[1].split()[0])
        steps = [dict(loss=loss, grad_norm=1.0, step_ms=step_ms, mfu=0.5, peak_bytes={"total": 10**9, "gradients": 1})
                 for loss in losses]
        path.write_text("".join(json.dumps(step) + "\n" for step in steps))
        return outcome_of("")

    return answer


def kit(runner, folder=None, steps=2):
    folder = Path(folder or tempfile.mkdtemp())
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return Kit(runner, Results(folder / "out"), Path("/programs"), scratch, SimpleNamespace(steps=steps))
