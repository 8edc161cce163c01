#!/usr/bin/env python3
"""plexrl-top in a real terminal (tmux, 80x24) with a real node manager and two jobs: what it shows, and what its keys do. Exit 0
passed, 1 failed, 77 skipped.

live: both jobs are on the screen; p pauses and resumes the marked one, n gives it a priority, / shows only some; with NO_COLOR no
colours; a manager that ends is said; q ends it with status 0 and leaves the terminal as it was.
once: --once prints the same without a terminal, and with --json one object.
"""
import json
import re
import shutil
import subprocess
import sys

from sandbox import SKIPPED, Failure, run_case, wait_until

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


class Terminal:
    """A tmux server of its own with one window of 80x24 that runs a shell command line."""

    def __init__(self, sandbox, command, **environment):
        self.tmux = ["tmux", "-S", str(sandbox.folder / "tmux.sock"), "-f", "/dev/null"]
        self.environment = sandbox.environment(LC_ALL="C.UTF-8", **environment)
        self.call("new-session", "-d", "-x", "80", "-y", "24", command)

    def call(self, *arguments):
        return subprocess.run([*self.tmux, *arguments], env=self.environment, capture_output=True, text=True, check=True).stdout

    def screen(self, *options):
        return self.call("capture-pane", "-p", *options)

    def press(self, *keys):
        self.call("send-keys", *keys)

    def wait_for(self, what, condition):
        wait_until(condition, what, seen=lambda: f"the screen:\n{self.screen()}")

    def wait_for_text(self, text):
        self.wait_for(f"{text!r} on the screen", lambda: text in self.screen())

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], env=self.environment, capture_output=True, check=False)


def start_jobs(sandbox):
    """Two that are done when their peers' word to stop comes. Returns them and what lets them end."""
    sandbox.start_manager()
    peers = [sandbox.make_peer(f"peer-{name}") for name in ("ada", "bob")]
    jobs = [sandbox.shared([sandbox.build / "tests/integration/programs/half_busy"], name, PLEXRL_TEST_PEER=peer)
            for name, peer in zip(("ada", "bob"), peers)]

    def finish():
        for job, peer in zip(jobs, peers):
            sandbox.stop_antagonist(peer)
            sandbox.wait(job)
    return finish


def job(sandbox, name):
    return next(job for job in sandbox.ask_manager("jobs")["jobs"] if job["name"] == name)


def needs_tmux(case):
    def run(sandbox):
        if shutil.which("tmux") is None:
            print("skipped: there is no tmux: install the Debian package tmux")
            sys.exit(SKIPPED)
        return case(sandbox)
    return run


def live(sandbox):
    finish = start_jobs(sandbox)
    top = str(sandbox.prefix / "bin/plexrl-top")
    terminal = Terminal(sandbox, f"{top} --interval 100ms --sort name; echo ended with $?; exec cat")
    try:
        for text in ("(simulated GPU)", "DUTY", "QUEUE", "ada", "bob", "? help"):
            terminal.wait_for_text(text)
        terminal.wait_for("colours", lambda: COLOUR.search(terminal.screen("-e")))
        terminal.press("j", "p")
        terminal.wait_for("bob paused", lambda: job(sandbox, "bob")["paused"])
        terminal.wait_for_text("bob: paused")
        terminal.press("p")
        terminal.wait_for("bob resumed", lambda: not job(sandbox, "bob")["paused"])
        terminal.press("n", "7", "7", "Enter")
        terminal.wait_for("bob's priority", lambda: job(sandbox, "bob")["priority"] == 77)
        if job(sandbox, "ada")["paused"] or job(sandbox, "ada")["priority"] != 50:
            raise Failure("the keys changed a job that was not marked")
        terminal.press("/", "a", "d", "a", "Enter")
        terminal.wait_for_text("1 of 2 jobs")
        terminal.press("Escape")
        terminal.wait_for("all jobs again", lambda: "\n2 jobs" in terminal.screen())
        finish()
        terminal.wait_for_text("0 jobs")
        sandbox.stop_manager()
        terminal.wait_for_text("asking again")
        terminal.press("q")
        terminal.wait_for_text("ended with 0")
        if "DUTY" in terminal.screen():
            raise Failure(f"the terminal is not as it was:\n{terminal.screen()}")
    finally:
        terminal.close()
    return "plexrl-top shows both jobs in 80x24, and its keys do what they say"


def plain(sandbox):
    sandbox.start_manager()
    terminal = Terminal(sandbox, f"{sandbox.prefix / 'bin/plexrl-top'}; exec cat", NO_COLOR="1")
    try:
        terminal.wait_for_text("? help")
        if COLOUR.search(terminal.screen("-e")):
            raise Failure("NO_COLOR is set, and there are colours")
    finally:
        terminal.close()
    return "without colours when NO_COLOR is set"


def once(sandbox):
    finish = start_jobs(sandbox)
    wait_until(lambda: len(sandbox.ask_manager("jobs")["jobs"]) == 2, "both jobs are there")
    answer = sandbox.tool("plexrl-top", "--once", "--json", "--sort", "name")
    if [one["name"] for one in answer["jobs"]] != ["ada", "bob"] or not answer["simulated"] or len(answer["gpus"]) != 1:
        raise Failure(f"--once --json: {json.dumps(answer)[:500]}")
    done = subprocess.run([str(sandbox.prefix / "bin/plexrl-top"), "--once"], env=sandbox.environment(), capture_output=True, text=True)
    if done.returncode != 0 or "ada" not in done.stdout or "(simulated GPU)" not in done.stdout or "\x1b" in done.stdout:
        raise Failure(f"--once ended with {done.returncode}: {done.stdout}{done.stderr}")
    done = subprocess.run([str(sandbox.prefix / "bin/plexrl-top")], env=sandbox.environment(), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 2 or "use --once" not in done.stderr:
        raise Failure(f"without a terminal it ended with {done.returncode}: {done.stderr}")
    finish()
    sandbox.stop_manager()
    done = subprocess.run([str(sandbox.prefix / "bin/plexrl-top"), "--once"], env=sandbox.environment(), capture_output=True, text=True)
    if done.returncode != 1 or "plexrl-top: " not in done.stderr:
        raise Failure(f"without a manager it ended with {done.returncode}: {done.stderr}")
    return "plexrl-top --once prints what is, as text and as JSON"


sys.exit(run_case(__doc__, {"live": needs_tmux(live), "plain": needs_tmux(plain), "once": once}, "link=4GB/s,hbm=40GB/s,ctx=4MiB"))
