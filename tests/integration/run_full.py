#!/usr/bin/env python3
"""Jobs that fill the memory that there is. usage: run_full.py CASE --build DIR. Exit 0 passed, 1 failed.

two_take_all: two jobs at once, each of which takes all the device memory that it is told is free (programs/takes_all_free.cc): both run
to their end, with the right bytes, and together they have more than the GPU.
three_take_turns: three jobs (programs/takes_turns.cc) whose promises fill GPU and host memory; none ends before each has had the GPU
again and again, so host memory has to go from one to the next.
three_and_deaths: the same; managers are killed meanwhile, and one of the jobs.
"""
import os
import signal
import struct
import sys

import lease_check
from sandbox import Failure, run_case, wait_until

MIB = 1 << 20
MEMORY = 192 * MIB
SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"


def check_trace(sandbox):
    """Every job was evicted and restored, and the trace and the device log agree."""
    trace = sandbox.trace("export", "--format", "json")
    for job in trace["summary"]["jobs"]:
        out, back = lease_check.evictions_and_restores([move for move in trace["paging"] if move["job"] == job["id"]])
        if out == 0 or back == 0:
            raise Failure(f"{job['name']} was evicted {out} times and restored {back} times")
    found = list(lease_check.violations(trace, lease_check.read_device_log(sandbox.device_log)))
    if found:
        raise Failure("\n".join(found[:10]))


def two_take_all(sandbox):
    sandbox.start_manager()
    rounds = sandbox.folder / "rounds"
    rounds.write_bytes(bytes(4096))
    program = sandbox.build / "tests/integration/programs/takes_all_free"
    jobs = [sandbox.shared([program, str(index), rounds], f"job{index}") for index in range(2)]
    taken = []
    for job in jobs:
        words = sandbox.wait(job).decode().split()
        if words[:1] != ["took"]:
            raise Failure(f"{job.name} printed {words}")
        taken.append(int(words[1]))
    sandbox.stop_manager()
    if sum(taken) <= MEMORY or min(taken) < MEMORY // 2:
        raise Failure(f"the jobs took {taken} bytes of a GPU of {MEMORY}: that is no test")
    check_trace(sandbox)
    return f"two jobs had {sum(taken) >> 20} MiB of a GPU of {MEMORY >> 20} MiB, and their bytes were right"


class Turns:
    """Three jobs (programs/takes_turns.cc) whose promises fill GPU and host memory, with a manager of theirs."""

    def __init__(self, sandbox, rounds):
        promise, overhead = 112 * MIB, MEMORY // 16
        reserve = MEMORY // 32  # that loading leaves free
        environment = {"PLEXRL_HOST_BUDGET": str(3 * (promise + overhead) - (MEMORY - reserve)),
                       "PLEXRL_POLICY_SWITCH_SHARE": "1", "PLEXRL_POLICY_QUANTUM_FACTOR": "2"}  # turns are short
        self.sandbox, self.page = sandbox, sandbox.folder / "rounds"
        self.page.write_bytes(bytes(4096))
        self.set_word(3, rounds)
        program = sandbox.build / "tests/integration/programs/takes_turns"
        self.jobs = [sandbox.shared([program, str(index), "3", self.page, str(promise - 8 * MIB)], f"job{index}",
                                    options=["--memory", str(promise), "--no-wait"], **environment) for index in range(3)]

    def rounds(self):
        return struct.unpack_from("<3Q", self.page.read_bytes())

    def set_word(self, index, value):
        with open(self.page, "r+b", buffering=0) as page:
            page.seek(8 * index)
            page.write(struct.pack("<Q", value))

    def wait_for_rounds(self, more, of=(0, 1, 2)):
        """Until each of these jobs has done so many more."""
        before = self.rounds()
        wait_until(lambda: all(self.rounds()[index] >= before[index] + more for index in of), f"{more} more rounds of each",
                   beside=tuple(self.jobs[index] for index in of), seen=lambda: str(self.rounds()))

    def expect_right(self, indices=(0, 1, 2)):
        for job in (self.jobs[index] for index in indices):
            printed = self.sandbox.wait(job).decode().splitlines()
            if "all rounds were right" not in printed:
                raise Failure(f"{job.name} printed {printed}")
        # plexrl-run started the manager, which ends after its last job; what it has traced is complete then.
        wait_until(lambda: not self.sandbox.socket.exists(), "the manager's end")


def three_take_turns(sandbox):
    turns = Turns(sandbox, rounds=3)
    turns.expect_right()
    check_trace(sandbox)
    return f"three jobs took turns on a GPU of {MEMORY >> 20} MiB that had room for one and a half, their bytes were right"


def three_and_deaths(sandbox):
    turns = Turns(sandbox, rounds=1 << 62)
    for _ in range(3):
        turns.wait_for_rounds(1)
        os.kill(sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"], signal.SIGKILL)
    turns.wait_for_rounds(1)
    os.killpg(turns.jobs[2].pid, signal.SIGKILL)
    turns.wait_for_rounds(2, of=(0, 1))
    turns.set_word(2, (1 << 64) - 1)  # its end is not waited for
    turns.set_word(3, max(turns.rounds()[:2]))
    turns.expect_right((0, 1))
    return "managers and a job were killed while three jobs took turns, the others went on and their bytes were right"


CASES = {"two_take_all": two_take_all, "three_take_turns": three_take_turns, "three_and_deaths": three_and_deaths}
sys.exit(run_case(__doc__, CASES, SPEC, f"{MEMORY >> 20}MiB"))
