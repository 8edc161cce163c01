"""Jobs that take the GPU from each other again and again (programs/takes_turns.cc), check all their bytes and write new ones, on a
GPU that has room for one and a half of three.
"""
import struct

import lease_check
from sandbox import Failure, wait_until

MIB = 1 << 20
MEMORY = 192 * MIB
CHUNK = 2 * MIB  # MEMORY / 64, in whole MiB of 2
PROMISE, OVERHEAD, RESERVE = 112 * MIB, MEMORY // 16, MEMORY // 32
OUTSIDE = 3 * (PROMISE + OVERHEAD) - (MEMORY - RESERVE)  # what promises and overheads of three exceed the GPU by
SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
# Turns are short.
QUICK = {"PLEXRL_POLICY_SWITCH_SHARE": "1", "PLEXRL_POLICY_QUANTUM_FACTOR": "2"}
NEVER = (1 << 64) - 1  # rounds of a job whose end the others don't wait for


class Turns:
    """`count` of them, which end when each has done so many rounds as the page's last word says."""

    def __init__(self, sandbox, count=3, rounds=1 << 62):
        self.sandbox, self.page = sandbox, sandbox.folder / "rounds"
        self.page.write_bytes(bytes(4096))
        self.count = count
        self.end_at(rounds)
        self.jobs = []

    def start(self, index, options=("--no-wait",), **more):
        program = self.sandbox.build / "tests/integration/programs/takes_turns"
        job = self.sandbox.shared([program, str(index), str(self.count), self.page, str(PROMISE - 8 * MIB)], f"job{index}",
                                  options=["--memory", str(PROMISE), *options], **more)
        self.jobs.append(job)
        return job

    def start_all(self, **more):
        for index in range(self.count):
            self.start(index, **more)
        return self

    def rounds(self):
        return struct.unpack_from(f"<{self.count}Q", self.page.read_bytes())

    def set_word(self, index, value):
        with open(self.page, "r+b", buffering=0) as page:
            page.seek(8 * index)
            page.write(struct.pack("<Q", value))

    def end_at(self, rounds):
        self.set_word(self.count, rounds)

    def do_without(self, index):
        """The job has ended, or will: the others don't wait for it."""
        self.set_word(index, NEVER)

    def wait_for_rounds(self, more, of=(0, 1, 2)):
        """Until each of these jobs has done so many more."""
        before = self.rounds()
        wait_until(lambda: all(self.rounds()[index] >= before[index] + more for index in of), f"{more} more rounds of each",
                   beside=tuple(self.jobs[index] for index in of), seen=lambda: str(self.rounds()))

    def end(self, of=(0, 1, 2)):
        """At a round that none of these has done yet; and their bytes were right."""
        self.end_at(max(self.rounds()[index] for index in of))
        self.expect_right(of)

    def expect_right(self, of=(0, 1, 2)):
        for job in (self.jobs[index] for index in of):
            printed = self.sandbox.wait(job).decode().splitlines()
            if "all rounds were right" not in printed:
                raise Failure(f"{job.name} printed {printed}")


def check_trace(sandbox):
    """Every job was evicted and restored, the trace and the device log agree; returns the bytes to disk and from disk."""
    trace = sandbox.trace("export", "--format", "json")
    for job in trace["summary"]["jobs"]:
        out, back = lease_check.evictions_and_restores([move for move in trace["paging"] if move["job"] == job["id"]])
        if out == 0 or back == 0:
            raise Failure(f"{job['name']} was evicted {out} times and restored {back} times")
    found = list(lease_check.violations(trace, lease_check.read_device_log(sandbox.device_log)))
    if found:
        raise Failure("\n".join(found[:10]))
    return tuple(sum(move["disk_bytes"] for move in trace["paging"] if (move["kind"] == "evict") == is_out) for is_out in (True, False))
