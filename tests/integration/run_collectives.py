#!/usr/bin/env python3
"""What becomes of GPUs whose rank waits for another in a collective (docs/architecture.md, "Collectives across gangs").

  lent    a rank that waits long for another: its GPU is a neighbour's meanwhile, and the results are those of a run alone
"""
import sys

import lease_check
from sandbox import Failure, run_case

SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
STEPS, SLEEP_S = 6, 2  # of the second rank, before each all-reduce
LEARNT = 2  # so many of them wait on the GPU, before the ranks meet
KERNEL = "ncclDevKernel_Simulated"


def lent(sandbox):
    sandbox.gpus = 2
    program = [sandbox.build / "tests/integration/programs/slow_rank", STEPS, SLEEP_S]
    alone = sandbox.wait(sandbox.alone(program, "alone"))
    sandbox.start_manager(PLEXRL_POLICY_JOIN_WAIT="60s")
    released = sandbox.folder / "released"
    neighbour = sandbox.shared([sandbox.build / "tests/bin/rlvr", "--steps", 1, "--state-bytes", "96MiB", "--until", released], "neighbour")
    ranks = sandbox.shared(program, "ranks")
    if sandbox.wait_beside(ranks, neighbour) != alone:
        raise Failure("the ranks printed something else than alone")
    released.touch()
    sandbox.wait(neighbour)
    sandbox.stop_manager()
    trace = sandbox.trace("export", "--format", "json")
    work = lease_check.read_device_log(sandbox.device_log)
    found = list(lease_check.violations(trace, work))
    if found:
        raise Failure(f"{len(found)} of {len(work)} pieces of work:\n" + "\n".join(found[:10]))
    return check_waits(trace, work)


def check_waits(trace, work):
    mine = [piece for piece in work if piece["gpu"] == 0 and piece["name"] == KERNEL]
    if len(mine) != STEPS:
        raise Failure(f"{len(mine)} collectives on GPU 0, not {STEPS}")
    later = mine[LEARNT:]
    on_gpu_s = sum(piece["end_ns"] - piece["start_ns"] for piece in later) / 1e9
    if on_gpu_s > SLEEP_S * len(later) / 2:
        raise Failure(f"the first rank's collectives still held its GPU for {on_gpu_s:.1f} s")
    neighbours = {process["pid"] for process in trace["processes"]} - {piece["pid"] for piece in mine}
    gaps = [(before["end_ns"], after["start_ns"]) for before, after in zip(mine[LEARNT - 1:], later)]
    for start, end in gaps:
        if not any(piece["gpu"] == 0 and piece["pid"] in neighbours and start < piece["start_ns"] and piece["end_ns"] < end
                   for piece in work):
            raise Failure(f"nobody else had GPU 0 between the collectives at {start} and {end}")
    return f"same bytes; {len(gaps)} waits of {SLEEP_S} s lent, {on_gpu_s:.2f} s of them on the GPU"


if __name__ == "__main__":
    sys.exit(run_case(__doc__, {"lent": lent}, SPEC, memory="160MiB"))
