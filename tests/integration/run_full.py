#!/usr/bin/env python3
"""Jobs that fill the memory that there is. usage: run_full.py CASE --build DIR. Exit 0 passed, 1 failed.

two_take_all: two jobs at once, each of which takes all the device memory that it is told is free (programs/takes_all_free.cc): both run
to their end, with the right bytes, and together they have more than the GPU.
three_take_turns: three jobs (turns.py) whose promises fill GPU and host memory; none ends before each has had the GPU
again and again, so host memory has to go from one to the next.
three_and_deaths: the same; managers are killed meanwhile, and one of the jobs.
"""
import os
import signal
import sys

from sandbox import Failure, run_case, wait_until
from turns import MEMORY, OUTSIDE, QUICK, SPEC, Turns, check_trace

HOST = OUTSIDE  # so three promises fill GPU and host memory


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


def start_three(sandbox, **more):
    """With a manager that the first plexrl-run starts."""
    return Turns(sandbox, **more).start_all(PLEXRL_HOST_BUDGET=HOST, **QUICK)


def wait_for_manager(sandbox):
    """It ends after its last job; what it has traced is complete then."""
    wait_until(lambda: not sandbox.socket.exists(), "the manager's end")


def three_take_turns(sandbox):
    start_three(sandbox, rounds=3).expect_right()
    wait_for_manager(sandbox)
    check_trace(sandbox)
    return f"three jobs took turns on a GPU of {MEMORY >> 20} MiB that had room for one and a half, their bytes were right"


def three_and_deaths(sandbox):
    turns = start_three(sandbox)
    for _ in range(3):
        turns.wait_for_rounds(1)
        os.kill(sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"], signal.SIGKILL)
    turns.wait_for_rounds(1)
    os.killpg(turns.jobs[2].pid, signal.SIGKILL)
    turns.wait_for_rounds(2, of=(0, 1))
    turns.do_without(2)
    turns.end((0, 1))
    wait_for_manager(sandbox)
    return "managers and a job were killed while three jobs took turns, the others went on and their bytes were right"


CASES = {"two_take_all": two_take_all, "three_take_turns": three_take_turns, "three_and_deaths": three_and_deaths}
sys.exit(run_case(__doc__, CASES, SPEC, f"{MEMORY >> 20}MiB"))
