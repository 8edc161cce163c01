#!/usr/bin/env python3
"""Memory comes back before a job asks for the GPU. Exit 0 passed, 1 failed.

predicted: a job with regular gaps loses memory to a neighbour that frees its own again; what the job lost comes back in its gaps, and
nothing else than the rules allow runs meanwhile (lease_check.py). The memory stays right.
off: with prefetch_share = 0 nothing does.
"""
import sys
import time

import lease_check
from sandbox import Failure, run_case, wait_until

MIB = 1 << 20
MEMORY = {"PLEXRL_TEST_BALLAST": 72 * MIB}
GAPS = 8  # in which memory had left and could have come back


class Neighbours:
    """Both jobs on one GPU that is too small for both."""

    def __init__(self, sandbox, **manager):
        self.sandbox = sandbox
        sandbox.start_manager(**manager)
        programs = sandbox.build / "tests/integration/programs"
        self.job = sandbox.shared([programs / "regular_gaps"], "regular", PLEXRL_TEST_PEER=sandbox.peer_file, **MEMORY)
        self.other_page = sandbox.make_peer("other.peer")
        self.other = sandbox.shared([programs / "short_stays"], "other", PLEXRL_TEST_PEER=self.other_page)

    def trace(self):
        return self.sandbox.trace("export", "--format", "json")

    def windows(self, kind):
        """Of the job with the gaps. The trace is written every half a second."""
        time.sleep(0.5)
        if not (self.sandbox.state / "trace").exists():
            return []
        return [window for window in self.trace()["paging"] if window["kind"] == kind and window["pid"] in self.pids()]

    def pids(self):
        job = self.sandbox.ask_manager("jobs")["jobs"]
        return [pid for its in job if its["name"] == "regular" for gang in its["gangs"] for pid in gang["pids"]]

    def wait_until(self, condition, what):
        wait_until(condition, what, self.job)

    def end(self):
        """The whole trace, when both have ended and what they printed is right."""
        self.sandbox.stop_antagonist()
        self.sandbox.stop_antagonist(self.other_page)
        printed = self.sandbox.wait(self.job).decode()
        self.sandbox.wait(self.other)
        self.sandbox.stop_manager()
        if "memory: as computed" not in printed:
            raise Failure(f"it printed\n{printed}")
        trace = self.trace()
        broken = list(lease_check.violations(trace, lease_check.read_device_log(self.sandbox.device_log)))
        if broken:
            raise Failure("\n".join(broken[:10]))
        return trace


def came_as_foreseen(trace):
    """Bytes that came back after a decision that the job would wake soon, before the next one about it."""
    decisions = [decision for decision in trace["decisions"] if decision["kind"] == "prefetch"]
    came = 0
    for window in trace["paging"]:
        before = [decision for decision in decisions if decision["mono_ns"] <= window["asked_mono_ns"]]
        if window["kind"] == "prefetch" and before and before[-1]["reason"] == "it wakes soon":
            came += window["in_bytes"]
    return came


def predicted(sandbox):
    jobs = Neighbours(sandbox)
    jobs.wait_until(lambda: jobs.windows("prefetch") and came_as_foreseen(jobs.trace()) > 0, "memory came back before it was needed")
    trace = jobs.end()
    decisions = [decision for decision in trace["decisions"] if decision["kind"] == "prefetch"]
    if any(decision["figures"]["missing_bytes"] <= 0 or decision["figures"]["free_bytes"] <= 0 for decision in decisions):
        raise Failure(f"decisions to prefetch: {decisions}")
    came = sum(window["in_bytes"] for window in trace["paging"] if window["kind"] == "prefetch")
    return f"{came >> 20} MiB came back before they were asked for, {came_as_foreseen(trace) >> 20} of them in foreseen gaps"


def off(sandbox):
    jobs = Neighbours(sandbox, PLEXRL_POLICY_PREFETCH_SHARE="0")
    jobs.wait_until(lambda: len(jobs.windows("evict")) >= GAPS, "memory has left often")
    trace = jobs.end()
    if any(window["kind"] == "prefetch" for window in trace["paging"]):
        raise Failure("something came back")
    return "nothing came back before it was asked for"


if __name__ == "__main__":
    sys.exit(run_case(__doc__, {"predicted": predicted, "off": off}, "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=8MiB"))
