#!/usr/bin/env python3
"""Many processes of a job begin with CUDA at once: each has its turn with the manager, and none runs unshared.

Passes if all of them computed the right thing, the manager knew each, none said anything, and nothing ran on the GPU outside its
gang's lease. Exit 0 passed, 1 failed.
"""
import sys

import lease_check
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
    work = lease_check.read_device_log(sandbox.device_log)
    found = list(lease_check.violations(sandbox.trace("export", "--format", "json"), work))
    if len(work) < COUNT or found:
        raise Failure(f"{len(found)} of {len(work)} pieces of work:\n" + "\n".join(found[:10]))
    return f"{COUNT} processes at once, all shared, {len(work)} pieces of work in their leases"


sys.exit(run_case(__doc__, {"many_processes": many_processes}, SPEC, MEMORY))
