import io
import os
import signal
import sys
import tarfile
import tempfile
import threading
import time
import unittest
from pathlib import Path

import fakes
from kit.results import FILES, RESULTS, Results
from kit.runner import Runner
from kit.schedule import Item, chosen, work


def item(name, seconds=10, status="ok"):
    def do(kit):
        return {"status": kit.runner.run([name], 100).status if status == "ok" else status}

    return Item(name, seconds, do)


class Schedule(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.said = []

    def work(self, items, runner=None, again=False, jobs=1):
        kit = fakes.kit(runner or fakes.FakeRunner(), self.folder.name)
        self.rendered = 0

        def after():
            self.rendered += 1

        work(kit, items, again, self.said.append, after, jobs)
        return kit

    def test_items_run_in_order_and_each_is_written_immediately(self):
        names = ["works/b", "works/a", "speed/c"]
        seen = []

        def noting(name):
            def do(kit):
                seen.append((name, len(Results(kit.results.out).records)))
                return {"status": "ok"}
            return do

        self.work([Item(name, 1, noting(name)) for name in names])
        self.assertEqual(seen, [(name, index) for index, name in enumerate(names)])
        self.assertEqual(self.rendered, 3)

    def test_concurrent_items_run_at_the_same_time_and_others_alone(self):
        together = threading.Barrier(3, timeout=60)
        running = []

        def waiting(kit):
            running.append(0)
            together.wait()
            running.pop()
            return {"status": "ok"}

        def alone(kit):
            return {"status": "failed" if running else "ok"}

        items = [Item("a", 1, alone), *(Item(f"b{index}", 1, waiting, concurrent=True) for index in range(3)),
                 Item("c", 1, alone)]
        kit = self.work(items, jobs=3)
        self.assertEqual([record["item"][0] for record in kit.results.records], ["a", "b", "b", "b", "c"])
        self.assertEqual({record["status"] for record in kit.results.records}, {"ok"})
        self.assertEqual(self.rendered, 5)

    def test_a_call_that_is_terminated_ends_its_programs(self):
        runner = Runner("/", io.StringIO(), dict(os.environ), time.monotonic() + 600)

        def terminated(kit):
            while not kit.runner.programs:
                time.sleep(0.01)
            sys.exit("terminated")

        def sleeping(kit):
            return {"status": kit.runner.run([sys.executable, "-c", "import time; time.sleep(300)"], 300).status}

        items = [Item("a", 1, terminated, concurrent=True),
                 *(Item(f"b{index}", 1, sleeping, concurrent=True) for index in range(3))]
        start = time.monotonic()
        with self.assertRaises(SystemExit):
            self.work(items, runner, jobs=2)
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual({program.returncode for program in runner.programs}, {-signal.SIGKILL})
        # They run again in the next call.
        results = Results(Path(self.folder.name) / "out")
        self.assertEqual({record["status"] for record in results.records}, {"cut"})

    def test_a_later_call_goes_on_where_the_time_ended(self):
        items = [item("works/a"), item("works/b"), item("works/c")]
        answers = {name: fakes.outcome_of("", seconds=30) for name in "abc"}
        first = self.work(items, fakes.FakeRunner(answers, left=65))
        self.assertEqual([command for command, _ in first.runner.commands], ["works/a", "works/b"])
        self.assertIn("works/c: not begun, needs about 10 s of 5 s", self.said)
        second = self.work(items, fakes.FakeRunner(answers))
        self.assertEqual([command for command, _ in second.runner.commands], ["works/c"])
        self.assertEqual([record["item"] for record in second.results.records], ["works/a", "works/b", "works/c"])

    def test_cut_items_run_again_and_hung_ones_do_not(self):
        items = [item("works/cut", status="cut"), item("works/hung", status="stopped")]
        self.work(items)
        self.said.clear()
        self.work(items)
        self.assertEqual([line.split(":")[0] + line.split(":")[1][:5] for line in self.said],
                         ["works/cut cut ", "works/hung kept"])

    def test_again_reruns_and_the_last_result_counts(self):
        self.work([item("works/a", status="failed")])
        kit = self.work([item("works/a")], again=True)
        self.assertEqual(kit.results.latest()["works/a"]["status"], "ok")
        self.assertEqual(len(kit.results.records), 2)

    def test_shorter_item_replaces_one_that_does_not_fit(self):
        kit = self.work([item("works/long", 100), item("works/short", 5)], fakes.FakeRunner(left=50))
        self.assertEqual(list(kit.results.latest()), ["works/short"])

    def test_a_fault_of_the_kit_is_a_result(self):
        def broken(kit):
            raise KeyError("mfu")

        kit = self.work([Item("works/broken", 1, broken), item("works/next")])
        latest = kit.results.latest()
        self.assertEqual(latest["works/broken"]["status"], "failed")
        self.assertIn("KeyError", latest["works/broken"]["why"])
        self.assertEqual(latest["works/next"]["status"], "ok")

    def test_items_are_chosen_by_part_and_name(self):
        items = [item("works/norm"), item("works/loss"), item("speed/loss")]
        names = lambda parts, only: [found.name for found in chosen(items, parts, only)]
        self.assertEqual(names(["works"], []), ["works/norm", "works/loss"])
        self.assertEqual(names(["works", "speed"], ["loss"]), ["works/loss", "speed/loss"])
        self.assertEqual(names(["works", "speed"], ["w*s/n"]), ["works/norm"])


class Keeping(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_half_a_line_is_dropped(self):
        Results(self.folder).add({"item": "a", "status": "ok"})
        with open(self.folder / RESULTS, "a") as file:
            file.write('{"item": "b", "sta')
        results = Results(self.folder)
        results.add({"item": "c", "status": "ok"})
        self.assertEqual([record["item"] for record in Results(self.folder).records], ["a", "c"])

    def test_results_of_an_earlier_call_are_taken_over_once(self):
        earlier = Results(self.folder / "earlier")
        earlier.add({"item": "a", "status": "ok"})
        earlier.keep({"profile": b"long"})
        results = Results(self.folder / "out", earlier.out)
        self.assertTrue(results.is_done("a"))
        results.add({"item": "b", "status": "ok"})
        results.keep({"log": b"short"})
        again = Results(self.folder / "out", earlier.out)
        self.assertEqual([record["item"] for record in again.records], ["a", "b"])
        self.assertEqual(again.files, {"profile": b"long", "log": b"short"})
        with tarfile.open(self.folder / "out" / FILES) as archive:
            self.assertEqual(archive.getnames(), ["log", "profile"])

    def test_an_archive_that_was_cut_off_is_begun_again(self):
        results = Results(self.folder)
        results.keep({"a": bytes(10_000)})
        whole = (self.folder / FILES).read_bytes()
        (self.folder / FILES).write_bytes(whole[:len(whole) // 2])
        again = Results(self.folder)
        again.keep({"b": b"x"})
        self.assertIn("b", Results(self.folder).files)


if __name__ == "__main__":
    unittest.main()
