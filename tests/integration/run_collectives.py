#!/usr/bin/env python3
"""What becomes of GPUs whose rank waits for another in a collective (docs/architecture.md, "Collectives across gangs").

  lent            a rank that waits long for another: its GPU is a neighbour's meanwhile, and the results are those of a run alone
  forced          two jobs of two ranks each, on the same two GPUs, which are taken from them every 50 ms
  killed_rank     a rank dies while the other waits for it at a meeting, and its launcher ends the job: the neighbour has the GPU
  killed_manager  the manager dies while a rank waits at a meeting: the next one has them meet again
"""
import os
import signal
import sys

import lease_check
from sandbox import Failure, run_case, wait_until

SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
STEPS, SLEEP_S = 6, 2  # of the second rank, before each all-reduce
LEARNT = 2  # so many of them wait on the GPU, before the ranks meet
KERNEL = "ncclDevKernel_Simulated"


FORCED = {"PLEXRL_POLICY_MIN_QUANTUM": "50ms", "PLEXRL_POLICY_QUANTUM_FACTOR": "1", "PLEXRL_POLICY_SWITCH_SHARE": "1"}
FORCED_STEPS, FORCED_SLEEP_S = 24, 0.03
BALLAST = 96 << 20  # of each rank: two jobs' don't fit on a GPU


def slow_rank(sandbox, steps, sleep_s):
    return [sandbox.build / "tests/integration/programs/slow_rank", steps, sleep_s]


class WithNeighbour:
    """The ranks of a job, and a neighbour that uses GPU 0 until it is released."""

    def __init__(self, sandbox, steps, sleep_s):
        sandbox.gpus = 2
        self.sandbox = sandbox
        self.released = sandbox.folder / "released"
        self.rlvr = [sandbox.build / "tests/bin/rlvr", "--steps", 1, "--state-bytes", "96MiB", "--until"]
        self.program = slow_rank(sandbox, steps, sleep_s)
        self.alone = sandbox.wait(sandbox.alone(self.program, "alone"))

    def start(self, **more):
        self.neighbour = self.sandbox.shared([*self.rlvr, self.released], "neighbour", **more)
        self.ranks = self.sandbox.shared(self.program, "ranks", **more)

    def expect_alike(self):
        if self.sandbox.wait_beside(self.ranks, self.neighbour) != self.alone:
            raise Failure("the ranks printed something else than alone")

    def finish(self):
        self.released.touch()
        self.sandbox.wait(self.neighbour)
        self.sandbox.stop_manager()

    def collectives(self, gpu=0):
        return [piece for piece in lease_check.read_device_log(self.sandbox.device_log)
                if piece["gpu"] == gpu and piece["name"] == KERNEL]

    def wait_for_meeting(self):
        """The first rank waits without its GPU for a while, having waited on it before."""
        wait_until(lambda: len(self.collectives()) > LEARNT, "the ranks meet", (self.ranks, self.neighbour))

    def neighbours_work(self):
        ours = {piece["pid"] for piece in self.collectives(0) + self.collectives(1)}
        return sum(1 for piece in lease_check.read_device_log(self.sandbox.device_log) if piece["gpu"] == 0 and piece["pid"] not in ours)


def checked(sandbox):
    """Trace and device log, after the manager's end."""
    trace = sandbox.trace("export", "--format", "json")
    return trace, sandbox.work_in_leases(trace)


def lent(sandbox):
    jobs = WithNeighbour(sandbox, STEPS, SLEEP_S)
    sandbox.start_manager(PLEXRL_POLICY_JOIN_WAIT="60s")
    jobs.start()
    jobs.expect_alike()
    jobs.finish()
    return check_waits(*checked(sandbox))


def forced(sandbox):
    sandbox.gpus = 2
    program = slow_rank(sandbox, FORCED_STEPS, FORCED_SLEEP_S)
    memory = {"PLEXRL_TEST_BALLAST": BALLAST}
    alone = sandbox.wait(sandbox.alone(program, "alone", **memory))
    sandbox.start_manager(**FORCED)
    jobs = [sandbox.shared(program, name, **memory) for name in ("ada", "bob")]
    for job in jobs:
        if sandbox.wait(job) != alone:
            raise Failure(f"{job.name} printed something else than alone")
    sandbox.stop_manager()
    trace, work = checked(sandbox)
    for job in trace["summary"]["jobs"]:
        out, back = lease_check.evictions_and_restores([move for move in trace["paging"] if move["job"] == job["id"]])
        if out < 2 or back < 2:
            raise Failure(f"{job['name']} was evicted {out} times and restored {back} times: nothing was forced")
    return f"same bytes; {len(trace['swaps'])} switches, {len(work)} pieces of work in their leases"


def killed_rank(sandbox):
    jobs = WithNeighbour(sandbox, STEPS, SLEEP_S)
    sandbox.start_manager(PLEXRL_POLICY_JOIN_WAIT="60s")
    jobs.start()
    jobs.wait_for_meeting()
    os.kill(jobs.collectives(1)[0]["pid"], signal.SIGKILL)
    os.kill(jobs.collectives(0)[0]["pid"], signal.SIGKILL)  # as a launcher does with the rest: alone it would wait for ever, too
    sandbox.wait(jobs.ranks, expected=1)
    before = jobs.neighbours_work()
    wait_until(lambda: jobs.neighbours_work() > before, "the neighbour goes on", jobs.neighbour)
    jobs.finish()
    checked(sandbox)
    return "the neighbour went on"


def killed_manager(sandbox):
    jobs = WithNeighbour(sandbox, STEPS, SLEEP_S)
    jobs.start(PLEXRL_POLICY_JOIN_WAIT="60s")  # plexrl-run starts the manager, and the next one
    jobs.wait_for_meeting()
    first = sandbox.ask_manager("status")["manager"]["pid"]
    os.kill(first, signal.SIGKILL)
    jobs.expect_alike()
    if sandbox.ask_manager("status")["manager"]["pid"] == first:
        raise Failure("the manager was not killed")
    jobs.finish()  # the trace of a manager that was killed is not whole
    return "same bytes with a second manager"


def check_waits(trace, work):
    mine = [piece for piece in work if piece["gpu"] == 0 and piece["name"] == KERNEL]
    if len(mine) != STEPS:
        raise Failure(f"{len(mine)} collectives on GPU 0, not {STEPS}")
    later = mine[LEARNT:]
    on_gpu_s = sum(piece["end_ns"] - piece["start_ns"] for piece in later) / 1e9
    if on_gpu_s > SLEEP_S * len(later) / 2:
        raise Failure(f"the first rank's collectives still held its GPU for {on_gpu_s:.1f} s")
    neighbours = {process["pid"] for process in trace["processes"]} - {piece["pid"] for piece in mine}
    gaps = [(before["end_ns"], after["start_ns"]) for before, after in zip(mine[LEARNT - 1:], later)]
    for start, end in gaps:
        if not any(piece["gpu"] == 0 and piece["pid"] in neighbours and start < piece["start_ns"] and piece["end_ns"] < end
                   for piece in work):
            raise Failure(f"nobody else had GPU 0 between the collectives at {start} and {end}")
    return f"same bytes; {len(gaps)} waits of {SLEEP_S} s lent, {on_gpu_s:.2f} s of them on the GPU"


if __name__ == "__main__":
    CASES = {case.__name__: case for case in (lent, forced, killed_rank, killed_manager)}
    sys.exit(run_case(__doc__, CASES, SPEC, memory="160MiB"))
