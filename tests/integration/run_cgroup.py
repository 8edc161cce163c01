#!/usr/bin/env python3
"""A node manager inside a memory cgroup. usage: run_cgroup.py CASE --build DIR. Exit 0 passed, 1 failed, 77 skipped.

promises: without [host] budget the manager promises no more than its cgroup leaves: the third of three jobs (turns.py) is refused with
the figures, though the machine has far more memory; two take turns, host memory is charged to the manager's cgroup, nobody is killed
for it, and their bytes are right.

budget: the same with a [host] budget of more than the cgroup has: the manager says so when it starts, and the third job, which does not
wait, is refused with what there is.
"""
import pathlib
import secrets
import sys

from sandbox import SKIPPED, Failure, run_case, wait_until
from turns import MEMORY, MIB, OVERHEAD, PROMISE, QUICK, RESERVE, SPEC, Turns, check_trace

LIMIT = 170 * MIB  # room for what two promises exceed the GPU by and for the manager itself, not for three
SECOND = 2 * (PROMISE + OVERHEAD) - (MEMORY - RESERVE)


class Cgroup:
    """A memory cgroup with a limit: of version 2, or of version 1 where the memory controller is there. OSError where none can be made."""

    def __init__(self, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        self.is_v2 = (root / "cgroup.controllers").exists()
        name = "plexrl-test-" + secrets.token_hex(6)
        self.folder = root / name if self.is_v2 else root / "memory" / name
        if self.is_v2 and "memory" not in (root / "cgroup.subtree_control").read_text().split():
            raise OSError("the memory controller is not enabled for cgroups below the root's")
        if not self.folder.parent.exists():
            raise OSError(f"there is no {self.folder.parent}")
        self.folder.mkdir()
        try:
            (self.folder / ("memory.max" if self.is_v2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError:
            self.folder.rmdir()
            raise

    def used_bytes(self):
        return int((self.folder / ("memory.current" if self.is_v2 else "memory.usage_in_bytes")).read_text())

    def kills(self):
        """Of processes in it, for want of memory."""
        lines = (self.folder / ("memory.events" if self.is_v2 else "memory.oom_control")).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def words(self):
        """That start a command inside of it."""
        return ["sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh"]

    def remove(self):
        def is_removed():
            try:
                self.folder.rmdir()
            except OSError:
                return False  # a process that has been killed is still there
            return True

        wait_until(is_removed, "an empty cgroup")


def promises(sandbox):
    sandbox.start_manager(through=CGROUP.words(), **QUICK)
    budget = sandbox.ask_manager("status")["manager"]["host_budget_bytes"]
    if not SECOND <= budget <= LIMIT // 5 * 4:
        raise Failure(f"in a cgroup of {LIMIT} bytes the manager's host budget is {budget}")
    two_of_three(sandbox, budget, "the budget of host memory is")
    return f"in a memory cgroup of {LIMIT >> 20} MiB the manager had {budget >> 20} MiB for promises, and kept them"


def budget(sandbox):
    sandbox.start_manager(through=CGROUP.words(), PLEXRL_HOST_BUDGET="8GiB", **QUICK)
    if "host.budget = 8GiB is more than" not in sandbox.errors("nodemgr"):
        raise Failure(f"the manager does not say that its budget is too large: {sandbox.errors('nodemgr')}")
    two_of_three(sandbox, LIMIT, "of host memory are to be had now (budget 8GiB)")
    return f"with a host budget of 8 GiB in a memory cgroup of {LIMIT >> 20} MiB the manager promised what there was, and kept that"


def two_of_three(sandbox, most, reason):
    """Two jobs take turns within `most` bytes of host memory; a third is refused."""
    turns = Turns(sandbox, count=2).start_all()
    turns.wait_for_rounds(2, of=(0, 1))
    refused = turns.start(2)
    sandbox.wait(refused, expected=125)
    if not all(words in sandbox.errors("job2") for words in ("host memory: all promises together need", reason)):
        raise Failure(f"job2 was refused with: {sandbox.errors('job2')}")
    wait_until(lambda: sandbox.ask_manager("status")["manager"]["host_used_bytes"] > 0, "memory in slabs", beside=tuple(turns.jobs[:2]))
    slabs, used = sandbox.ask_manager("status")["manager"]["host_used_bytes"], CGROUP.used_bytes()
    if not 0 < slabs <= most or used > LIMIT:
        raise Failure(f"slabs have {slabs} bytes of {most}, the cgroup {used} of {LIMIT}")
    turns.wait_for_rounds(2, of=(0, 1))
    turns.end((0, 1))
    if CGROUP.kills() != 0 or sandbox.manager.poll() is not None:
        raise Failure(f"{CGROUP.kills()} processes were killed for want of memory")
    sandbox.stop_manager()
    check_trace(sandbox)


CASES = {"promises": promises, "budget": budget}
try:
    CGROUP = Cgroup(LIMIT)
except OSError as error:
    print(f"skipped: no memory cgroup can be made here: {error}")
    sys.exit(SKIPPED)
try:
    status = run_case(__doc__, CASES, SPEC, f"{MEMORY >> 20}MiB")
finally:
    CGROUP.remove()
sys.exit(status)
