#!/usr/bin/env python3
"""Two RL jobs share a simulated GPU that holds one of them; something is killed or stopped; the others must not notice.

After their first step both jobs keep the GPU busy, and so take it from each other again and again, until the deed is done: the
moment or the passage that a case waits for comes, however slow or fast the machine is.

`run_fault.py CASE --build DIR`: CASE is a function below without `case_`, or `point:NAME` for a named point in a test build of the
preload or of the manager (--prefix). Exit 0 passed, 1 failed.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import post_mortem  # noqa: E402
import prefix  # noqa: E402
from sandbox import PATIENCE_S, SKIPPED, Failure, Sandbox  # noqa: E402

SEEDS = {"ada": 1, "bob": 2}
POLL_S = 0.02


class Jobs:
    """Two rlvr jobs in a sandbox, and what they print alone. They go on to their end when `release` is called."""

    def __init__(self, sandbox, steps=5):
        self.sandbox = sandbox
        self.steps = steps
        self.expected = {name: sandbox.wait(sandbox.alone(self.command(name, hold=False), f"{name}-alone")) for name in SEEDS}
        self.process = {}
        self.released = sandbox.folder / "released"

    def command(self, name, hold=True):
        times = ["--rollout-ms", 80, "--tool-ms", 60, "--train-ms", 60, "--until", self.released] if hold else []
        return [self.sandbox.build / "tests/bin/rlvr", "--name", name, "--seed", SEEDS[name], "--steps", self.steps,
                "--state-bytes", 100 << 20, *times]

    def start(self, name, options=(), **more):
        self.process[name] = self.sandbox.shared(self.command(name), name, options, **more)

    def release(self):
        self.released.touch()

    def expect_finished(self, *names):
        """Released, they end with status 0 and print what they print alone."""
        self.release()
        for name in names:
            output = self.sandbox.wait(self.process[name])
            if output != self.expected[name]:
                raise Failure(f"{name} printed something else than alone:\n{output.decode()}")

    # ---- what the manager says

    def states(self):
        """name -> (state, pids), of the jobs that the manager knows; empty while there is no manager."""
        try:
            jobs = self.sandbox.tool("plexrl-ctl", "jobs", "--json")["jobs"]
        except Failure:
            return {}
        return {job["name"]: (job["state"], [pid for gang in job["gangs"] for pid in gang["pids"]]) for job in jobs}

    def wait_for(self, condition, what):
        """Polls until condition(states) is true; returns those states. Fails when a job ends first."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            states = self.states()
            if condition(states):
                return states
            ended = [name for name, process in self.process.items() if process.poll() is not None]
            if ended:
                raise Failure(f"{', '.join(ended)} ended before {what}: {states}")
            time.sleep(POLL_S)
        raise Failure(f"no {what} in {PATIENCE_S} s: {self.states()}")

    def waits_for(self, name):
        """What the manager says that the job waits for; "" when it does not wait."""
        told = [gang["waits_for"] or "" for job in self.sandbox.tool("plexrl-ctl", "jobs", "--json")["jobs"]
                if job["name"] == name for gang in job["gangs"]]
        return " ".join(told)

    def one_runs_one_waits(self):
        """(name and pids of the one that runs, name and pids of the one that waits)"""
        def found(states):
            return sorted(state for state, _ in states.values()) == ["running", "waiting"]
        states = self.wait_for(found, "a moment in which one runs and the other waits")
        by_state = {state: (name, pids) for name, (state, pids) in states.items()}
        return by_state["running"], by_state["waiting"]


class Skipped(Exception):
    """Why a case can't be run here."""


def start_both(jobs):
    for name in SEEDS:
        jobs.start(name)


# ---- cases

def case_job_killed(jobs):
    """A job dies while it holds the GPU: the other one gets it."""
    jobs.sandbox.start_manager()
    start_both(jobs)
    (holder, pids), (waiter, _) = jobs.one_runs_one_waits()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    jobs.sandbox.wait(jobs.process[holder], expected=128 + signal.SIGKILL)
    jobs.expect_finished(waiter)


def case_waiter_killed(jobs):
    """A job dies while it waits at the gate: the holder goes on."""
    jobs.sandbox.start_manager()
    start_both(jobs)
    (holder, _), (waiter, pids) = jobs.one_runs_one_waits()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    jobs.sandbox.wait(jobs.process[waiter], expected=128 + signal.SIGKILL)
    jobs.expect_finished(holder)


def case_manager_killed(jobs):
    """The manager that plexrl-run started dies while one job runs and one waits; plexrl-run starts another; both finish."""
    start_both(jobs)
    jobs.one_runs_one_waits()
    status = jobs.sandbox.tool("plexrl-ctl", "status", "--json")
    os.kill(status["manager"]["pid"], signal.SIGKILL)
    jobs.expect_finished(*SEEDS)


def case_manager_killed_while_queued(jobs):
    """bob's promise finds no room beside ada's; managers die again and again meanwhile: bob stays queued, and both finish."""
    small = {"PLEXRL_HOST_BUDGET": "2MiB"}
    jobs.start("ada", **small)
    jobs.wait_for(lambda states: "ada" in states, "ada")
    jobs.start("bob", **small)
    for _ in range(7):  # more often than plexrl-run tries a manager that never took the job
        jobs.wait_for(lambda states: states.get("bob", ("", []))[0] == "queued" and "ada" in states, "bob in the queue beside ada")
        os.kill(jobs.sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"], signal.SIGKILL)
    jobs.expect_finished(*SEEDS)


def case_run_killed(jobs):
    """plexrl-run dies; its job goes on to the end, and so does the other."""
    jobs.sandbox.start_manager()
    start_both(jobs)
    (holder, pids), (waiter, _) = jobs.one_runs_one_waits()
    jobs.process[holder].kill()
    jobs.sandbox.wait(jobs.process[holder], expected=-signal.SIGKILL)
    jobs.expect_finished(waiter)
    for pid in pids:
        wait_until_gone(pid)
    if jobs.sandbox.output(holder).read_bytes() != jobs.expected[holder]:
        raise Failure(f"{holder} printed something else than alone after its plexrl-run had died")


def case_run_and_manager_killed(jobs):
    """Every plexrl-run is killed, and then the manager, while one job runs and one waits: both finish."""
    start_both(jobs)
    (_, holders), (_, waiters) = jobs.one_runs_one_waits()
    manager = jobs.sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"]
    for name in SEEDS:
        jobs.process[name].kill()
        jobs.sandbox.wait(jobs.process[name], expected=-signal.SIGKILL)
    os.kill(manager, signal.SIGKILL)
    jobs.release()
    for pid in holders + waiters:
        wait_until_gone(pid)
    for name in SEEDS:
        if jobs.sandbox.output(name).read_bytes() != jobs.expected[name]:
            raise Failure(f"{name} printed something else than alone after its plexrl-run had died")


def start_unseen(jobs, script):
    """As start_later, with `sleep` for a command, and a manager that is another user's and may not look at the job's processes."""
    as_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise Skipped("needs root and setpriv")
    sandbox = jobs.sandbox
    home = sandbox.folder / "user"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for folder in (sandbox.folder, sandbox.socket.parent, sandbox.prefix.parent):
        folder.chmod(0o755)
    sandbox.start_manager(through=["setpriv", "--bounding-set", "-all"])
    fifo = sandbox.folder / "ada.fifo"
    os.mkfifo(fifo)
    run = [*as_user, sandbox.prefix / "bin/plexrl-run", "--require", "--name", "ada", "--", "sh", "-c", script]
    # The simulated GPU belongs to a user, so this one's has a folder of its own; it is the same by its name.
    env = sandbox.environment(HOME=home, XDG_RUNTIME_DIR=home)
    jobs.process["ada"] = sandbox.start([*run, fifo, "sleep", "infinity"], env, "ada")
    return fifo


def admissions(jobs):
    return jobs.sandbox.errors("nodemgr").count("admitted job='ada'")


def expect_end_unseen(jobs, fifo):
    if jobs.states() != {"ada": ("idle", [])}:
        raise Failure(f"the job has not gone on: {jobs.states()}")
    fifo.write_text("go\n")
    os.killpg(jobs.process.pop("ada").pid, signal.SIGTERM)  # sleep; the witness takes no signals
    jobs.wait_for(lambda states: not states, "end of ada")


def case_left_behind_unseen(jobs):
    """Where the manager may not look, the witness does, and has told the manager before plexrl-run ends."""
    fifo = start_unseen(jobs, "{ " + LATER + "; } & exit 0")
    jobs.sandbox.wait(jobs.process["ada"])
    if admissions(jobs) != 2:
        raise Failure(f"{admissions(jobs)} admissions")
    expect_end_unseen(jobs, fifo)


def case_run_killed_unseen(jobs):
    """The same when plexrl-run is killed: the witness comes."""
    fifo = start_unseen(jobs, LATER)
    wait_for_shell(jobs.process["ada"].pid)
    jobs.process["ada"].kill()
    jobs.sandbox.wait(jobs.process["ada"], expected=-signal.SIGKILL)
    wait_until(lambda: admissions(jobs) == 2, "nobody stands in for plexrl-run")
    expect_end_unseen(jobs, fifo)


NESTED = """
"$0" --require --name inner --memory 20MiB -- sh -c 'read _ < "$0"' "$1" &
echo $!
wait
"""


def case_nested_run_killed(jobs):
    """plexrl-run inside a job, and the one outside, are killed: what is left keeps both jobs, and no helper of theirs does."""
    fifo = jobs.sandbox.folder / "inner.fifo"
    os.mkfifo(fifo)
    run = jobs.sandbox.prefix / "bin/plexrl-run"
    jobs.process["outer"] = jobs.sandbox.shared(["sh", "-c", NESTED, run, fifo], "outer", ["--memory", "20MiB"])
    jobs.wait_for(lambda states: set(states) == {"outer", "inner"}, "both jobs")
    inner = int(jobs.sandbox.output("outer").read_text())
    wait_for_shell(inner)
    [shell] = [pid for pid, name in children_of(jobs.process["outer"].pid).items() if name == "sh"]
    for pid in (jobs.process["outer"].pid, shell, inner):
        os.kill(pid, signal.SIGKILL)
    jobs.sandbox.wait(jobs.process.pop("outer"), expected=-signal.SIGKILL)
    # The inner job's shell was started in the outer job, but is the inner job's.
    jobs.wait_for(lambda states: set(states) == {"inner"}, "the end of the outer job")
    fifo.write_text("go\n")
    wait_until(lambda: not jobs.sandbox.socket.exists(), "the manager is still there")


# A process of the job, without CUDA so far, that becomes the command when somebody writes to the FIFO $0.
LATER = 'read _ < "$0"; exec "$@"'


def start_later(jobs, name, script):
    """Starts the job as a shell that runs `script`; returns the FIFO that LATER waits at."""
    fifo = jobs.sandbox.folder / f"{name}.fifo"
    os.mkfifo(fifo)
    jobs.process[name] = jobs.sandbox.shared(["sh", "-c", script, fifo, *jobs.command(name)], name)
    return fifo


def expect_shared_without_runner(jobs, name, fifo):
    """The job has no plexrl-run and no CUDA process. Its command, begun now, shares the GPU with bob, and ends well."""
    del jobs.process[name]
    jobs.start("bob")
    jobs.wait_for(lambda states: states.get(name) == ("idle", []) and "bob" in states, f"{name} without a process")
    fifo.write_text("go\n")
    (_, holders), (_, waiters) = jobs.one_runs_one_waits()
    jobs.expect_finished("bob")
    for pid in holders + waiters:
        wait_until_gone(pid)
    if jobs.sandbox.output(name).read_bytes() != jobs.expected[name]:
        raise Failure(f"{name} printed something else than alone")
    if jobs.sandbox.errors(name):
        raise Failure(f"{name} said: {jobs.sandbox.errors(name)}")
    # The last job has gone, so the manager that plexrl-run started ends, and with it what kept it alive.
    wait_until(lambda: not jobs.sandbox.socket.exists(), "the manager is still there")


def case_left_behind(jobs):
    """plexrl-run ends before any of the job's processes has used CUDA; what it leaves behind is the job all the same."""
    fifo = start_later(jobs, "ada", "{ " + LATER + "; } & exit 0")
    jobs.sandbox.wait(jobs.process["ada"])
    expect_shared_without_runner(jobs, "ada", fifo)


def case_run_killed_early(jobs):
    """plexrl-run and then the manager are killed before the job's first CUDA call; the job goes on, and is shared."""
    fifo = start_later(jobs, "ada", LATER)
    wait_for_shell(jobs.process["ada"].pid)
    manager = jobs.sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"]
    jobs.process["ada"].kill()
    jobs.sandbox.wait(jobs.process["ada"], expected=-signal.SIGKILL)
    os.kill(manager, signal.SIGKILL)
    expect_shared_without_runner(jobs, "ada", fifo)


def case_everything_killed_early(jobs):
    """As before, and the witness is killed too: the next plexrl-run's manager finds the job."""
    fifo = start_later(jobs, "ada", LATER)
    wait_for_shell(jobs.process["ada"].pid)
    manager = jobs.sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"]
    helpers = [pid for pid, name in children_of(jobs.process["ada"].pid).items() if name == "plexrl-witness"]
    if len(helpers) != 1:
        raise Failure(f"plexrl-run has {len(helpers)} witnesses")
    jobs.process["ada"].kill()
    jobs.sandbox.wait(jobs.process["ada"], expected=-signal.SIGKILL)
    for pid in [*helpers, manager]:
        os.kill(pid, signal.SIGKILL)
    expect_shared_without_runner(jobs, "ada", fifo)


def children_of(pid):
    """Their pids and names."""
    names = {}
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended just now
            names[int(child)] = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
    return names


def wait_for_shell(run):
    """The plexrl-run of this pid has started its command, a shell."""
    wait_until(lambda: "sh" in children_of(run).values(), "the command was not started")


def case_no_manager_answers(jobs):
    """A process of a job whose manager is not there, and does not come, says so in one line and runs unshared."""
    ids = dict.fromkeys(("PLEXRL_JOB_ID", "PLEXRL_JOB_SECRET"), "1" * 32)
    stray = jobs.sandbox.alone(jobs.command("ada", hold=False), "stray",
                               LD_PRELOAD=jobs.sandbox.prefix / "lib/plexrl/libplexrl.so", **ids)
    if jobs.sandbox.wait(stray) != jobs.expected["ada"]:
        raise Failure("it printed something else than alone")
    said = jobs.sandbox.errors("stray").splitlines()
    if len(said) != 1 or "not sharing the GPU: no node manager answers" not in said[0]:
        raise Failure(f"it said {said}")


INSIDE = """
"$0" --memory 140MiB -- true; echo $?
"$0" --join --require -- true; echo $?
export PLEXRL_JOB_ID=11111111111111111111111111111111
"$0" --join --require -- true; echo $?
"$0" --join -- true; echo $?
"""


def case_inside_a_job(jobs):
    """plexrl-run in a job: a job that would wait for the one around it is refused; --join is for jobs that exist."""
    jobs.sandbox.start_manager(PLEXRL_HOST_BUDGET="16MiB")
    outer = jobs.sandbox.shared(["sh", "-c", INSIDE, jobs.sandbox.prefix / "bin/plexrl-run"], "outer", ["--memory", "140MiB"])
    statuses = jobs.sandbox.wait(outer).decode().split()
    if statuses != ["125", "0", "125", "0"]:
        raise Failure(f"it ended with {statuses}")
    said = jobs.sandbox.errors("outer").splitlines()
    wanted = ["refused: it would wait for ever for job 'outer'", "--require: --join: no such job here",
              "running unshared: --join: no such job here"]
    if len(said) != 3 or not all(f"plexrl-run: {words}" in line for words, line in zip(wanted, said)):
        raise Failure(f"it said {said}")


def case_holder_stopped(jobs):
    """SIGSTOP to a job that holds the GPU, as Ctrl-Z does it, and SIGCONT later: nobody loses anything."""
    jobs.sandbox.start_manager()
    start_both(jobs)
    holder, pids, waiter = stop_the_holder(jobs)
    for name in (holder, waiter):
        explained = jobs.sandbox.tool("plexrl-ctl", "explain", name, "--json")["explain"]
        if f"its process {pids[0]} is stopped" not in explained["gangs"][0]["text"]:
            raise Failure(f"explain {name} does not say who is stopped: {explained}")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    jobs.expect_finished(holder, waiter)


def case_holder_in_debugger(jobs):
    """The holder is stopped by a debugger, with all its threads, and goes on later: the other one is told, and nobody loses anything."""
    jobs.sandbox.start_manager()
    breakpoint_file = jobs.sandbox.folder / "breakpoint"
    traced = jobs.sandbox.build / "tests/fault/programs/traced"
    jobs.process["ada"] = jobs.sandbox.shared([traced, breakpoint_file, *jobs.command("ada")], "ada")
    jobs.start("bob")
    told = False
    while not told:
        holder, pids = None, []
        while holder != "ada":
            (holder, pids), _ = jobs.one_runs_one_waits()
        breakpoint_file.touch()
        words = f"job 'ada': holder's process {pids[0]} is stopped"
        # It may have given the GPU away just before, or be inside of the simulated driver with its lock: bob, and the manager that asks
        # NVML, then wait until it goes on, and so does this test. Once more then.
        goes_on = threading.Timer(30, breakpoint_file.unlink, kwargs={"missing_ok": True})
        goes_on.start()
        while not told and breakpoint_file.exists() and jobs.states()["ada"][0] in ("running", "draining"):
            told = words in jobs.waits_for("bob")
            time.sleep(POLL_S)
        goes_on.cancel()
        goes_on.join()
        breakpoint_file.unlink(missing_ok=True)
    jobs.expect_finished("ada", "bob")


def case_hung_holder_killed(jobs):
    """A holder that finishes nothing while the other waits, longer than the administrator allows, is killed, and the other goes on."""
    jobs.sandbox.start_manager(PLEXRL_POLICY_HANG_AFTER="1s", PLEXRL_POLICY_HANG_ACTION="kill")
    start_both(jobs)
    holder, _, waiter = stop_the_holder(jobs)
    jobs.release()
    jobs.sandbox.wait(jobs.process[holder], 128 + signal.SIGKILL)
    jobs.expect_finished(waiter)
    if f"job '{holder}' hangs" not in jobs.sandbox.errors("nodemgr"):
        raise Failure("the manager's log does not say who hung")


def stop_the_holder(jobs):
    """SIGSTOP to a job that has the GPU and keeps it; the manager tells the other one whom it waits for."""
    while True:
        (holder, pids), (waiter, _) = jobs.one_runs_one_waits()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        # It may have given the GPU away just before.
        words = f"job '{holder}': holder's process {pids[0]} is stopped"
        states = jobs.wait_for(lambda states: words in jobs.waits_for(waiter) or states[holder][0] not in
                               ("running", "draining"), f"'{words}'")
        if states[holder][0] in ("running", "draining"):
            return holder, pids, waiter
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def case_waiter_terminated(jobs):
    """SIGTERM to a process that waits at the gate, and to no other, ends it as it does alone; the holder goes on."""
    jobs.sandbox.start_manager()
    start_both(jobs)
    (holder, _), (waiter, pids) = jobs.one_runs_one_waits()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    jobs.sandbox.wait(jobs.process[waiter], expected=128 + signal.SIGTERM)
    jobs.expect_finished(holder)


def case_waiter_handles_signals(jobs):
    """Handlers run in a process that waits at the gate, and then it waits on, without an error for the program."""
    jobs.sandbox.start_manager()
    jobs.start("ada")
    program = jobs.sandbox.build / "tests/fault/programs/handles_signals"
    jobs.process["bob"] = jobs.sandbox.shared([program, jobs.released], "bob", PLEXRL_TEST_BALLAST=100 << 20)
    said = b""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        waiter, pids = None, []
        while waiter != "bob":
            _, (waiter, pids) = jobs.one_runs_one_waits()
        os.kill(pids[0], number)
        said += number.name.encode() + b"\n"
        wait_until(lambda: jobs.sandbox.output("bob").read_bytes() == said, f"no handler ran for {number.name}")
    jobs.expect_finished("ada")
    output = jobs.sandbox.wait(jobs.process["bob"])
    if not output.startswith(said + b"right after many rounds\n"):
        raise Failure(f"bob printed {output}")


def become_another(jobs, prepare=lambda: None):
    """ada is replaced, by exec, by a shell that uses no CUDA and stays, while bob waits for the GPU. Returns its FIFO and pid."""
    fifo = jobs.sandbox.folder / "ada.fifo"
    os.mkfifo(fifo)
    word = jobs.sandbox.folder / "become"
    program = jobs.sandbox.build / "tests/fault/programs/becomes_another"
    jobs.start("bob")
    jobs.process["ada"] = jobs.sandbox.shared([program, word, "sh", "-c", 'read _ < "$0"; echo another', fifo], "ada",
                                              PLEXRL_TEST_BALLAST=100 << 20)
    holder, pids = None, []
    while holder != "ada":
        (holder, pids), _ = jobs.one_runs_one_waits()
    prepare()
    word.touch()
    wait_until(lambda: pathlib.Path(f"/proc/{pids[0]}/comm").read_text() == "sh\n", "no exec")
    return fifo, pids[0]


def expect_given_back(jobs, fifo, pid):
    """What ada's program had has gone while the shell in its place lives; bob gets on; the job ends well."""
    jobs.wait_for(lambda states: states.get("ada") == ("idle", []), "end of ada's program")
    if any(row["pid"] == pid for row in jobs.sandbox.tool("plexrl-ctl", "memory", "--json")["memory"]):
        raise Failure("its memory is still in the ledger")
    jobs.expect_finished("bob")
    if pathlib.Path(f"/proc/{pid}/comm").read_text() != "sh\n":
        raise Failure("the shell has gone")
    fifo.write_text("go\n")
    if jobs.sandbox.wait(jobs.process["ada"]) != b"another\n":
        raise Failure("ada's next program did not run to its end")


def case_exec_without_cuda(jobs):
    """A program that has the GPU, and a child of fork beside it, becomes one without CUDA by exec: lease and memory come back."""
    jobs.sandbox.start_manager()
    expect_given_back(jobs, *become_another(jobs))


def case_exec_without_manager(jobs):
    """The same while there is no manager: the next one sees it."""
    def kill_manager():
        for process in jobs.process.values():
            process.send_signal(signal.SIGSTOP)  # plexrl-run would start the next one at once
        os.kill(jobs.sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"], signal.SIGKILL)
    fifo, pid = become_another(jobs, kill_manager)
    for process in jobs.process.values():
        process.send_signal(signal.SIGCONT)
    expect_given_back(jobs, fifo, pid)


def case_job_terminated(jobs):
    """SIGTERM to plexrl-run reaches the job once and ends it; the other goes on."""
    jobs.sandbox.start_manager()
    start_both(jobs)
    (holder, _), (waiter, _) = jobs.one_runs_one_waits()
    jobs.process[holder].send_signal(signal.SIGTERM)
    jobs.sandbox.wait(jobs.process[holder], expected=128 + signal.SIGTERM)
    jobs.expect_finished(waiter)


def case_point(jobs, point):
    """ada's process kills itself at a named point of the preload; bob finishes."""
    jobs.sandbox.start_manager()
    jobs.start("ada", PLEXRL_FAULT=point)
    jobs.start("bob")
    jobs.sandbox.wait(jobs.process["ada"], expected=128 + signal.SIGKILL)
    jobs.expect_finished("bob")


def case_manager_point(jobs, point):
    """The manager kills itself at a named point; plexrl-run starts another, without it; both finish."""
    jobs.sandbox.start_manager(PLEXRL_FAULT=point)
    start_both(jobs)
    jobs.sandbox.wait(jobs.sandbox.manager, expected=-signal.SIGKILL)
    jobs.expect_finished(*SEEDS)


def wait_until_gone(pid):
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), f"process {pid} is still there")


def wait_until(condition, otherwise):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(otherwise)
        time.sleep(POLL_S)


def main():
    cases = {name.removeprefix("case_"): function for name, function in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", help=", ".join(sorted(cases)) + "; point and manager_point take a name: point:NAME")
    parser.add_argument("--build", required=True)
    parser.add_argument("--preload", help="a test build of the preload")
    parser.add_argument("--nodemgr", help="a test build of the manager")
    options = parser.parse_args()
    name, _, point = options.case.partition(":")
    if name not in cases:
        parser.error(f"unknown case '{name}'")
    with (tempfile.TemporaryDirectory(prefix="plexrl-fault-") as folder,
          Sandbox(options.build, prefix.make(folder + "/prefix", options.build, options.preload, options.nodemgr),
                  memory="192MiB", spec="link=4GB/s") as sandbox):
        try:
            cases[name](Jobs(sandbox), *([point] if point else []))
        except Skipped as reason:
            print(f"{options.case}: skipped: {reason}")
            return SKIPPED
        except Failure as failure:
            print(f"FAILED: {options.case}: {failure}")
            post_mortem.say(sandbox)
            return 1
    print(f"{options.case}: passed")
    return 0


sys.exit(main())
