#!/usr/bin/env python3
"""Many processes of a job begin with CUDA at once: each has its turn with the manager, and none runs unshared.

Passes if all of them computed the right thing, the manager knew each, none said anything, and nothing ran on the GPU outside its
gang's lease. Exit 0 passed, 1 failed.
"""
import argparse
import sys

import lease_check
from sandbox import Failure, Sandbox

# A context is one page of the device's memory (2 MiB), so that all find room.
MEMORY, SPEC, OVERHEAD = "512MiB", "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=1MiB", "2MiB"


def run(sandbox, count):
    program = [sandbox.build / "tests/integration/programs/many_processes", count]
    sandbox.start_manager(PLEXRL_GPU_OVERHEAD=OVERHEAD)
    job = sandbox.shared(program, "many")
    output = sandbox.wait(job).decode()
    sandbox.stop_manager()
    if output != f"{count} of {count} right\n":
        raise Failure(f"it printed {output}")
    if sandbox.errors("many"):
        raise Failure("not all were shared")
    joined = sandbox.errors("nodemgr").count("process joins job='many'")
    if joined != count:
        raise Failure(f"{joined} of {count} processes joined")
    work = lease_check.read_device_log(sandbox.device_log)
    found = list(lease_check.violations(sandbox.trace("export", "--format", "json"), work))
    if len(work) < count or found:
        raise Failure(f"{len(found)} of {len(work)} pieces of work:\n" + "\n".join(found[:10]))
    return f"{count} processes at once, all shared, {len(work)} pieces of work in their leases"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--count", type=int, default=64, help="processes")
    options = parser.parse_args()
    with Sandbox(options.build, memory=MEMORY, spec=SPEC) as sandbox:
        try:
            found = run(sandbox, options.count)
        except Failure as failure:
            print(f"FAILED: {failure}")
            for process in sandbox.started:
                print(f"---- {process.name}: {sandbox.errors(process.name).strip()[-4000:]}")
            return 1
    print(found)
    return 0


sys.exit(main())
