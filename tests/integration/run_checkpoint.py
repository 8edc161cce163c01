#!/usr/bin/env python3
"""Driver checkpoints (--evict=checkpoint) on the simulated GPU, with a real node manager. Exit 0 passed, 1 failed.

A job that has been idle for long has contexts that leave no room for the promise of a second one.
page: without --evict=checkpoint the second job is refused.
leaves: with it the idle job's contexts leave, the second job runs, and the first one comes back with all of its bytes.
frees, asks: the same where the first call after the idle time is one that needs no lease.
ignored: the same with a manager that was started with SIGCHLD ignored.
two: the same with a gang of two processes.
turns: two such jobs, each of which leaves for the other when that works and it does not.
host: a job is not checkpointed where the host budget has no room for what it has.
managed: a job with managed memory is not checkpointed, by name; the driver would have made it fail.
gang: of two processes the second can't be checkpointed: the first is brought back too.
helper: the helper is killed when the driver has done its work: it is undone.
manager: the manager is killed while the job is checkpointed, and the next one brings it back.
before: the manager is killed before, and the next one still knows that the job is idle.
unsettled: the manager is killed while its helper works.
early: the manager is killed when it has told the job's process to leave the driver.
helping: the manager is killed when it is about to start its helper.
room: the manager is killed when the job is about to be brought back.
returning: the manager is killed when the job has been brought back and does not know it.
killed: the idle job is killed while it is checkpointed, and nobody waits for it.
"""
import os
import signal
import sys

from sandbox import Failure, run_case, wait_until as sandbox_wait_until

SECOND = ["--memory", "140MiB"]  # with two contexts of 40 MiB more than there is, with one not
BALLAST = 8 << 20
QUICK = {"PLEXRL_POLICY_CHECKPOINT_AFTER": "200ms", "PLEXRL_HOST_BUDGET": "1GiB"}


def wait_until(condition, what, *programs):
    sandbox_wait_until(condition, what, programs)


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failure(f"{what}: {seen!r}, not {wanted!r}")


def job(sandbox, name):
    """None: there is no such job, or no manager just now."""
    try:
        return next((one for one in sandbox.ask_manager("jobs")["jobs"] if one["name"] == name), None)
    except (OSError, ValueError):
        return None


def where(sandbox, name="idle"):
    found = job(sandbox, name)
    return found["gangs"][0]["checkpoint"] if found and found["gangs"] else None


class Case:
    """The idle job at its idle moment, beside a manager; what it printed alone is known."""

    def __init__(self, sandbox, how="", evict="checkpoint", processes=1, manager_environment=None, faults=False, through=()):
        self.sandbox = sandbox
        self.program = [sandbox.build / "tests/integration/programs/long_idle", *([how] if how else [])]
        self.alone = sandbox.wait(sandbox.alone(self.program, "alone", PLEXRL_TEST_BALLAST=BALLAST))
        environment = {**QUICK, **(manager_environment or {})}
        if faults:
            start_faulty_manager(sandbox, environment)
        else:
            sandbox.start_manager(through=through, **environment)
        self.idle = sandbox.shared(self.program, "idle", ["--memory", "100MiB", f"--evict={evict}"],
                                   PLEXRL_TEST_PEER=sandbox.peer_file, PLEXRL_TEST_BALLAST=BALLAST, **QUICK)
        wait_until(lambda: sandbox.peer()["pauses"] == processes, "the job is idle", self.idle)
        # Its contexts are known when the manager has measured them.
        wait_until(lambda: self.contexts() >= processes * (40 << 20), "its contexts are measured", self.idle)

    def contexts(self):
        return sum(row["bytes"] for row in self.sandbox.ask_manager("memory")["memory"]
                   if row["kind"] == "context" and row["reason"].startswith("the process's"))

    def second(self):
        peer = self.sandbox.make_peer("second.peer")
        return peer, self.sandbox.shared([self.sandbox.build / "tests/integration/programs/antagonist"], "second", SECOND,
                                         PLEXRL_TEST_PEER=peer, **QUICK)

    def go_on(self):
        self.sandbox.stop_antagonist()  # the word to go on

    def end(self):
        """The idle job goes on and ends with what it printed alone."""
        self.go_on()
        expect("output of the idle job", self.sandbox.wait(self.idle), self.alone)

    def refused(self, reason):
        """The second job waits and the idle one says why; then both run to their end."""
        peer, second = self.second()
        wait_until(lambda: reason in ((job(self.sandbox, "idle") or {}).get("checkpoint_refused") or ""), f"refused: {reason}",
                   self.idle, second)
        wait_until(lambda: where(self.sandbox) == "here", "its contexts are here again", self.idle, second)
        self.end()
        self.sandbox.stop_antagonist(peer)
        self.sandbox.wait(second)

    def let_second_in(self):
        peer, second = self.second()
        wait_until(lambda: job(self.sandbox, "second") and job(self.sandbox, "second")["gangs"], "the second job runs", self.idle,
                   second)
        expect("place of the idle job's contexts", where(self.sandbox), "away")
        return peer, second


def start_faulty_manager(sandbox, environment):
    """The test build of the manager, and with it of the helper, which die at PLEXRL_FAULT."""
    binaries = sandbox.folder / "faulty"
    (binaries / "bin").mkdir(parents=True)
    (binaries / "bin/plexrl-nodemgr").symlink_to(sandbox.build / "tests/plexrl-nodemgr-faults")
    prefix, sandbox.prefix = sandbox.prefix, binaries
    try:
        sandbox.start_manager("faulty", **environment)
    finally:
        sandbox.prefix = prefix


def page(sandbox):
    case = Case(sandbox, evict="page")
    second = sandbox.shared(["true"], "second", [*SECOND, "--no-wait"])
    sandbox.wait(second, expected=125)
    if "are left" not in sandbox.errors("second"):
        raise Failure(f"refused for another reason: {sandbox.errors('second')}")
    case.end()
    return "without --evict=checkpoint the contexts leave no room for the second job"


def leaves(sandbox, how="", processes=1, through=()):
    case = Case(sandbox, how, processes=processes, through=through)
    pids = job(sandbox, "idle")["gangs"][0]["pids"]
    expect("processes of the idle job", len(pids), processes)
    peer, second = case.let_second_in()

    def tiers():
        return {row["tier"] for row in sandbox.ask_manager("memory")["memory"] if row["pid"] in pids} - {"unbacked"}

    wait_until(lambda: tiers() == {"host"}, "all of the idle job is in host memory", case.idle, second)
    for process in sandbox.ask_manager("memory")["processes"]:
        if process["pid"] in pids:
            expect("bytes that the driver shows and we account for", (process["driver_bytes"], process["accounted_bytes"]), (None, 0))
    held = job(sandbox, "idle")["host_bytes"]
    if held < processes * (40 << 20):
        raise Failure(f"the idle job has {held} bytes in host memory, less than its contexts")
    wait_until(lambda: sandbox.peer(peer)["rounds"] > 2, "the second job works", case.idle, second)
    case.go_on()
    wait_until(lambda: job(sandbox, "idle")["state"] == "waiting", "the idle job waits for room", case.idle, second)
    waits_for = job(sandbox, "idle")["gangs"][0]["waits_for"]
    if "checkpointed" not in (waits_for or ""):
        raise Failure(f"it waits for {waits_for!r}")
    sandbox.stop_antagonist(peer)
    sandbox.wait(second)
    expect("output of the idle job", sandbox.wait(case.idle), case.alone)
    sandbox.stop_manager()
    kinds = [one["kind"] for one in sandbox.trace("export", "--format", "json")["decisions"]]
    expect("checkpoints in the trace", [kind for kind in kinds if kind in ("checkpoint", "restore")], ["checkpoint", "restore"])
    return "the contexts left for the second job, and came back with all bytes"


def frees(sandbox):
    return leaves(sandbox, "frees")


def asks(sandbox):
    return leaves(sandbox, "asks")


def ignored(sandbox):
    return leaves(sandbox, through=["sh", "-c", 'trap "" CHLD; exec "$@"', "sh"])


def two(sandbox):
    return leaves(sandbox, "two", processes=2)


def turns(sandbox):
    case = Case(sandbox)
    peer = sandbox.make_peer("other.peer")
    other = sandbox.shared(case.program, "other", [*SECOND, "--evict=checkpoint"], PLEXRL_TEST_PEER=peer, PLEXRL_TEST_BALLAST=BALLAST,
                           **QUICK)
    wait_until(lambda: sandbox.peer(peer)["pauses"] == 1, "the other job is idle", case.idle, other)
    expect("place of the first job's contexts", where(sandbox), "away")
    case.go_on()
    wait_until(lambda: where(sandbox, "other") == "away", "the other job has left for the first", other)
    expect("output of the first job", sandbox.wait(case.idle), case.alone)
    sandbox.stop_antagonist(peer)
    expect("output of the other job", sandbox.wait(other), case.alone)
    return "each left for the other"


def host(sandbox):
    Case(sandbox, manager_environment={"PLEXRL_HOST_BUDGET": "64MiB"}).refused("raise [host] budget")
    return "refused by name, and both jobs ran"


def managed(sandbox):
    Case(sandbox, "managed").refused("has managed memory")
    return "refused by name, and no byte of the job has suffered"


def gang(sandbox):
    fails = sandbox.spec(more="fail=cuCheckpointProcessCheckpoint@2:801")
    case = Case(sandbox, "two", processes=2, manager_environment={"PLEXRL_SIMGPU": fails})
    case.refused("cuCheckpointProcessCheckpoint: CUDA_ERROR_NOT_SUPPORTED")
    return "what the first process had done was undone"


def helper(sandbox):
    case = Case(sandbox, manager_environment={"PLEXRL_FAULT": "checkpoint_after_leave"}, faults=True)
    case.refused("killed by signal 9")
    return "what the helper had done was undone"


def manager(sandbox, point="checkpoint_after_away"):
    case = Case(sandbox, manager_environment={"PLEXRL_FAULT": point}, faults=True)
    peer, second = case.second()
    sandbox.wait(sandbox.manager, expected=-signal.SIGKILL)
    # plexrl-run starts the next one, without the fault.
    wait_until(lambda: (job(sandbox, "second") or {}).get("gangs"), "the second job runs", case.idle, second)
    case.go_on()
    wait_until(lambda: (job(sandbox, "idle") or {}).get("state") == "waiting", "the idle job waits for room", case.idle, second)
    sandbox.stop_antagonist(peer)
    sandbox.wait(second)
    expect("output of the idle job", sandbox.wait(case.idle), case.alone)
    return "the next manager brought the job back"


def before(sandbox):
    case = Case(sandbox)
    sandbox.manager.kill()
    sandbox.wait(sandbox.manager, expected=-signal.SIGKILL)
    peer, second = case.let_second_in()
    sandbox.stop_antagonist(peer)
    sandbox.wait(second)
    case.end()
    return "the next manager knew that the job was idle"


def unsettled(sandbox):
    return manager(sandbox, "checkpoint_helper_started")


def early(sandbox):
    return manager(sandbox, "checkpoint_after_leave_gpu")


def helping(sandbox):
    return manager(sandbox, "checkpoint_before_helper")


def room(sandbox):
    return returning(sandbox, "checkpoint_room_found")


def returning(sandbox, point="checkpoint_after_return"):
    case = Case(sandbox, manager_environment={"PLEXRL_FAULT": point}, faults=True)
    peer, second = case.let_second_in()
    case.go_on()
    sandbox.stop_antagonist(peer)
    sandbox.wait(second)
    sandbox.wait(sandbox.manager, expected=-signal.SIGKILL)
    expect("output of the idle job", sandbox.wait(case.idle), case.alone)
    return "the next manager let the job go on"


def killed(sandbox):
    case = Case(sandbox)
    peer, second = case.let_second_in()
    os.kill(job(sandbox, "idle")["gangs"][0]["pids"][0], signal.SIGKILL)
    sandbox.wait(case.idle, expected=128 + signal.SIGKILL)
    sandbox.stop_antagonist(peer)
    sandbox.wait(second)
    return "the second job went on"


CASES = {"page": page, "leaves": leaves, "frees": frees, "asks": asks, "ignored": ignored, "two": two, "turns": turns, "host": host,
         "managed": managed, "gang": gang, "helper": helper, "manager": manager, "before": before, "unsettled": unsettled,
         "early": early, "helping": helping, "room": room, "returning": returning, "killed": killed}


if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, "link=4GB/s,hbm=40GB/s,ctx=40MiB"))
