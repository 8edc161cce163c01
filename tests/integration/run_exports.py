#!/usr/bin/env python3
"""Who can open what a job exports, with a real node manager and plexrl-run. Exit 0 passed, 1 failed.

held: with --export=real the memory is on the GPU for good; `plexrl-ctl memory` and `jobs` count it, by name and reason, and no longer
when the job has ended.
refused: without it a process outside of PlexRL gets the driver's error.
refused_job: and so does a process of another job, which is told what to do.
"""
import os
import sys

from sandbox import Failure, run_case, wait_until

PROGRAM = "tests/integration/programs/exported_memory"
BYTES = 4 << 20  # of each of the two exports (programs/exported_memory.cc)


def held(sandbox):
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    sandbox.start_manager()
    job = sandbox.shared([sandbox.build / PROGRAM, "hold", fifo], "exporter", ["--export=real"])
    wait_until(lambda: b"exported" in sandbox.output("exporter").read_bytes(), "the export", job)

    def rows(kind):
        return [(row["pageable"], row["bytes"], row["reason"]) for row in sandbox.tool("plexrl-ctl", "memory", "--json")["memory"]
                if row["kind"] == kind and row["pageable"] != "yes"]

    pinned = [("pinned", BYTES, "exported to any process (--export=real)")]
    wait_until(lambda: rows("vmm") == pinned and len(rows("pool")) == 1, "rows of what was exported", job, lambda: rows("vmm"))
    state, size, reason = rows("pool")[0]
    if (state, size) != ("no", BYTES) or "other machines or jobs" not in reason:
        raise Failure(f"the pool is shown as {rows('pool')}")
    fixed = sandbox.tool("plexrl-ctl", "jobs", "--json")["jobs"][0]["unpageable_bytes"]
    if fixed < 2 * BYTES:
        raise Failure(f"{fixed} bytes count as unpageable, {2 * BYTES} are exported")
    fifo.write_bytes(b"x")
    sandbox.wait(job)
    wait_until(lambda: not sandbox.tool("plexrl-ctl", "memory", "--json")["memory"], "end of the job's memory", sandbox.manager)
    return "what is exported for real is counted by name and reason until the job ends"


def expect_refusals(output, handle, pool):
    wanted = f"handle: {handle}\npool: {pool}\n"
    if not output.decode().startswith(wanted):
        raise Failure(f"the stranger got\n{output.decode()}not\n{wanted}")


def refused(sandbox):
    sandbox.start_manager()
    job = sandbox.shared([sandbox.build / PROGRAM, "refused"], "exporter")
    expect_refusals(sandbox.wait(job), "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_VALUE")
    return "a process outside of PlexRL can't open what a job exports to itself"


def refused_job(sandbox):
    sandbox.start_manager()
    job = sandbox.shared([sandbox.build / PROGRAM, "refused-job"], "exporter", ["--memory", "64MiB"],
                         PLEXRL_TEST_RUN=sandbox.prefix / "bin/plexrl-run")
    expect_refusals(sandbox.wait(job), "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_VALUE")
    said = sandbox.errors("exporter")
    if said.count("--export=real") != 2:
        raise Failure(f"it was not told why: {said!r}")
    return "a process of another job can't open what a job exports to itself, and is told why"


CASES = {"held": held, "refused": refused, "refused_job": refused_job}


sys.exit(run_case(__doc__, CASES, "link=4GB/s,hbm=40GB/s,ctx=4MiB"))
