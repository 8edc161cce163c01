#!/usr/bin/env python3
"""A driver that fails once, at each call that takes memory: the job gets the driver's answer, nothing is left behind, and the next
attempt succeeds. Exit 0 passed, 1 failed.

errors: what the driver refuses for another reason than room is answered as by the bare driver.
no_room: where it has no room the job waits, and its first attempt succeeds.
"""
import sys

from sandbox import Failure, run_case, wait_until

# The driver's call, and the kind of memory that the program takes by it (programs/failed_calls.cc).
CALLS = {"cuArrayCreate": "array", "cuArray3DCreate": "array3d", "cuMipmappedArrayCreate": "mipmapped", "cuMemAllocManaged": "managed",
         "cuTexObjectCreate": "texture", "cuSurfObjectCreate": "surface", "cuGraphInstantiateWithFlags": "graph",
         "cuGraphLaunch": "graph", "cuMemPoolCreate": "pool"}
TAKES_NOTHING = {"cuMemPoolCreate"}  # by itself
OUT_OF_MEMORY, OPERATING_SYSTEM = 2, 304


def lines(output):
    return [line for line in output.decode().splitlines() if line.startswith(("attempt", "  "))]


def attempt_twice(sandbox, call, code):
    """The program with a driver that fails, shared; looks after each attempt that the books are the GPU's."""
    kind = CALLS[call]
    name = f"{call}_{code}"
    peer = sandbox.make_peer(f"{name}.peer")
    program = sandbox.shared([sandbox.build / "tests/integration/programs/failed_calls", kind], name, PLEXRL_TEST_PEER=peer,
                             PLEXRL_SIMGPU=sandbox.spec(more=f"fail={call}@1:{code}"))
    for attempt in (1, 2):
        wait_until(lambda its=attempt: f"attempt {its}".encode() in sandbox.output(name).read_bytes(), f"{name}: attempt {attempt}", program)

        def rows_are_the_gpus():
            rows = sandbox.memory_rows()
            sandbox.last = [(row["kind"], row["tier"], row["bytes"]) for row in rows]
            told = sum(row["bytes"] for row in rows if row["tier"] == "hbm")
            taken = {row["kind"] for row in rows} & {"array", "managed", "graph", "pool"}
            return bool(rows) and not taken and told == sandbox.gpu_bytes(rows[0]["pid"])

        wait_until(rows_are_the_gpus, f"{name}: after attempt {attempt} the rows are what the GPU shows, and none is left", program,
                   lambda: sandbox.last)
        sandbox.end_pause(program, peer, attempt)
    output = sandbox.wait(program)
    wait_until(lambda: not sandbox.ask_manager("jobs")["jobs"], f"{name} has gone")
    return lines(output)


def by_bare_driver(sandbox, call, code, fails=True):
    more = f"fail={call}@1:{code}" if fails else ""
    program = sandbox.alone([sandbox.build / "tests/integration/programs/failed_calls", CALLS[call]], f"{call}_alone", more)
    return lines(sandbox.wait(program))


def expect_same(call, shared, bare):
    if shared != bare:
        raise Failure(f"{call}: the outputs differ\nbare:   {bare}\nshared: {shared}")


def errors(sandbox):
    sandbox.start_manager()
    failed = 0
    for call in CALLS:
        bare = by_bare_driver(sandbox, call, OPERATING_SYSTEM)
        failed += any("CUDA_ERROR_OPERATING_SYSTEM, all free again: 1" in line for line in bare)
        expect_same(call, attempt_twice(sandbox, call, OPERATING_SYSTEM), bare)
    if failed < len(CALLS):
        raise Failure(f"only {failed} of {len(CALLS)} calls failed as told")
    return f"{failed} calls that failed for once: the driver's answer, nothing left, and the next attempt succeeded"


def no_room(sandbox):
    sandbox.start_manager()
    for call in {*CALLS} - TAKES_NOTHING:
        expect_same(call, attempt_twice(sandbox, call, OUT_OF_MEMORY), by_bare_driver(sandbox, call, OUT_OF_MEMORY, fails=False))
    return f"{len({*CALLS} - TAKES_NOTHING)} calls that found no room at first waited for it"


if __name__ == "__main__":
    sys.exit(run_case(__doc__, {"errors": errors, "no_room": no_room}, "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"))
