#!/usr/bin/env python3
"""What the scripts of a GPU pack make of programs: same bytes or not, paged or not, skipped, failed, without an end. The pack is a
fake: its plexrl-run only starts the command, its plexrl-trace tells of as many bytes as a file says."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/validate"))
import checks  # noqa: E402
import machine as this_machine  # noqa: E402
import run  # noqa: E402
import sharing  # noqa: E402

RUN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
# Asked for the trace of OUT/sessions/NAME/TURN, it answers with the number in the file moved-TURN.
TRACE = """#!/bin/sh
folder=$(dirname "$(dirname "$3")")
echo '{"swaps": [{"moved_bytes": '"$(cat "MOVED-$(basename "$folder")")"'}]}'
"""
GPU = ("GPU 9", 1 << 37, "600", 1)


class Validate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="plexrl-validate-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script("bin/plexrl-run", RUN)
        self.script("bin/plexrl-trace", TRACE.replace("MOVED", str(self.folder / "moved")))
        for turn, moved in enumerate((7, 7)):
            self.moved(turn, moved)
        for name, value in (("PACK", self.folder), ("used_bytes", lambda: 0)):
            patch = mock.patch.object(sharing, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        # Sockets of the sessions, which nobody opens here.
        patch = mock.patch.object(tempfile, "tempdir", folder.name)
        patch.start()
        self.addCleanup(patch.stop)
        self.machine = this_machine.Machine(GPU, self.folder / "out")

    def script(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def moved(self, turn, count):
        (self.folder / f"moved-{turn}").write_text(str(count))

    def share(self, text, turns=2):
        program = self.script("program", "#!/bin/sh\n" + text)
        return sharing.check_sharing(self.machine, "program", [[program, turn] for turn in range(turns)], 1 << 30, {"MORE": "more"})

    def test_a_program_that_prints_the_same_and_was_paged_passes(self):
        result = self.share("echo version: 3.1 >&2; echo $MORE $1")
        self.assertEqual((result["result"], result["moved_bytes"], result["version"]), ("passed", 7, "3.1"))

    def test_other_bytes_when_shared_fail(self):
        result = self.share("echo ${PLEXRL_SOCKET:+shared}")
        self.assertEqual((result["result"], result["detail"].split(";")[0]), ("failed", "DIFFERENT output from alone"))

    def test_a_failure_when_shared_is_told_with_its_status_and_words(self):
        result = self.share("[ -z $PLEXRL_SOCKET ] || { echo no memory >&2; exit 3; }")
        self.assertEqual(result["result"], "failed")
        self.assertRegex(result["detail"], "^exit status 3: no memory")

    def test_a_failure_alone_ends_it(self):
        self.assertRegex(self.share("echo no driver >&2; exit 1")["detail"], "^alone: no driver")

    def test_what_nothing_was_paged_of_is_run_again_longer(self):
        self.moved(0, 0)
        self.assertEqual(self.share("echo $1")["result"], "passed")
        self.moved(1, 0)
        result = self.share("echo $1")
        self.assertEqual((result["result"], result["detail"]), ("failed", sharing.NOTHING_PAGED))

    def test_a_program_may_skip_with_its_reason(self):
        result = self.share("echo version: 2.1 >&2; echo no compiler >&2; exit 77")
        self.assertEqual((result["result"], result["detail"]), ("skipped", "no compiler"))

    def test_a_program_without_an_end_is_stopped_with_its_children(self):
        told = self.folder / "child"

        def command_s():
            while not told.exists() or not told.read_text().endswith("\n"):
                time.sleep(0.01)
            return 0.1

        self.machine.command_s = command_s
        result = run.run_check(self.machine, "program", lambda: self.share(f"sleep 100000 & echo $! >{told}; wait"))
        self.assertEqual(result["result"], "failed")
        self.assertRegex(result["detail"], "no end after")
        status = pathlib.Path("/proc", told.read_text().strip(), "status")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # gone, or a zombie where nobody waits for orphans
            while "State:\tZ" not in status.read_text():
                time.sleep(0.01)

    def test_who_never_begins_is_stopped(self):
        for text in ("exec sleep 100000", "echo no driver >&2; exit 1"):
            self.machine.command_s = lambda: 0.1 if "sleep" in text else 100
            job = sharing.start([self.script("silent", "#!/bin/sh\n" + text)], None)
            with self.assertRaisesRegex(sharing.NoEnd, "silent ended or hung" if "sleep" in text else "no driver"):
                sharing.begun(self.machine, job)
            self.assertIsNotNone(job.wait())

    def test_a_run_that_left_something_out_is_no_success(self):
        for only, detail, status in (("rlvr", "passed", 0), ("rlvr", "not run", 1), ("rlvr", "failed", 1), ("rlvr", "skipped", 0)):
            with mock.patch.object(sys, "argv", ["run", "--out", str(self.folder / "out"), "--only", only]), \
                    mock.patch.object(this_machine, "find_gpu", lambda: GPU), contextlib.redirect_stdout(io.StringIO()), \
                    mock.patch.object(run, "run_check", lambda _, name, __, it=detail: {"name": name, "result": it, "detail": ""}):
                self.assertEqual(run.main(), status, detail)

    def test_a_check_that_is_not_there_is_refused(self):
        with mock.patch.object(sys, "argv", ["run", "--out", str(self.folder / "out"), "--only", "torch/gpro"]), \
                mock.patch.object(this_machine, "find_gpu", lambda: GPU), \
                contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit) as end:
            run.main()
        self.assertEqual(end.exception.code, 2)
        self.assertIn("torch/gpro: there is no such check", errors.getvalue())

    def test_the_gpu_is_the_one_that_programs_get(self):
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=" 3, GPU-1a2b"):
            self.assertEqual(this_machine.visible_gpus(), ["3", "GPU-1a2b"])
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):
            self.assertEqual(this_machine.visible_gpus(), [])

    def test_what_there_is_no_time_for_is_not_run(self):
        machine = this_machine.Machine(GPU, self.folder / "out", time_limit_s=run.LAST_START_S - 1)
        self.assertEqual(run.run_check(machine, "late", self.fail), {"name": "late", "result": "not run", "detail": "out of time"})

    def test_the_newest_library_is_found(self):
        for name in ("libthing.so.9", "libthing.so.12", "libthing.so.12.4.1", "libthing.so"):
            (self.folder / name).touch()
        with mock.patch.dict(os.environ, LD_LIBRARY_PATH=str(self.folder)):
            self.assertEqual(this_machine.find_library("thing", sys.executable), str(self.folder / "libthing.so.12"))
            self.assertIsNone(this_machine.find_library("nothing", sys.executable))

    def test_a_pytorch_that_is_missing_or_sees_no_gpu_is_named(self):
        for text, reason in (("raise ImportError('no wheel')", "^no PyTorch in .*: no wheel$"),
                             ("__version__ = '2.9'\nclass cuda:\n    is_available = staticmethod(lambda: False)",
                              "^PyTorch 2.9 in .* finds no GPU that it can use$"),
                             ("class cuda:\n    is_available = staticmethod(lambda: True)", None)):
            (self.folder / "torch.py").write_text(text)
            with mock.patch.dict(os.environ, PYTHONPATH=str(self.folder), PYTHONDONTWRITEBYTECODE="1"):
                found = this_machine.why_no_torch(sys.executable)
            self.assertRegex(found, reason) if reason else self.assertIsNone(found)

    def test_every_set_has_its_checks(self):
        listed = [(kind, name) for kind, name, _ in checks.checks(self.machine)]
        self.assertEqual(listed[:2], [("rlvr", "rlvr"), ("torch", "grpo")])
        self.assertEqual({kind for kind, _ in listed} | {"integration"}, set(checks.SETS))
        self.assertEqual([name for kind, name in listed if kind == "torch"], list(checks.TORCH))

    def test_a_wrong_set_is_refused_with_the_right_ones(self):
        with mock.patch.object(sys, "argv", ["run", "--out", str(self.folder / "out"), "--only", "pytorch/grpo"]), \
                contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit) as end:
            run.main()
        self.assertEqual(end.exception.code, 2)
        self.assertIn("rlvr, torch, cudart", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
