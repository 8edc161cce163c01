#!/usr/bin/env python3
"""What jobs wait for in their gaps, as plexrl-observer finds out and plexrl-ctl, plexrl-top and plexrl-trace tell.

usage: run_observer.py CASE --build DIR

Needs root and a kernel for eBPF; says so and ends with 77 where they are missing.
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys

from sandbox import SKIPPED, Failure, run_case, wait_until

SPEC = "link=4GB/s,hbm=40GB/s,ctx=8MiB"


def skip_where_impossible(build):
    observer = pathlib.Path(build) / "bin/plexrl-observer"
    if not observer.exists():
        print("skipped: plexrl-observer was not built (it needs clang, bpftool and libbpf)")
        sys.exit(SKIPPED)
    check = subprocess.run([observer, "--check"], capture_output=True, text=True, check=False)
    if check.returncode != 0:
        print(f"skipped: {(check.stderr or check.stdout).strip()}")
        sys.exit(SKIPPED)


def start_observer(sandbox, *options):
    """Returns when the manager knows of it."""
    observer = sandbox.start([sandbox.build / "bin/plexrl-observer", "--socket", sandbox.socket, *options], sandbox.environment(),
                             "observer")
    wait_until(lambda: observes(sandbox), "the manager has an observer", observer, lambda: sandbox.errors("observer"))
    return observer


def observes(sandbox):
    return sandbox.ask_manager("status")["manager"]["observer"] is not None


class Server:
    """Accepts one connection and says nothing; closes it when it is over."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def close(self):
        self.listener.close()  # what was not accepted is reset


def job_of(sandbox, name):
    return next((job for job in sandbox.tool("plexrl-ctl", "jobs", "--json")["jobs"] if job["name"] == name), None)


def words(cause):
    """On a busy machine a job that computes waits longer for a CPU than it has one."""
    return ("cpu", "cpu_queue") if cause == "cpu" else (cause,)


def run_way(sandbox, way, argument, cause, detail, during=lambda: None):
    """A job that waits so; returns when the manager has said why, and the job has ended."""
    peer = sandbox.make_peer(f"{way}.peer")
    program = sandbox.shared([sandbox.build / "tests/integration/programs/waits", way, argument], way, PLEXRL_TEST_PEER=peer,
                             PLEXRL_TEST_BALLAST=1 << 20)
    last = {}

    def is_told():
        job = job_of(sandbox, way)
        last["job"] = job
        if job is None or not job["gap_causes"]:
            return False
        first = job["gap_causes"][0]
        return job["gap_cause"] == first["cause"] and first["cause"] in words(cause) and first["detail"] == detail

    wait_until(is_told, f"job '{way}' is idle by {cause} {detail}", program, lambda: f"{last}\n{sandbox.errors('observer')}")
    during()
    sandbox.stop_antagonist(peer)
    return program


def causes(sandbox):
    skip_where_impossible(sandbox.build)
    device = sandbox.folder / "dev" / "nvidia0"
    device.parent.mkdir()
    os.mknod(device, 0o600 | 0o020000, os.stat("/dev/ptmx").st_rdev)  # what counts is the device, not the name
    sandbox.start_manager()
    start_observer(sandbox, "--device-dir", device.parent)
    ways = [("sleep", "", "sleep", None), ("lock", "", "lock", None), ("lock_for_sleep", "", "sleep", None), ("cpu", "", "cpu", "reward"),
            ("child", "", "subprocess", "checker"), ("pipe", "", "pipe", "checker"), ("device", "/dev/ptmx", "gpu", "ptmx")]  # a new terminal, on which nobody ever writes
    for way, argument, cause, detail in ways:
        sandbox.wait(run_way(sandbox, way, argument, cause, detail))
    for way in ("tcp", "epoll"):
        server = Server()
        detail = f"127.0.0.1:{server.port}"
        program = run_way(sandbox, way, server.port, "network", detail, during=lambda: shown(sandbox, f"idle: network {detail}"))
        server.close()
        sandbox.wait(program)
        ways.append((way, server.port, "network", detail))
    return check_trace(sandbox, ways)


def shown(sandbox, text):
    """For people, too."""
    for tool in (["plexrl-ctl", "jobs"], ["plexrl-top", "--once"]):
        told = subprocess.run([sandbox.prefix / "bin" / tool[0], *tool[1:]], env=sandbox.environment(COLUMNS=250), capture_output=True,
                              text=True, check=True).stdout
        if text not in told:
            raise Failure(f"{' '.join(tool)} does not say '{text}':\n{told}")


def check_trace(sandbox, ways):
    def gaps():
        return sandbox.trace("gaps", "--json", "--top", 1000)["gaps"]

    def longest(name):
        return max((gap for gap in gaps() if gap["name"] == name), key=lambda gap: gap["length_ns"], default=None)

    for way, _, cause, detail in ways:
        wait_until(lambda name=way: longest(name) is not None, f"the trace has a gap of '{way}'")
        gap = longest(way)
        first = (gap["causes"] or [{"cause": None, "detail": None}])[0]
        if gap["cause"] not in words(cause) or first["cause"] not in words(cause) or first["detail"] != detail:
            raise Failure(f"the trace says of '{way}': {gap}")
        if sum(one["time_ns"] for one in gap["causes"]) > gap["length_ns"] * 1.5:
            raise Failure(f"causes that last longer than the gap: {gap}")
    sandbox.stop_manager()
    summary = {job["name"]: job["idle_by"] for job in sandbox.trace("summary", "--json")["summary"]["jobs"]}
    for way, _, cause, _ in ways:
        if max(summary[way], key=summary[way].get) not in words(cause):
            raise Failure(f"summary: '{way}' is idle by {summary[way]}")
    return f"{len(ways)} ways to wait, each told by plexrl-ctl, the trace and its summary"


def comes_and_goes(sandbox):
    """The manager works without an observer, takes one that comes in the middle of a gap, and goes on when it is killed."""
    skip_where_impossible(sandbox.build)
    sandbox.start_manager()
    peer = sandbox.make_peer("late.peer")
    program = sandbox.shared([sandbox.build / "tests/integration/programs/waits", "sleep"], "late", PLEXRL_TEST_PEER=peer,
                             PLEXRL_TEST_BALLAST=1 << 20)
    wait_until(lambda: (job_of(sandbox, "late") or {"gangs": [{"idle": False}]})["gangs"][:1] and job_of(sandbox, "late")["gangs"][0]["idle"],
               "the job is idle", program)
    if job_of(sandbox, "late")["gap_cause"] is not None:
        raise Failure("a cause, and nobody observes")
    observer = start_observer(sandbox)
    wait_until(lambda: job_of(sandbox, "late")["gap_cause"] == "sleep", "who comes late sees why", program)
    observer.send_signal(signal.SIGKILL)
    sandbox.wait(observer, expected=-signal.SIGKILL)
    wait_until(lambda: not observes(sandbox), "the manager knows that it has gone")
    sandbox.stop_antagonist(peer)
    sandbox.wait(program)
    return "the job went on, and the manager did"


def bypass(sandbox):
    """A process that has the device files open, without PlexRL, is named as long as it has; one with PlexRL is not."""
    skip_where_impossible(sandbox.build)
    folder = sandbox.folder / "dev"
    folder.mkdir()
    # Stand-ins. Others may have one of these devices open, nobody has both.
    for name, minor in (("nvidia0", 7), ("nvidia-uvm", 5)):
        os.mknod(folder / name, 0o600 | 0o020000, os.makedev(1, minor))
    sandbox.start_manager()
    start_observer(sandbox, "--device-dir", folder, "--look-every", "50ms")
    opens = ("import os, sys\nfiles = [os.open(sys.argv[1] + name, os.O_RDWR) for name in ('/nvidia0', '/nvidia-uvm')]\n"
             "sys.stdin.readline()\n")
    peer = sandbox.make_peer("job.peer")
    job = sandbox.shared([sandbox.build / "tests/integration/programs/waits", "files", folder], "job", PLEXRL_TEST_PEER=peer,
                         PLEXRL_TEST_BALLAST=1 << 20)
    stranger = subprocess.Popen([sys.executable, "-c", opens, folder], stdin=subprocess.PIPE)
    stranger.name = "stranger"

    def told():
        return sandbox.tool("plexrl-ctl", "gpus", "--json")["gpus"][0]

    try:
        wait_until(lambda: told()["bypass_pids"] != [], "somebody is named", (stranger, job), lambda: f"{told()}")
        wait_until(lambda: (job_of(sandbox, "job") or {}).get("gap_cause") == "sleep", "the job has its files open and waits", job)
        (row,) = told()["bypass"]
        if row["pid"] != stranger.pid or not row["has_opened"] or row["has_memory"] or not row["command"].startswith("python"):
            raise Failure(f"not the stranger {stranger.pid}: {row}")
        log = sandbox.errors("nodemgr")
        if f"a process uses a GPU without PlexRL gpu=0 pid={stranger.pid} " not in log:
            raise Failure(f"the log does not name it:\n{log}")
        wait_until(lambda: told()["bypass_pids"] == [stranger.pid], "nobody else is named", (stranger, job))
    finally:
        stranger.communicate(b"\n")
    wait_until(lambda: told()["bypass_pids"] == [], "it is named no more", job)
    sandbox.stop_antagonist(peer)
    sandbox.wait(job)
    return "who bypasses PlexRL is named by plexrl-ctl and the log, as long as it does"


CASES = {"bypass": bypass, "causes": causes, "comes_and_goes": comes_and_goes}


if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, SPEC))
