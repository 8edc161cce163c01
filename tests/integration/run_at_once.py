#!/usr/bin/env python3
"""Many processes of a job begin with CUDA at once: each has its turn with the manager, and none runs unshared.

Passes if all of them computed the right thing, the manager knew each, none said anything, and nothing ran on the GPU outside its
gang's lease. Exit 0 passed, 1 failed.
"""
import sys

from sandbox import Failure, run_case

# A context is one page of the device's memory (2 MiB), so that all find room.
MEMORY, SPEC, OVERHEAD = "512MiB", "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=1MiB", "2MiB"
COUNT = 64  # processes


def many_processes(sandbox):
    program = [sandbox.build / "tests/integration/programs/many_processes", COUNT]
    sandbox.start_manager(PLEXRL_GPU_OVERHEAD=OVERHEAD)
    job = sandbox.shared(program, "many")
    output = sandbox.wait(job).decode()
    sandbox.stop_manager()
    if output != f"{COUNT} of {COUNT} right\n":
        raise Failure(f"it printed {output}")
    if sandbox.errors("many"):
        raise Failure("not all were shared")
    joined = sandbox.errors("nodemgr").count("process joins job='many'")
    if joined != COUNT:
        raise Failure(f"{joined} of {COUNT} processes joined")
    work = sandbox.work_in_leases(sandbox.trace("export", "--format", "json"))
    if len(work) < COUNT:
        raise Failure(f"only {len(work)} pieces of work")
    return f"{COUNT} processes at once, all shared, {len(work)} pieces of work in their leases"


sys.exit(run_case(__doc__, {"many_processes": many_processes}, SPEC, MEMORY))
