#!/usr/bin/env python3
"""Waiting for the GPU is harmless: programs that wait, or that may not, while another job has the GPU. Exit 0 passed, 1 failed.

gives_back: calls that only give something back return while the job gets no GPU, however long that is.
heartbeat: a thread's heartbeat to another process, and what it asks of the driver, go on while the main thread waits in a call.
checkpoint: a handler of SIGTERM copies the job's memory from a GPU that another job is using, and all of it is right.

Each program first runs alone, and must then print the same. In the first two cases the job is paused (plexrl-ctl) until the test has
seen what it waits for, so a call that did wait would never return.
"""
import subprocess
import sys

import lease_check
from sandbox import Failure, run_case, wait_until

MIB = 1 << 20
MEMORY = {"PLEXRL_TEST_BALLAST": 64 * MIB, "PLEXRL_TEST_ANTAGONIST": 48 * MIB}
BEATS = 100  # sent and answered while the main thread waits; each asks the driver four things
CHECKPOINTED = 3  # the status of a program that has written its checkpoint


class Waiting:
    """A program beside a neighbour that is on the GPU all the time, with words between it and the test in a page of its own."""

    def __init__(self, sandbox, name, expected=0):
        self.sandbox, self.name = sandbox, name
        self.command = [sandbox.build / "tests/integration/programs" / name]
        self.alone = sandbox.wait(sandbox.alone(self.command, "alone", **MEMORY), expected)
        if not self.alone:
            raise Failure(f"{name} printed nothing")
        sandbox.start_manager()
        self.program = sandbox.shared(self.command, name, PLEXRL_TEST_PEER=sandbox.peer_file, **MEMORY)
        self.wait_until(lambda: sandbox.peer()["pauses"] == 1, "it is ready")

    def job(self):
        return next(job for job in self.sandbox.ask_manager("jobs")["jobs"] if job["name"] == self.name)

    def start_neighbour(self):
        """Returns when the neighbour has the GPU and memory of the program is in the host."""
        self.neighbour_page = self.sandbox.make_peer("neighbour.peer")
        self.neighbour = self.sandbox.shared([self.sandbox.build / "tests/integration/programs/antagonist"], "neighbour",
                                             PLEXRL_TEST_PEER=self.neighbour_page, **MEMORY)
        self.wait_until(lambda: self.job()["host_bytes"] > 0, "its memory is in the host")

    def control(self, verb):
        subprocess.run([str(self.sandbox.prefix / "bin/plexrl-ctl"), verb, self.name], env=self.sandbox.environment(), check=True,
                       stdout=subprocess.DEVNULL)

    def pause(self):
        self.control("pause")
        self.wait_until(lambda: self.job()["state"] == "paused", "it is paused")

    def say_go(self):
        self.sandbox.stop_antagonist()  # the program's own page

    def wait_until(self, condition, what):
        wait_until(condition, what, self.program, lambda: f"it printed\n{self.sandbox.output(self.name).read_text()}")

    def expect_right(self, expected=0):
        """It ends, having printed what it prints alone; its memory left and came back; the work of both was in their leases."""
        output = self.sandbox.wait(self.program, expected)
        if output != self.alone:
            raise Failure(f"{self.name} printed\n{output.decode()}\nand alone\n{self.alone.decode()}")
        self.sandbox.stop_antagonist(self.neighbour_page)
        self.sandbox.wait(self.neighbour)
        self.sandbox.stop_manager()
        trace = self.sandbox.trace("export", "--format", "json")
        job = next(job["id"] for job in trace["summary"]["jobs"] if job["name"] == self.name)
        moves = lease_check.evictions_and_restores([move for move in trace["paging"] if move["job"] == job])
        work = lease_check.read_device_log(self.sandbox.device_log)
        found = list(lease_check.violations(trace, work))
        if min(moves) == 0 or not work or found:
            raise Failure(f"{moves[0]} evictions, {moves[1]} restores; {len(found)} of {len(work)} pieces of work:\n"
                          + "\n".join(found[:10]))


def gives_back(sandbox):
    waiting = Waiting(sandbox, "gives_back")
    waiting.pause()
    waiting.start_neighbour()
    waiting.say_go()
    waiting.wait_until(lambda: sandbox.peer()["pauses"] == 2, "all was given back")
    calls = sandbox.output("gives_back").read_text().splitlines()
    if waiting.job()["state"] != "paused":
        raise Failure(f"the job is {waiting.job()['state']}, not paused any more")
    waiting.control("resume")
    waiting.expect_right()
    return f"{len(calls)} calls returned while the GPU was another job's"


def heartbeat(sandbox):
    waiting = Waiting(sandbox, "heartbeat")
    waiting.pause()
    waiting.start_neighbour()
    waiting.say_go()
    waiting.wait_until(lambda: sandbox.peer()["pauses"] > 1, "the main thread waits")
    first = sandbox.peer()["pauses"]
    waiting.wait_until(lambda: sandbox.peer()["pauses"] >= first + BEATS, f"{BEATS} beats while it waits")
    waiting.control("resume")
    waiting.expect_right()
    return f"{BEATS} beats and more while the main thread waited for the GPU"


def checkpoint(sandbox):
    waiting = Waiting(sandbox, "checkpoint_handler", CHECKPOINTED)
    waiting.start_neighbour()
    waiting.program.terminate()
    waiting.expect_right(CHECKPOINTED)
    return "the handler's copy waited for the GPU and has the right bytes"


CASES = {"gives_back": gives_back, "heartbeat": heartbeat, "checkpoint": checkpoint}


sys.exit(run_case(__doc__, CASES, "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"))
