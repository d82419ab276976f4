import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check
import fakes
from kit import report, trainings


def training(case, row, step_ms, mfu=None, **more):
    return {"item": f"llama/{case.name}: {row.name}", "kind": "training", "status": "ok", "seconds": 30.0,
            "case": case.name, "row": row.name, "step_ms": step_ms, "p10": step_ms - 1, "p90": step_ms + 1,
            "tokens": 16384, "mfu": mfu, "peak_bytes": 50e9, "losses": [10.5, 7.25],
            "samples": {}} | more


def rendered(records):
    return report.render(check.all_items(), {record["item"]: record for record in records})


class Report(unittest.TestCase):
    def test_without_results_it_says_so(self):
        self.assertIn("not run yet", rendered([]))

    def test_a_failure_is_at_the_top_and_in_its_part(self):
        text = rendered([{"item": "works/norm", "kind": "test", "status": "failed", "why": "exit code 101", "passed": 3,
                          "failed": ["rms|norm"], "logs": ["works-norm.txt"], "notes": ["NOT CHECKED, x"],
                          "seconds": 2}])
        self.assertIn("- **works/norm**: failed. exit code 101 `rms|norm` (logs: works-norm.txt)", text)
        self.assertIn("| norm | **failed** | 2 | exit code 101 `rms\\|norm` (logs: works-norm.txt)<br>3 tests passed"
                      "<br>NOT CHECKED, x |", text)
        self.assertIn("Not run yet: probe; PyTorch; ", text)

    def test_speed_is_compared_with_like(self):
        case = trainings.LLAMA
        rows = [training(case, trainings.OURS, 240.0, mfu=0.54),
                training(case, trainings.NONDETERMINISTIC, 230.0, mfu=0.56),
                training(case, trainings.EAGER, 200.0, mfu=0.6),
                training(case, trainings.COMPILED, 232.3, attention="cudnn", torch="2.11"),
                training(case, trainings.TORCH, 260.0, attention="cudnn", torch="2.11"),
                training(case, trainings.TORCH_DETERMINISTIC, 300.0, attention="flash", torch="2.11")]
        text = rendered(rows)
        self.assertIn("nondeterministic: **1.01x** (Meshwright, --nondeterministic over PyTorch, torch.compile)", text)
        self.assertIn("deterministic: **1.25x** (Meshwright over PyTorch, deterministic)", text)
        self.assertIn("of all: **0.97x** (Meshwright over PyTorch, torch.compile)", text)
        # The operations of our row in the time of PyTorch's.
        self.assertIn(f"{100 * 0.54 * 240 / 232.3:.1f} %", text)

    def test_clocks_and_memory_of_the_whole_gpu(self):
        samples = {"sm_mhz": 1700, "power_w": 690.0, "memory_bytes": 60e9, "slowed_by": ["0x4"]}
        text = rendered([training(trainings.LLAMA, trainings.OURS, 240.0, mfu=0.5, samples=samples)])
        self.assertIn("| 50.0 GB, 60.0 GB | 1700 MHz, 690 W, 0x4 | 10.500 to 7.250 |", text)

    def test_slow_kernels_are_bold_and_tables_apart(self):
        row = lambda table, name, unit, share: dict(
            table=table, name=name, ms=1.0, rate=3000.0, unit=unit, share=share, host_us=4.0)
        rows = [row("norms", "rms", "GB/s", 0.8), row("norms", "add", "GB/s", 0.9), row("matmul", "q", "TFLOP/s", 0.5)]
        text = rendered([{"item": "speed/elementwise", "kind": "bench", "status": "failed", "why": "out of memory",
                          "rows": rows, "seconds": 3}])
        self.assertIn("| rms | 1.000 | 3000 GB/s | **80 %** | 4 |", text)
        self.assertIn("| add | 1.000 | 3000 GB/s | 90 % | 4 |", text)
        self.assertIn("| q | 1.000 | 3000 TFLOP/s | 50 % | 4 |", text)
        self.assertEqual(text.count("| kernel | ms |"), 2)
        self.assertIn("- **speed/elementwise**: failed. out of memory", text)

    def test_text_is_quoted_and_tables_are_not(self):
        record = {"item": "tools/ncu", "kind": "text", "status": "ok", "seconds": 1, "why": "", "text": "| a |\n|---|"}
        self.assertIn("### ncu\n\n| a |", rendered([record]))
        record |= {"item": "works/probe", "text": "driver 580"}
        self.assertIn("```text\ndriver 580\n```", rendered([record]))


class WholeCalls(unittest.TestCase):
    """check.py with a runner that answers everything, cut in the middle and gone on with."""

    def call(self, out, runner, *words):
        args = check.parse_args([str(out), *words])
        with tempfile.TemporaryDirectory() as scratch, mock.patch("check.Runner", return_value=runner), \
                mock.patch("shutil.which", return_value=None), mock.patch("builtins.print"):
            check.run(args, Path("/programs"), Path(scratch))
        return runner

    def test_all_parts_in_two_calls(self):
        passed = fakes.outcome_of("test a ... ok\n")
        answers = {"/tests/": passed, "/bin/train_": fakes.training([2.0] * 50)}
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            first = self.call(out, fakes.FakeRunner(answers, left=120))
            begun = len(first.commands)
            self.assertGreater(begun, 0)
            self.assertIn("not run yet", (out / "report.md").read_text().splitlines()[2])
            moved = Path(folder) / "elsewhere"
            second = self.call(moved, fakes.FakeRunner(answers), "--earlier", str(out))
            tests = [(words, environment.get("MESHWRIGHT_TEST_ATTENTION"))
                     for words, environment in first.commands + second.commands if "/tests/" in words]
            self.assertEqual(len(tests), len(set(tests)), "a test program ran twice")
            text = (moved / "report.md").read_text()
            self.assertRegex(text, r"Items: .*, 0 not run yet\.")
            names = {path.name for path in moved.iterdir()}
            self.assertLessEqual(names, {"report.md", "results.jsonl", "files.tar.gz", "log.txt"})

    def test_one_item_again(self):
        answers = {"/tests/": fakes.outcome_of("test a ... ok\n")}
        with tempfile.TemporaryDirectory() as folder:
            words = ("--parts", "works", "--only", "norm,rope")
            self.assertEqual(len(self.call(folder, fakes.FakeRunner(answers), *words).commands), 2)
            self.assertEqual(len(self.call(folder, fakes.FakeRunner(answers), *words).commands), 0)
            self.assertEqual(len(self.call(folder, fakes.FakeRunner(answers), *words, "--again").commands), 2)

    def test_an_unknown_part_is_refused(self):
        with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
            check.parse_args(["out", "--parts", "works,sped"])


if __name__ == "__main__":
    unittest.main()
