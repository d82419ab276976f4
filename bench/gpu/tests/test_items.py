import json
import re
import unittest
from pathlib import Path
from unittest import mock

import check
import fakes
from kit import agreement, nccl, report, sampler, speed, tests, tools, trainings

ROOT = Path(check.__file__).resolve().parent

PASSED = """
running 3 tests
test a ... ok
test of::b ... ignored, a rank of the other tests
test c ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s
"""
FAILED = PASSED.replace("test c ... ok", "test c ... FAILED")


def do(name, kit):
    """Runs the item of this name."""
    [found] = [item for item in check.all_items() if item.name == name]
    return found.do(kit)


class Plan(unittest.TestCase):
    def test_items_have_names_of_their_own_and_a_part(self):
        names = [item.name for item in check.all_items()]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(list(dict.fromkeys(name.split("/")[0] for name in names)), list(report.PARTS))

    def commands(self):
        """Returns the commands of the test program."""
        runner = fakes.FakeRunner({"/bin/train_": fakes.training([1.0] * 10)})
        kit = fakes.kit(runner)
        parts = ("works/", "models/", "nccl/", *(f"tools/{tool} of " for tool, _ in tools.CHECKED))
        with mock.patch("shutil.which", return_value="/bin/tool"):
            for item in check.all_items():
                if item.name.startswith(parts):
                    item.do(kit)
        return [words for words, _ in runner.commands if "/programs/tests/" in words]

    def test_packed_program_is_the_one_that_runs(self):
        text = (ROOT / "pack.sh").read_text()
        packed = re.search(r'^TEST="([^"]*)"', text, re.MULTILINE).group(1)
        run = {match for words in self.commands() for match in re.findall(r"/programs/tests/(\w+)", words)}
        self.assertEqual(run, {packed})

    def test_each_command_selects_one_module(self):
        # A filter selects each test whose path contains it.
        folder = ROOT.parent.parent / "gpu-sim/tests/device"
        files = [path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.rs")]
        modules = ["".join(f"{name}::" for name in parts if name != "mod") for parts in files if parts != ("main",)]
        # Those of the conformance suite are in `conformance`.
        suite = (ROOT.parent.parent / "tests/conformance/src/lib.rs").read_text()
        families = re.findall(r"^ {12}(\w+) \{", suite, re.MULTILINE)
        self.assertIn("norm", families)
        modules += [f"{family}::" for family in families]
        filters = [re.search(r"--test-threads=1 (\S+)$", words).group(1) for words in self.commands()]
        self.assertGreater(len(set(filters)), 20)
        for filter in filters:
            selected = [module for module in modules if filter in module]
            self.assertTrue(selected, f"{filter} selects nothing")
            self.assertTrue(all(module.startswith(filter) for module in selected), f"{filter} selects {selected}")

    def test_each_part_except_tools_fits_into_a_call(self):
        for part in report.PARTS:
            seconds = sum(item.seconds for item in check.all_items() if item.name.startswith(f"{part}/"))
            self.assertLessEqual(seconds, 9 * 60 if part != "tools" else 16 * 60, part)


class TestPrograms(unittest.TestCase):
    def test_a_pass(self):
        runner = fakes.FakeRunner({" norm::": fakes.outcome_of(PASSED, "NOT CHECKED, a: needs more\nother")})
        record = do("works/norm", fakes.kit(runner))
        self.assertEqual((record["status"], record["passed"], record["failed"]), ("ok", 2, []))
        self.assertEqual(record["notes"], ["NOT CHECKED, a: needs more"])
        [(words, environment)] = runner.commands
        self.assertEqual(environment["MESHWRIGHT_TEST_DEVICE"], "cuda")

    def test_failing_tests_run_again_with_logs(self):
        def answer(words, environment):
            if "--exact" not in words:
                return fakes.outcome_of(FAILED, status="failed", why="exit code 101: error")
            Path(environment["CUBLASLT_LOG_FILE"]).write_text("the heuristic said no")
            return fakes.outcome_of("it failed again", status="failed")

        runner = fakes.FakeRunner({"tests/device": answer})
        kit = fakes.kit(runner)
        record = do("works/norm", kit)
        self.assertEqual((record["status"], record["failed"]), ("failed", ["c"]))
        again, environment = runner.commands[1]
        self.assertTrue(again.endswith("--nocapture --exact c"), again)
        self.assertEqual(environment["CUDA_LAUNCH_BLOCKING"], 1)
        self.assertEqual(record["logs"], ["works-norm.cublaslt.log", "works-norm.txt"])
        self.assertEqual(kit.results.files["works-norm.cublaslt.log"], b"the heuristic said no")

    def test_a_test_in_which_the_program_ends_is_named(self):
        crashed = "test a ... ok\ntest b ... "
        runner = fakes.FakeRunner({" norm::": fakes.outcome_of(crashed, status="failed", why="exit code -6")})
        record = do("works/norm", fakes.kit(runner))
        self.assertEqual((record["why"], record["unfinished"]), ("exit code -6 (in b)", "b"))
        self.assertTrue(runner.commands[1][0].endswith("--exact b"))

    def test_reason_is_that_of_the_first_failure(self):
        panicked = "thread 'c' panicked at src/norm.rs:7:\nx[3]: 1.0 instead of 2.0\nnote: more"
        text = f"{FAILED}\n---- c stdout ----\n{panicked}"
        failed = fakes.outcome_of(text, "NOT CHECKED, a: x", "failed", 1.0, "exit code 101")
        runner = fakes.FakeRunner({" norm::": failed})
        self.assertEqual(do("works/norm", fakes.kit(runner))["why"], "src/norm.rs:7: x[3]: 1.0 instead of 2.0")

    def test_a_hung_program_is_not_run_again(self):
        hung = fakes.outcome_of("test a ... ", status="stopped", why="stopped after 60 s")
        runner = fakes.FakeRunner({" norm::": hung})
        self.assertEqual(do("works/norm", fakes.kit(runner))["why"], "stopped after 60 s (in a)")
        self.assertEqual(len(runner.commands), 1)

    def test_a_filter_that_matches_nothing_fails(self):
        runner = fakes.FakeRunner({" models::": fakes.outcome_of("running 0 tests")})
        self.assertEqual(do("models/llama", fakes.kit(runner))["status"], "failed")

    def test_attention_runs_by_both_implementations(self):
        runner = fakes.FakeRunner({" attention::": fakes.outcome_of(PASSED)})
        kit = fakes.kit(runner)
        do("works/attention, own kernels", kit)
        do("works/attention, cuDNN", kit)
        selected = [environment.get("MESHWRIGHT_TEST_ATTENTION") for _, environment in runner.commands]
        self.assertEqual(selected, ["own", None])


class Trainings(unittest.TestCase):
    def test_medians_leave_the_first_steps_out(self):
        losses = [5.0] * trainings.WARM_UP + [4.0, 3.0]
        kit = fakes.kit(fakes.FakeRunner({"train_llama": fakes.training(losses)}))
        record = do("llama/Llama 1.2B, 4 x 4096: Meshwright, --nondeterministic", kit)
        self.assertEqual((record["step_ms"], record["peak_bytes"], record["losses"][-1]), (100.0, 10**9, 3.0))
        words = kit.runner.commands[0][0]
        self.assertIn(f"--steps {trainings.WARM_UP + 2} ", words)
        self.assertTrue(words.endswith("--device cuda --nondeterministic"), words)

    def test_flags_of_pytorch(self):
        values = dict(times=[1.0, 3.0, 2.0], peak_bytes=7, losses=[2.0], attention="flash", torch="2.11")
        answer = fakes.outcome_of("a warning\n" + json.dumps(values))
        runner = fakes.FakeRunner({"torch_train": answer})
        record = do("llama/Llama 1.2B, 4 x 4096: PyTorch, torch.compile", fakes.kit(runner))
        self.assertEqual((record["step_ms"], record["p10"], record["p90"]), (2.0, 1.0, 3.0))
        self.assertTrue(runner.commands[0][0].endswith("--compile"))

    def test_percentiles(self):
        found = trainings.times([float(n) for n in range(1, 31)])
        self.assertEqual(found, {"step_ms": 15.5, "p10": 4.0, "p90": 28.0})

    def test_losses_are_compared_to_the_last_bit(self):
        losses = [5.0, 4.0, 3.0, 2.0, 1.0]
        name = "works/llama-1.2b with and without CUDA graphs"
        same = fakes.kit(fakes.FakeRunner({"train_llama": fakes.training(losses)}))
        self.assertEqual(do(name, same)["status"], "ok")
        others = {"--no-graphs": fakes.training([*losses[:4], 1.0 + 2**-50]), "train_llama": fakes.training(losses)}
        record = do(name, fakes.kit(fakes.FakeRunner(others)))
        self.assertEqual(record["status"], "failed")
        self.assertIn("loss of step 5: 1.0 instead of", record["why"])

    def test_a_step_that_is_missing_fails(self):
        kit = fakes.kit(fakes.FakeRunner({"train_": fakes.training([1.0])}))
        self.assertEqual(agreement.against_cpu(kit)["status"], "failed")

    def test_nan_is_not_near_the_cpu(self):
        runs = {"--device cpu": fakes.training([1.0] * 10), "train_": fakes.training([float("nan")] * 10)}
        self.assertEqual(agreement.against_cpu(fakes.kit(fakes.FakeRunner(runs)))["status"], "failed")

    def test_meshes_are_compared_with_one_rank(self):
        runs = {"--mesh tp=2": fakes.training([2.0, 1.9]), "train_": fakes.training([2.0, 1.0])}
        kit = fakes.kit(fakes.FakeRunner(runs))
        self.assertEqual(nccl.train(kit, "dp=2", 2)["status"], "failed")
        kit.results.add({"item": nccl.name("1")} | nccl.train(kit, "1", 1))
        self.assertEqual(nccl.train(kit, "dp=2", 2)["status"], "ok")
        self.assertEqual(nccl.train(kit, "tp=2", 2)["status"], "failed")
        ranks = [environment["RANK"] for _, environment in kit.runner.commands[-2:]]
        self.assertEqual(ranks, [0, 1])

    def test_documents_are_compared_with_documents(self):
        runs = {nccl.DOCUMENTS: fakes.training([2.0, 1.0]), "train_": fakes.training([3.0, 2.0])}
        kit = fakes.kit(fakes.FakeRunner(runs))
        kit.results.add({"item": nccl.name("1")} | nccl.train(kit, "1", 1))
        [mesh] = [mesh for mesh, ranks in nccl.MESHES.items() if nccl.DOCUMENTS in mesh and ranks > 1]
        record = nccl.train(kit, mesh, 2)
        self.assertEqual((record["status"], nccl.DOCUMENTS in record["why"]), ("failed", True))
        one = f"1 {nccl.DOCUMENTS}"
        kit.results.add({"item": nccl.name(one)} | nccl.train(kit, one, 1))
        self.assertEqual(nccl.train(kit, mesh, 2)["status"], "ok")
        words = [words for words, _ in kit.runner.commands]
        self.assertIn("tokens-64-", words[-1])
        self.assertIn("tokens-1024-", words[0])

    def test_references_come_before_what_is_compared_with_them(self):
        meshes = list(nccl.MESHES)
        for mesh in [*meshes, *nccl.GROUPED]:
            one = nccl.reference(mesh)
            self.assertEqual(nccl.MESHES[one], 1)
            self.assertLessEqual(meshes.index(one), meshes.index(mesh) if mesh in meshes else len(meshes))

    def test_experts_are_compared_with_experts(self):
        runs = {"train_llama": fakes.training([3.0, 2.0]), "train_mixtral": fakes.training([2.0, 1.0])}
        kit = fakes.kit(fakes.FakeRunner(runs))
        kit.results.add({"item": nccl.name("1")} | nccl.train(kit, "1", 1))
        self.assertEqual(nccl.train(kit, "ep=2", 2, "experts")["status"], "failed")
        kit.results.add({"item": nccl.name("1", "experts")} | nccl.train(kit, "1", 1, "experts"))
        self.assertEqual(nccl.train(kit, "ep=2", 2, "experts")["status"], "ok")
        self.assertEqual(list(nccl.EXPERTS)[0], "1")

    def test_pipelines_also_group_their_messages(self):
        kit = fakes.kit(fakes.FakeRunner({"train_": fakes.training([2.0, 1.0])}))
        kit.results.add({"item": nccl.name("1")} | nccl.train(kit, "1", 1))
        for mesh, ranks in nccl.GROUPED.items():
            for messages in ("pairs", "grouped") if mesh in nccl.MESHES else ("grouped",):
                self.assertEqual(do(nccl.name(mesh, messages), kit)["status"], "ok")
                variables = [environment["MESHWRIGHT_NCCL_P2P"] for _, environment in kit.runner.commands[-ranks:]]
                self.assertEqual(variables, [messages] * ranks)


class Speed(unittest.TestCase):
    def test_every_table_of_the_program_is_measured(self):
        text = (ROOT.parent / "src/bin/gpu/suite/mod.rs").read_text()
        self.assertEqual(set(re.findall(r'table\("([^"]*)"', text)), set(speed.TABLES))

    def test_rows_before_a_failure_count(self):
        def answer(words, _):
            path = Path(words.split("--json ")[1])
            path.write_text('{"table": "t", "name": "a", "ms": 1.0}\n{"table": "t", "na')
            return fakes.outcome_of("", status="failed", why="exit code 101: out of memory")

        record = do("speed/matmul", fakes.kit(fakes.FakeRunner({"bin/gpu": answer})))
        self.assertEqual((record["status"], [row["name"] for row in record["rows"]]), ("failed", ["a"]))

    def test_a_profile_is_kept_whole_and_shown_in_part(self):
        table = "\n".join(f"line {n}" for n in range(200))

        def answer(words, environment):
            Path(environment["MESHWRIGHT_PROFILE"]).write_text(table)
            return fakes.training([1.0])(words, environment)

        kit = fakes.kit(fakes.FakeRunner({"train_gpt2": answer}))
        record = do("speed/profile of gpt2-124m", kit)
        self.assertEqual(len(record["text"].splitlines()), speed.SHOWN)
        self.assertEqual(kit.results.files["gpt2-124m-profile.txt"].decode(), table)
        self.assertIn("--no-graphs", kit.runner.commands[0][0])

    def test_no_profile_is_a_failure(self):
        kit = fakes.kit(fakes.FakeRunner({"train_": fakes.training([1.0])}))
        self.assertEqual(do("speed/profile of gpt2-124m", kit)["status"], "failed")


class Tools(unittest.TestCase):
    def test_without_the_tool_an_item_is_skipped(self):
        with mock.patch("shutil.which", return_value=None):
            for name in ("tools/ncu", "tools/nsys", "tools/memcheck of norm"):
                runner = fakes.FakeRunner()
                self.assertEqual(do(name, fakes.kit(runner))["status"], "skipped")
                self.assertEqual(runner.commands, [])

    def test_what_a_memory_check_finds_is_shown(self):
        text = "========= COMPUTE-SANITIZER\n========= Invalid __global__ write\n========= ERROR SUMMARY: 1 error"
        runner = fakes.FakeRunner({"compute-sanitizer": fakes.outcome_of(text, status="failed", why="exit code 99")})
        with mock.patch("shutil.which", return_value="/bin/tool"):
            record = do("tools/memcheck of norm", fakes.kit(runner))
        self.assertEqual((record["status"], record["why"]), ("failed", "ERROR SUMMARY: 1 error"))
        self.assertIn("Invalid __global__ write", record["text"])

    def test_counters_are_added_up_by_kernel(self):
        lines = ['==PROF== Connected', '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
        for number, kernel, ns in [(0, "gemm", "1,000"), (1, "norm", "500"), (2, "gemm", "3,000")]:
            lines += [f'"{number}","{kernel}","gpu__time_duration.sum","nsecond","{ns}"',
                      f'"{number}","{kernel}","dram__bytes.sum","Kbyte","8"']
        table = tools.kernel_table("\n".join(lines)).splitlines()
        self.assertEqual(table[2], "| `gemm` | 2 | 0.004 | 4 | 0 % | 0 % |")
        self.assertEqual(table[3], "| `norm` | 1 | 0.001 | 16 | 0 % | 0 % |")


class Samples(unittest.TestCase):
    def test_idle_time_does_not_count(self):
        text = ("345, 3201, 80.0, 30, 500, 0x0000000000000001\n" * 5
                + "1700, 3201, 690.0, 60, 90000, 0x0000000000000004\n" * 3 + "1980, 32")
        found = sampler.summary(text)
        self.assertEqual((found["samples"], found["sm_mhz"], found["power_w"]), (3, 1700, 690))
        self.assertEqual((found["memory_bytes"], found["slowed_by"]), (90000 * 2**20, ["0x0000000000000004"]))

    def test_a_query_that_nvidia_smi_refuses_gives_none(self):
        self.assertEqual(sampler.summary('Field "clocks_event_reasons.active" is not a valid field'), {})


if __name__ == "__main__":
    unittest.main()
