import io
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from kit.runner import LOGGED, Runner


class Programs(unittest.TestCase):
    def runner(self, seconds=60):
        return Runner("/", io.StringIO(), dict(os.environ), time.monotonic() + seconds)

    def python(self, runner, text, limit=30, **variables):
        return runner.run([sys.executable, "-c", text], limit, variables)

    def test_output_and_exit_code(self):
        runner = self.runner()
        good = self.python(runner, "import os; print(os.environ['WORD'])", WORD="hello")
        self.assertEqual((good.status, good.stdout), ("ok", "hello\n"))
        bad = self.python(runner, "import sys; print('first', file=sys.stderr); sys.exit('no such GPU')")
        self.assertEqual((bad.status, bad.why), ("failed", "exit code 1: no such GPU"))
        self.assertIn("WORD=hello", runner.log.getvalue())

    def test_a_missing_program_is_a_failure(self):
        outcome = self.runner().run(["/no/such/program"], 30)
        self.assertEqual(outcome.status, "failed")
        self.assertIn("cannot be started", outcome.why)

    @mock.patch("kit.runner.LEAST", 0)
    def test_hung_program_is_killed_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = Path(folder) / "mark"
            child = f"import time; time.sleep(3); open({str(mark)!r}, 'w')"
            text = (f"import subprocess, sys, time; print('begun', flush=True)\n"
                    f"subprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(60)")
            start = time.monotonic()
            outcome = self.python(self.runner(), text, limit=1.5)
            self.assertLess(time.monotonic() - start, 20)
            self.assertEqual((outcome.status, outcome.stdout), ("stopped", "begun\n"))
            time.sleep(max(0, start + 4.5 - time.monotonic()))
            self.assertFalse(mark.exists(), "the child went on")

    @mock.patch("kit.runner.LEAST", 0)
    def test_at_the_end_of_the_call_a_program_is_cut(self):
        outcome = self.python(self.runner(seconds=1), "import time; time.sleep(60)")
        self.assertEqual(outcome.status, "cut")

    def test_without_time_nothing_is_begun(self):
        runner = self.runner(seconds=1)
        self.assertEqual(self.python(runner, "print(1)").status, "cut")
        self.assertEqual(runner.log.getvalue(), "")

    def test_programs_run_at_the_same_time(self):
        wait = "import time; time.sleep(2); print({})"
        start = time.monotonic()
        outcomes = self.runner().together([([sys.executable, "-c", wait.format(n)], {}) for n in range(3)], 30)
        self.assertEqual([outcome.stdout for outcome in outcomes], ["0\n", "1\n", "2\n"])
        self.assertLess(time.monotonic() - start, 5.5)

    def test_long_output_is_shortened_in_the_log_alone(self):
        runner = self.runner()
        outcome = self.python(runner, f"print('x' * {2 * LOGGED})")
        self.assertEqual(len(outcome.stdout), 2 * LOGGED + 1)
        self.assertLess(len(runner.log.getvalue()), 1.5 * LOGGED)


if __name__ == "__main__":
    unittest.main()
