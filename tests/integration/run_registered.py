#!/usr/bin/env python3
"""Memory that is registered with a NIC, with a real node manager and plexrl-run. Exit 0 passed, 1 failed.

shown: `plexrl-ctl memory` tells of it, by kind and reason, from the registration on and until that ends.
"""
import os
import sys

from sandbox import Failure, run_case, wait_until

PROGRAM = "tests/integration/programs/nic_registration"
BYTES = 8 << 20  # what it registers (programs/nic_registration.cc)


def shown(sandbox):
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    sandbox.start_manager()
    job = sandbox.shared([sandbox.build / PROGRAM, "hold", fifo], "registrar")
    wait_until(lambda: b"registered" in sandbox.output("registrar").read_bytes(), "the registration", job)

    def rows(pageable):
        return [(row["kind"], row["tier"], row["bytes"], row["reason"]) for row in sandbox.tool("plexrl-ctl", "memory", "--json")["memory"]
                if row["pageable"] == pageable]

    def movable():
        return sum(size for _, _, size, _ in rows("yes"))

    wait_until(lambda: rows("pinned") == [("rdma", "hbm", BYTES, "registered with a NIC")],
               "row of what is registered", job, lambda: rows("pinned"))
    while_registered = movable()
    fifo.write_bytes(b"x")
    wait_until(lambda: not rows("pinned"), "end of that row", job, lambda: rows("pinned"))
    if movable() != while_registered + BYTES:
        raise Failure(f"{while_registered} bytes could be moved, and {movable()} after {BYTES} were deregistered")
    fifo.write_bytes(b"x")
    sandbox.wait(job)
    return "what is registered with a NIC is counted by kind and reason until it is deregistered"


sys.exit(run_case(__doc__, {"shown": shown}, "link=4GB/s,hbm=40GB/s,ctx=4MiB"))
