#!/usr/bin/env python3
"""Two jobs at once, each of which takes all the device memory that it is told is free (programs/takes_all_free.cc): both run to their
end, with the right bytes, and together they have more than the GPU. Exit 0 passed, 1 failed.
"""
import sys

import lease_check
from sandbox import Failure, run_case

MIB = 1 << 20
MEMORY = 192 * MIB
SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"


def takes_all_free(sandbox):
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
    trace = sandbox.trace("export", "--format", "json")
    for job in trace["summary"]["jobs"]:
        out, back = lease_check.evictions_and_restores([move for move in trace["paging"] if move["job"] == job["id"]])
        if out == 0 or back == 0:
            raise Failure(f"{job['name']} was evicted {out} times and restored {back} times")
    found = list(lease_check.violations(trace, lease_check.read_device_log(sandbox.device_log)))
    if found:
        raise Failure("\n".join(found[:10]))
    return f"two jobs had {sum(taken) >> 20} MiB of a GPU of {MEMORY >> 20} MiB, and their bytes were right"


sys.exit(run_case(__doc__, {"takes_all_free": takes_all_free}, SPEC, f"{MEMORY >> 20}MiB"))
