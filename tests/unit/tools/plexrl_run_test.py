"""plexrl-run from the outside: exit codes, signals, job control, and its talk with a manager (a fake one).

Usage: plexrl_run_test.py PLEXRL_RUN FAKE_PRELOAD [unittest arguments]
Every test works in a tree of its own that looks like an installation. There are no time limits but one that only a hang
reaches.
"""

import ctypes.util
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import fake_manager
from fake_manager import FakeManager

HANG_S = 600
HERE = pathlib.Path(__file__).resolve().parent
RUN, PRELOAD = sys.argv[1:3]

# A job that says what happens to it, one word a line: "ready", then the names of signals that reach it. It ends with
# status 5 on SIGTERM and SIGQUIT, after a line of counts. It waits with sigwait, because Python runs a handler late, or
# never, when the signal comes between the last instruction and signal.pause().
TALKATIVE = r"""
import json, os, signal
counts = {}
told = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGCONT, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, told)
os.write(1, b"ready\n")
while True:
    number = signal.sigwait(told)
    name = signal.Signals(number).name
    counts[name] = counts.get(name, 0) + 1
    os.write(1, (name + "\n").encode())
    if number in (signal.SIGTERM, signal.SIGQUIT):
        os.write(1, (json.dumps(counts) + "\n").encode())
        os._exit(5)
"""


def job(code):
    return [sys.executable, "-c", code]


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="plexrl-run-"))
        self.addCleanup(self.remove)
        for folder in ("bin", "lib/plexrl/simgpu", "run", "state"):
            (self.root / folder).mkdir(parents=True)
        self.run_path = self.root / "bin/plexrl-run"
        shutil.copy2(RUN, self.run_path)
        self.library = self.root / "lib/plexrl/libplexrl.so"
        shutil.copy2(PRELOAD, self.library)
        (self.root / "lib/plexrl/simgpu/libcuda.so.1").touch()
        self.socket = str(self.root / "run/nodemgr.sock")
        self.manager_log = self.root / "manager.log"
        self.manager_log.touch()
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("PLEXRL_") and name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        self.env.update(PLEXRL_SOCKET=self.socket, XDG_STATE_HOME=str(self.root / "state"),
                        XDG_RUNTIME_DIR=str(self.root / "run"), FAKE_MANAGER_LOG=str(self.manager_log))

    def remove(self):
        while self.root.exists():  # a manager that is on its way to its end may write a line more
            shutil.rmtree(self.root, ignore_errors=True)

    def manager(self, **arguments):
        manager = FakeManager(self.socket, **arguments)
        self.addCleanup(manager.die)
        return manager

    def start(self, *arguments, **options):
        options.setdefault("env", self.env)
        process = subprocess.Popen([str(self.run_path), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True, **options)

        def stop():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            process.stdout.close()
            process.stderr.close()
        self.addCleanup(stop)
        return process

    def finish(self, process):
        """What is left of its output, once it has ended. (communicate() would lose what readline() has buffered; the
        outputs are far smaller than a pipe, so nothing blocks.)"""
        status = process.wait(timeout=HANG_S)
        return status, process.stdout.read(), process.stderr.read()

    def run_it(self, *arguments, **options):
        return self.finish(self.start(*arguments, **options))

    def expect_line(self, process, line):
        self.assertEqual(process.stdout.readline().rstrip("\n"), line)


class ExitStatus(Tree):
    def setUp(self):
        super().setUp()
        self.manager()

    def test_the_jobs_status_is_returned_and_nothing_is_printed(self):
        self.assertEqual(self.run_it("--", "sh", "-c", "exit 7"), (7, "", ""))

    def test_a_job_killed_by_signal_n_gives_128_plus_n(self):
        self.assertEqual(self.run_it("--", "sh", "-c", "kill -9 $$"), (137, "", ""))

    def test_a_command_that_is_not_there_gives_127(self):
        status, _, err = self.run_it("--", "no-such-command")
        self.assertEqual((status, err), (127, "plexrl-run: no-such-command: command not found\n"))

    def test_a_file_that_is_not_executable_gives_126(self):
        status, _, err = self.run_it("--", "/etc/passwd")
        self.assertEqual(status, 126)
        self.assertIn("/etc/passwd", err)

    def test_wrong_usage_gives_125_and_the_nearest_option(self):
        status, _, err = self.run_it("--prority", "5", "--", "true")
        self.assertEqual(status, 125)
        self.assertIn("did you mean --priority?", err)

    def test_what_is_not_built_is_refused_by_name(self):
        status, _, err = self.run_it("--cluster", "a:1", "--nodes", "2", "--", "true")
        self.assertEqual(status, 125)
        self.assertIn("--nodes 2: jobs over several nodes can't be placed yet", err)

    def test_values_that_cant_be_read_are_quoted(self):
        for option, value in (("--memory", "8GoB"), ("--max-wait", "soon"), ("--priority", "101"), ("--priority", "5x")):
            status, _, err = self.run_it(option, value, "--", "true")
            self.assertEqual(status, 125, option)
            self.assertIn(value, err)
            self.assertIn(option, err)

    def test_help_and_version_go_to_stdout(self):
        for option, word in (("--help", "Example"), ("--version", "plexrl-run ")):
            status, out, err = self.run_it(option)
            self.assertEqual((status, err), (0, ""))
            self.assertIn(word, out)


class Environment(Tree):
    SHOW = "import json, os; print(json.dumps(dict(os.environ)))"

    def setUp(self):
        super().setUp()
        self.fake = self.manager()

    def environment(self, *options, command=None, env=None):
        status, out, err = self.run_it(*options, "--", *(command or job(self.SHOW)), env=env or self.env)
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_the_job_gets_its_identity_and_the_preload_in_front(self):
        older = self.root / "older/libplexrl.so"
        older.parent.mkdir()
        shutil.copy2(PRELOAD, older)
        env = self.environment("--name", "ppo", "--team", "red", "--priority", "70", "--memory", "256MiB",
                               "--max-wait", "30s",
                               env={**self.env, "LD_PRELOAD": f"{older} {self.library}"})
        self.assertEqual(env["PLEXRL_JOB_ID"], fake_manager.JOB_ID_TEXT)
        self.assertEqual(env["PLEXRL_JOB_SECRET"], fake_manager.SECRET_TEXT)
        self.assertEqual((env["PLEXRL_JOB_NAME"], env["PLEXRL_TEAM"], env["PLEXRL_PRIORITY"]), ("ppo", "red", "70"))
        self.assertEqual(env["PLEXRL_MEMORY"], str(fake_manager.PROMISED))
        self.assertEqual(env["PLEXRL_EXPORT"], "job")
        self.assertEqual(env["PLEXRL_SOCKET"], self.socket)
        self.assertEqual(env["LD_PRELOAD"], str(self.library))
        self.assertNotIn("LD_LIBRARY_PATH", env)
        kind, asked = self.fake.messages.get(timeout=HANG_S)
        self.assertEqual(kind, fake_manager.SUBMIT)
        self.assertEqual(asked, dict(name="ppo", team="red", priority=70, flags=0, memory=256 << 20,
                                     max_wait=30 * 10**9, slowdown=0, gpus=0))

    def test_the_name_is_the_commands_base_name_by_default(self):
        self.environment()
        _, asked = self.fake.messages.get(timeout=HANG_S)
        self.assertEqual(asked["name"], os.path.basename(sys.executable))

    def test_other_preloads_stay(self):
        other = self.root / "other.so"
        shutil.copy2(PRELOAD, other)
        env = self.environment(env={**self.env, "LD_PRELOAD": str(other)})
        self.assertEqual(env["LD_PRELOAD"], f"{self.library}:{other}")

    def test_a_nested_run_is_a_job_of_its_own(self):
        env = self.environment("--name", "outer", "--memory", "4MiB",
                               command=[str(self.run_path), "--name", "inner", "--", *job(self.SHOW)])
        kinds, asked = zip(*(self.fake.messages.get(timeout=HANG_S) for _ in range(3)))
        self.assertEqual(kinds, (fake_manager.SUBMIT, fake_manager.PARENT, fake_manager.SUBMIT))
        self.assertEqual([asked[0]["name"], asked[2]["name"]], ["outer", "inner"])
        self.assertEqual(asked[1]["job"], fake_manager.JOB_ID)
        self.assertEqual(asked[2]["memory"], 0)  # the outer job's promise is not the inner one's wish
        self.assertEqual(env["LD_PRELOAD"], str(self.library))

    def test_a_nested_run_with_join_is_part_of_the_job(self):
        env = self.environment("--name", "outer", command=[str(self.run_path), "--join", "--", *job(self.SHOW)])
        self.assertEqual(env["PLEXRL_JOB_NAME"], "outer")
        self.assertEqual(self.fake.messages.get(timeout=HANG_S)[0], fake_manager.SUBMIT)
        kind, asked = self.fake.messages.get(timeout=HANG_S)
        self.assertEqual((kind, asked["job"], asked["secret"]), (fake_manager.JOIN, fake_manager.JOB_ID, fake_manager.SECRET))
        self.assertTrue(self.fake.messages.empty())

    def test_join_outside_of_a_job_fails(self):
        status, _, err = self.run_it("--join", "--", "true")
        self.assertEqual(status, 125)
        self.assertIn("not inside a job", err)

    def test_join_of_a_job_that_the_manager_does_not_know_runs_unshared_or_not_at_all(self):
        self.fake.answer = lambda kind, asked: [fake_manager.error("no such job here")]
        env = {**self.env, "PLEXRL_JOB_ID": "a" * 32, "PLEXRL_JOB_SECRET": "b" * 32, "LD_PRELOAD": str(self.library)}
        show = "import os; print(os.environ.get('LD_PRELOAD'), os.environ.get('PLEXRL_JOB_ID'))"
        self.assertEqual(self.run_it("--join", "--", *job(show), env=env),
                         (0, "None None\n", "plexrl-run: running unshared: --join: no such job here\n"))
        self.assertEqual(self.run_it("--join", "--require", "--", *job(show), env=env),
                         (125, "", "plexrl-run: --require: --join: no such job here\n"))
        env["PLEXRL_JOB_ID"] = "job 1"
        status, out, err = self.run_it("--join", "--require", "--", *job(show), env=env)
        self.assertEqual((status, out), (125, ""))
        self.assertIn("PLEXRL_JOB_ID is not 32 hex digits", err)

    def test_the_simulated_gpu_is_found_first_only_with_its_option(self):
        env = self.environment("--simgpu=name=x,gpus=2", env={**self.env, "LD_LIBRARY_PATH": "/opt/lib"})
        self.assertEqual(env["PLEXRL_SIMGPU"], "name=x,gpus=2")
        self.assertEqual(env["LD_LIBRARY_PATH"], f"{self.root}/lib/plexrl/simgpu:/opt/lib")

    def test_an_option_after_the_command_is_the_commands(self):
        status, out, _ = self.run_it("echo", "--name", "x", "--", "--help")
        self.assertEqual((status, out), (0, "--name x -- --help\n"))

    def test_signal_mask_and_ignored_signals_are_inherited_as_they_were(self):
        code = "print([line for line in open('/proc/self/status') if line[:6] in ('SigBlk', 'SigIgn')])"

        def as_nohup():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        bare = subprocess.run(job(code), preexec_fn=as_nohup, capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.run_it("--", *job(code), preexec_fn=as_nohup), (0, bare, ""))

    def test_the_job_has_no_descriptor_of_ours(self):
        code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        bare = subprocess.run(job(code), capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.run_it("--", *job(code))[1], bare)


class Unshared(Tree):
    def expect_unshared(self, word, *options, command=("sh", "-c", "echo preload=$LD_PRELOAD id=$PLEXRL_JOB_ID"),
                        env=None):
        env = {**(env or self.env), "PLEXRL_JOB_ID": "stale", "LD_PRELOAD": str(self.library)}
        status, out, err = self.run_it(*options, "--", *command, env=env)
        self.assertEqual((status, out), (0, "preload= id=\n"))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("plexrl-run: running unshared: ", err)
        self.assertIn(word, err)
        status, out, err = self.run_it("--require", *options, "--", *command, env=env)
        self.assertEqual((status, out), (125, ""))
        self.assertIn(word, err)

    def test_without_a_driver(self):
        if ctypes.util.find_library("cuda"):
            self.skipTest("this machine has a CUDA driver")
        self.expect_unshared("no CUDA driver")

    def test_when_the_manager_speaks_another_version(self):
        self.manager(answer=lambda kind, asked: [fake_manager.error("version 1 is too old: update PlexRL")])
        self.expect_unshared("version 1 is too old")

    def test_when_the_library_is_missing(self):
        os.unlink(self.library)
        env = dict(self.env)
        status, out, err = self.run_it("--", "echo", "x", env=env)
        self.assertEqual((status, out), (0, "x\n"))
        self.assertIn("libplexrl.so is missing", err)

    def test_when_the_socket_may_not_be_used(self):
        if os.geteuid() == 0:
            self.skipTest("root may use every socket")
        self.manager()
        os.chmod(self.socket, 0)
        self.expect_unshared("Permission denied")

    def test_when_a_manager_cant_be_started_its_reason_is_given(self):
        self.install_manager()
        self.env["FAKE_MANAGER_FAILS"] = "1"
        self.expect_unshared("belongs to another manager", "--simgpu")

    def install_manager(self):
        script = self.root / "bin/plexrl-nodemgr"
        script.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE}/fake_manager.py \"$@\"\n")
        script.chmod(0o755)

    def test_a_folder_that_others_can_write_to_is_not_used(self):
        self.install_manager()
        os.chmod(self.root / "run", 0o777)
        self.expect_unshared("only you can write to", "--simgpu")

    def test_another_users_folder_is_named_with_its_owner_and_not_used(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a folder of another user")
        theirs = self.root / "theirs"
        theirs.mkdir(mode=0o755)
        (theirs / "plexrl/simgpu-default").mkdir(parents=True)
        os.chown(theirs / "plexrl", 54321, 54321)
        listener = FakeManager(str(theirs / "plexrl/simgpu-default/nodemgr.sock"))  # whoever that is
        self.addCleanup(listener.die)
        env = {**self.env, "XDG_RUNTIME_DIR": str(theirs)}
        del env["PLEXRL_SOCKET"]
        self.expect_unshared(f"{theirs}/plexrl belongs to uid 54321: have it removed, or set XDG_RUNTIME_DIR", "--simgpu",
                             env=env)

    def test_disabled_by_the_user_it_says_nothing(self):
        env = {**self.env, "PLEXRL_DISABLE": "1"}
        self.assertEqual(self.run_it("--", "sh", "-c", "echo $PLEXRL_JOB_ID; exit 3", env=env), (3, "\n", ""))
        self.assertEqual(self.run_it("--require", "--", "true", env=env)[0], 125)

    def test_a_set_user_id_program_is_named(self):
        self.manager()
        program = self.root / "suid"
        shutil.copy2("/bin/true", program)
        if os.geteuid() != 0:
            self.skipTest("only root can make a file of another user")
        os.chown(program, 65534, 65534)
        program.chmod(0o4755 | stat.S_ISUID)
        status, _, err = self.run_it("--", str(program))
        self.assertEqual(status, 0)
        self.assertIn("set-user-ID", err)
        self.assertEqual(self.run_it("--require", "--", str(program))[0], 125)

    def test_a_bad_specification_of_the_simulated_gpu_is_quoted_and_nothing_runs(self):
        for spec in ("nome=x", "memory=banana"):
            status, out, err = self.run_it("--simgpu=" + spec, "--", "echo", "ran")
            self.assertEqual((status, out), (125, ""))
            self.assertIn("--simgpu: ", err)
            self.assertIn(spec.split("=")[1] if "memory" in spec else "nome", err)

    def test_without_the_simulated_gpu_asking_for_it_fails(self):
        os.unlink(self.root / "lib/plexrl/simgpu/libcuda.so.1")
        status, _, err = self.run_it("--simgpu", "--", "true")
        self.assertEqual(status, 125)
        self.assertIn("no simulated GPU", err)


class Admission(Tree):
    def test_a_queued_job_says_why_once_and_runs_when_admitted(self):
        text = "needs 12 GiB, 8 GiB are free: lower --memory or wait"
        fake = self.manager(answer=lambda kind, asked: [fake_manager.notice(fake_manager.QUEUED, text)] * 2 +
                            [fake_manager.admitted()])
        status, out, err = self.run_it("--", "echo", "ran")
        self.assertEqual((status, out, err), (0, "ran\n", f"plexrl-run: waiting: {text}\n"))
        self.assertEqual(fake.messages.get(timeout=HANG_S)[1]["flags"], 0)

    def test_ctrl_c_ends_a_queued_job(self):
        text = "no room"
        self.manager(answer=lambda kind, asked: [fake_manager.notice(fake_manager.QUEUED, text)])
        process = self.start("--", "echo", "ran")
        self.assertIn(text, process.stderr.readline())
        os.killpg(process.pid, signal.SIGINT)
        status, out, _ = self.finish(process)
        self.assertEqual((status, out), (-signal.SIGINT, ""))

    def test_a_refused_job_does_not_run(self):
        text = "12 GiB will never fit into 8 GiB"
        fake = self.manager(answer=lambda kind, asked: [fake_manager.notice(fake_manager.REFUSED, text)])
        status, out, err = self.run_it("--no-wait", "--", "echo", "ran")
        self.assertEqual((status, out, err), (125, "", f"plexrl-run: refused: {text}\n"))
        self.assertEqual(fake.messages.get(timeout=HANG_S)[1]["flags"], 1)


class Signals(Tree):
    def setUp(self):
        super().setUp()
        self.fake = self.manager()
        self.process = self.start("--", *job(TALKATIVE))
        self.expect_line(self.process, "ready")

    def end(self):
        """SIGTERM to plexrl-run alone; returns the job's counts."""
        self.process.send_signal(signal.SIGTERM)
        self.expect_line(self.process, "SIGTERM")
        status, out, err = self.finish(self.process)
        self.assertEqual((status, err), (5, ""))
        return json.loads(out)

    def child(self):
        own = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in map(int, own.read_text().split()):
            if "plexrl" not in pathlib.Path(f"/proc/{pid}/comm").read_text():
                return pid
        raise AssertionError("no job")

    def test_a_signal_to_the_group_reaches_the_job_once(self):
        os.killpg(self.process.pid, signal.SIGINT)
        self.expect_line(self.process, "SIGINT")
        self.assertEqual(self.end(), {"SIGINT": 1, "SIGTERM": 1})

    def test_a_signal_to_plexrl_run_alone_is_forwarded_once(self):
        self.process.send_signal(signal.SIGUSR1)
        self.expect_line(self.process, "SIGUSR1")
        self.assertEqual(self.end(), {"SIGUSR1": 1, "SIGTERM": 1})

    def test_the_manager_is_told_of_sigterm_and_of_nothing_else(self):
        self.assertEqual(self.fake.messages.get(timeout=HANG_S)[0], fake_manager.SUBMIT)
        os.killpg(self.process.pid, signal.SIGINT)
        self.expect_line(self.process, "SIGINT")
        self.end()
        self.assertEqual(self.fake.messages.get(timeout=HANG_S), (fake_manager.EXITING, {}))
        self.fake.hangups.get(timeout=HANG_S)
        self.assertTrue(self.fake.messages.empty())

    def test_both_kinds_in_turn(self):
        for _ in range(3):
            os.killpg(self.process.pid, signal.SIGUSR1)
            self.expect_line(self.process, "SIGUSR1")
            self.process.send_signal(signal.SIGINT)
            self.expect_line(self.process, "SIGINT")
        self.assertEqual(self.end(), {"SIGUSR1": 3, "SIGINT": 3, "SIGTERM": 1})

    def test_a_job_stopped_and_continued_by_its_own_id_goes_on(self):
        child = self.child()
        os.kill(child, signal.SIGSTOP)
        os.kill(child, signal.SIGCONT)
        self.expect_line(self.process, "SIGCONT")
        self.assertEqual(self.end(), {"SIGCONT": 1, "SIGTERM": 1})

    def test_the_job_survives_plexrl_run_and_the_anchor_closes(self):
        child = self.child()
        self.process.kill()
        self.fake.hangups.get(timeout=HANG_S)
        os.kill(child, signal.SIGTERM)
        self.expect_line(self.process, "SIGTERM")
        self.expect_line(self.process, '{"SIGTERM": 1}')


class JobControl(Tree):
    def setUp(self):
        super().setUp()
        self.manager()

    def on_a_terminal(self, *options, before=None, **more):
        """What a person sees who types Ctrl-Z, fg, Ctrl-C and Ctrl-\\; the shell is mini_shell.py."""
        more.setdefault("stdin", subprocess.DEVNULL)
        said = subprocess.run([sys.executable, str(HERE / "mini_shell.py"), *options, str(self.run_path), "--",
                               *job(TALKATIVE)], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=HANG_S, preexec_fn=before, **more)
        self.assertEqual(said.stdout.splitlines(), [
            "ready", "shell: stopped", "SIGCONT", "SIGINT", "SIGQUIT",
            '{"SIGCONT": 1, "SIGINT": 1, "SIGQUIT": 1}', "shell: exited 5"], said.stderr)

    def test_ctrl_z_and_fg_on_a_terminal(self):
        self.on_a_terminal()

    def test_whatever_the_shells_parent_ignored_or_blocked(self):
        """As below nohup, or in the background of a script."""
        def before():
            os.setsid()
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN,
                           signal.SIGTTOU):
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT})
        self.on_a_terminal(before=before)

    def test_without_standard_input(self):
        self.on_a_terminal(stdin=None, before=lambda: os.close(0))

    def test_signals_that_plexrl_run_inherits_ignored_change_nothing(self):
        self.on_a_terminal("--ignore=SIGCHLD,SIGTTIN,SIGTTOU,SIGHUP,SIGPIPE")


class StoppedGroup(Tree):
    """`kill -STOP -PGID` stops plexrl-run and its helper too; `kill -CONT PID` continues plexrl-run alone."""

    def test_continuing_plexrl_run_continues_the_job(self):
        self.manager()
        process = self.start("--", *job(TALKATIVE))
        self.expect_line(process, "ready")
        os.killpg(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        os.kill(process.pid, signal.SIGCONT)
        self.expect_line(process, "SIGCONT")
        process.send_signal(signal.SIGTERM)
        self.expect_line(process, "SIGTERM")
        self.assertEqual(self.finish(process)[0], 5)


class Supervision(Tree):
    def setUp(self):
        super().setUp()
        Unshared.install_manager(self)
        self.options = ["--simgpu=name=t"]

    def log(self):
        return self.manager_log.read_text().splitlines()

    def starts(self):
        return [dict(word.split("=", 1) for word in line.split()[1:]) for line in self.log() if
                line.startswith("start")]

    def test_a_manager_is_started_apart_from_the_job_and_ends_with_it(self):
        self.assertEqual(self.run_it(*self.options, "--", "sh", "-c", "exit 4"), (4, "", ""))
        (start,) = self.starts()
        self.assertEqual(start["stdin"], "/dev/null")
        self.assertEqual(start["stdout"], str(self.root / "state/plexrl/simgpu-t/nodemgr.log"))
        self.assertEqual((start["secret"], start["preload"]), ("None", "None"))
        self.assertEqual(start["library_path"], f"{self.root}/lib/plexrl/simgpu")
        self.assertEqual(stat.S_IMODE(os.stat(self.root / "state/plexrl/simgpu-t").st_mode), 0o700)

    def test_managers_of_simulated_gpus_have_folders_of_their_own(self):
        del self.env["PLEXRL_SOCKET"]
        status, out, err = self.run_it(*self.options, "--", "sh", "-c", "echo $PLEXRL_SOCKET")
        self.assertEqual((status, out, err), (0, f"{self.root}/run/plexrl/simgpu-t/nodemgr.sock\n", ""))
        self.assertEqual(stat.S_IMODE(os.stat(self.root / "run/plexrl/simgpu-t").st_mode), 0o700)

    def test_many_at_once_start_one_manager(self):
        hold = self.root / "hold"
        os.mkfifo(hold)
        keeper = os.open(hold, os.O_RDWR)
        processes = [self.start(*self.options, "--", "sh", "-c", f"echo up; read line < {hold}") for _ in range(6)]
        for process in processes:
            self.expect_line(process, "up")
        os.write(keeper, b"go\n" * len(processes))
        for process in processes:
            self.assertEqual(self.finish(process), (0, "", ""))
        os.close(keeper)
        self.assertEqual(len(self.starts()), 1)

    def test_a_killed_manager_is_restarted_and_told_which_job_this_is(self):
        process = self.start(*self.options, "--name", "ppo", "--", *job(TALKATIVE))
        self.expect_line(process, "ready")
        os.kill(int(self.starts()[0]["pid"]), signal.SIGKILL)
        while f"message {fake_manager.RESUME:#x} ppo" not in self.log():
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        self.assertEqual(len(self.starts()), 2)
        process.terminate()
        self.assertEqual(self.finish(process)[0], 5)

    def test_a_manager_that_comes_back_by_itself_is_found(self):
        os.unlink(self.root / "bin/plexrl-nodemgr")
        first = self.manager()
        process = self.start(*self.options, "--", *job(TALKATIVE))
        self.expect_line(process, "ready")
        first.messages.get(timeout=HANG_S)
        first.die()
        self.assertIn("the node manager has gone", process.stderr.readline())
        second = self.manager()
        kind, asked = second.messages.get(timeout=HANG_S)
        self.assertEqual((kind, asked["job"], asked["secret"]),
                         (fake_manager.RESUME, fake_manager.JOB_ID, fake_manager.SECRET))
        process.terminate()
        self.assertEqual(self.finish(process)[0], 5)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
