#!/usr/bin/env python3
"""frameworks.py on a small tree of its own, and `--check` of this one: docs/compatibility.md says what the records say."""
import json
import pathlib
import sys
import tempfile
import unittest

import frameworks

sys.path.insert(0, str(frameworks.ROOT / "tools/validate"))
import checks  # noqa: E402

ROWS = """
[[row]]
framework = "Frame"
packages = ["frame", "base"]
test = "frame"
job = "frame_job"
what = "all of it"

[[row]]
framework = "Other"
not_run = "no wheel"
what = ""

[[row]]
framework = "runtime"
gpu = "cudart"
what = "mix"

[[row]]
framework = "Torch"
gpu = "torch"
program = "loop"
what = "a loop"

[[row]]
framework = "driver"
gpu = "bench"
program = "cost"
what = "cost"
"""
RECORD = {"schema": 1, "environment": "frame", "packages": {"frame": "1.2", "base": "3"}, "where": "simulated", "result": "passed",
          "date": "2026-11-30"}
REPORT = {"schema": 1, "simulated": False, "gpu": "GPU 9", "driver": "600", "date": "2026-12-01",
          "results": [{"set": "cudart", "name": "one", "result": "passed"}, {"set": "cudart", "name": "other", "result": "failed"},
                      {"set": "torch", "name": "loop", "result": "passed", "detail": "", "version": "2.11.0"},
                      {"set": "torch", "name": "more", "result": "failed", "detail": "", "version": "2.11.0"},
                      {"set": "bench", "name": "cost", "result": "passed", "detail": "2MiB 9 us"}]}


class Frameworks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="plexrl-frameworks-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.tree = frameworks.Tree(self.root)
        self.tree.compat.mkdir(parents=True)
        self.tree.records.mkdir(parents=True)
        (self.tree.compat / "frameworks.toml").write_text(ROWS)
        (self.tree.compat / "CMakeLists.txt").write_text("plexrl_framework_test(frame frame frame_job)\n")
        self.pin("frame==1.2\nbase==3\n")
        self.record("frame.json", RECORD)
        self.tree.doc.write_text("above\n" + frameworks.BEGIN + frameworks.END + "below\n")
        self.write_doc()

    def pin(self, text):
        (self.tree.compat / "requirements-frame.txt").write_text("# pinned\n" + text)

    def record(self, name, record):
        (self.tree.records / name).write_text(json.dumps(record))

    def write_doc(self):
        text = self.tree.doc.read_text()
        self.tree.doc.write_text(frameworks.with_table(text, frameworks.table(self.tree.rows(), self.tree.load_records())))

    def expect(self, *patterns):
        found = list(frameworks.problems(self.tree))
        self.assertEqual(len(found), len(patterns), found)
        for line, pattern in zip(found, patterns):
            self.assertRegex(line, pattern)

    def test_a_table_says_what_was_run_and_what_not(self):
        text = self.tree.doc.read_text()
        self.assertIn("| Frame | 1.2 (base 3) | all of it | simulated | passed, 2026-11-30 |\n", text)
        self.assertIn("not run: no wheel |\n", text)
        self.assertIn("| runtime | | mix | GPU | not run: there was no GPU at hand |\n", text)
        self.assertTrue(text.startswith("above\n") and text.endswith("below\n"))
        self.expect()

    def test_a_result_of_a_gpu_is_told_with_it(self):
        self.record("gpu-9.json", REPORT)
        self.expect("table is not what the records give")
        self.write_doc()
        self.assertIn("| runtime | | mix | GPU 9, driver 600 | 1 of 2 passed, 2026-12-01 |\n", self.tree.doc.read_text())
        self.expect()

    def test_a_program_of_a_set_has_a_row_of_its_own(self):
        self.record("gpu-9.json", REPORT)
        self.write_doc()
        text = self.tree.doc.read_text()
        self.assertIn("| Torch | 2.11.0 | a loop | GPU 9, driver 600 | passed, 2026-12-01 |\n", text)
        self.assertIn("| driver | | cost | GPU 9, driver 600 | 2MiB 9 us, 2026-12-01 |\n", text)

    def test_what_was_skipped_or_had_no_time_was_not_run(self):
        results = [{"set": "torch", "name": "loop", "result": "skipped", "detail": "no PyTorch"},
                   {"set": "cudart", "name": "one", "result": "passed"},
                   {"set": "cudart", "name": "other", "result": "not run", "detail": "out of time"}]
        self.record("gpu-8.json", dict(REPORT, gpu="GPU 8", date="2026-12-02", results=results))
        self.write_doc()
        text = self.tree.doc.read_text()
        self.assertIn("| Torch | | a loop | GPU 8, driver 600 | not run: no PyTorch, 2026-12-02 |\n", text)
        self.assertIn("| 1 of 2 passed, 1 not run, 2026-12-02 |\n", text)
        # An older report that ran it says more.
        self.record("gpu-9.json", REPORT)
        self.write_doc()
        self.assertIn("| Torch | 2.11.0 | a loop | GPU 9, driver 600 | passed, 2026-12-01 |\n", self.tree.doc.read_text())

    def test_a_simulated_report_is_no_result_of_a_gpu(self):
        self.record("gpu-9.json", dict(REPORT, simulated=True))
        self.write_doc()
        self.expect("no record of a real one")

    def test_another_result_changes_the_table(self):
        self.record("frame.json", dict(RECORD, result="failed"))
        self.expect("table is not what the records give")

    def test_a_new_pin_asks_for_a_new_run(self):
        self.pin("frame==1.3\nbase==3\n")
        self.expect("frame.json: it was frame 1.2, .* has 1.3")

    def test_a_new_package_asks_for_a_new_run(self):
        self.pin("frame==1.2\nbase==3\nmore==1\n")
        self.expect("it was more None")

    def test_a_record_without_a_row(self):
        self.record("gone.json", RECORD)
        self.expect("gone.json: no row")

    def test_a_test_without_a_row(self):
        (self.tree.compat / "CMakeLists.txt").write_text("plexrl_framework_test(frame frame j)\nplexrl_framework_test(new new j)\n")
        self.expect("^new: is in one of")

    def test_records_are_taken_over(self):
        made = self.root / "made"
        made.mkdir()
        (made / "frame.json").write_text(json.dumps(dict(RECORD, date="2027-01-01")))
        (self.root / "report.json").write_text(json.dumps(REPORT))
        frameworks.take(self.tree, made)
        frameworks.take(self.tree, self.root / "report.json")
        self.assertEqual({name: record["date"] for name, record in self.tree.load_records().items()},
                         {"frame": "2027-01-01", "gpu-gpu-9": "2026-12-01"})


class ThisTree(unittest.TestCase):
    def test_every_program_on_pytorch_has_its_row(self):
        rows = [row for row in frameworks.Tree().rows() if "gpu" in row]
        self.assertEqual({row["program"] for row in rows if row["gpu"] == "torch"}, set(checks.TORCH))
        self.assertLessEqual({row["gpu"] for row in rows}, set(checks.SETS))

    def test_the_table_the_records_and_the_pinned_versions_agree(self):
        self.assertEqual(list(frameworks.problems(frameworks.Tree())), [])


if __name__ == "__main__":
    unittest.main()
