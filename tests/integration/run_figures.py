#!/usr/bin/env python3
"""Has a job use the simulated GPU about half of the time, and compares what plexrl-ctl says of it with the trace of the same run.

Both come from the same edges, so they must agree however fast the machine is. Exit 0 passed, 1 failed.
"""
import argparse
import sys
import time

from sandbox import PATIENCE_S, Failure, Sandbox

SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
ROUNDING = 0.02  # the two reports begin to count some milliseconds apart


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"after {PATIENCE_S} s still not: {what}")
        time.sleep(0.05)


def busy_by_trace(trace, asked_ns):
    """Seconds of the running slices until the gap in which plexrl-ctl was asked, less the gaps in them."""
    gaps = sorted((gap["mono_ns"], gap["mono_ns"] + gap["length_ns"]) for gap in trace["gaps"])
    end = max((start for start, end in gaps if start <= asked_ns <= end), default=None)
    if end is None:
        raise Failure(f"plexrl-ctl says that the job was idle at {asked_ns}, the trace has no gap there: {gaps}")
    busy = 0
    for piece in trace["slices"]:
        if piece["state"] != "running":
            continue
        first, last = piece["start_mono_ns"], min(piece["end_mono_ns"], end)
        busy += max(0, last - first) - sum(max(0, min(last, g_end) - max(first, g_start)) for g_start, g_end in gaps)
    return busy / 1e9, len(gaps)


def close(a, b):
    return abs(a - b) <= ROUNDING * max(a, b) + 0.02


def check_gpu(status, least_busy_s):
    gpu, age = status["gpus"][0], status["manager"]["uptime_s"]
    if not 0 < gpu["duty_ratio"] < 1 or not 0 < gpu["duty_since_start_ratio"] < 1:
        raise Failure(f"a GPU that was busy and idle in turn: {gpu}")
    busy = gpu["duty_since_start_ratio"] * age
    if busy < least_busy_s * (1 - ROUNDING):
        raise Failure(f"busy for {busy:.3f} s, the kernels alone took {least_busy_s:.3f} s")
    if gpu["out_bytes"] != 0 or gpu["out_bytes_s"] != 0:
        raise Failure(f"bytes left, though nobody else was there: {gpu}")
    return busy


def check_job(job):
    if job["share_ratio"] != 1:
        raise Failure(f"the only job has all of the time granted, not {job['share_ratio']}")
    if job["slowdown_ratio"] is None or job["slowdown_ratio"] < 1:
        raise Failure(f"slowdown {job['slowdown_ratio']}")
    if job["next_wake_s"] is None:
        raise Failure("it is idle and has had gaps, but its next wake is not known")


def run(sandbox):
    sandbox.start_manager()
    program = sandbox.shared([sandbox.build / "tests/integration/programs/half_busy"], "half_busy",
                             PLEXRL_TEST_PEER=sandbox.peer_file)
    wait_until(lambda: sandbox.peer()["pauses"] == 1 or program.poll() is not None, "the program's last pause")

    def idle_status():
        # Its last edge may still be on the way; an idle gang has a next wake.
        sandbox.status = sandbox.tool("plexrl-ctl", "status", "--json")
        return sandbox.status["jobs"] and sandbox.status["jobs"][0]["next_wake_s"] is not None

    wait_until(idle_status, "the job is idle")
    sandbox.stop_antagonist()  # the word that half_busy waits for
    output = sandbox.wait(program).decode()
    sandbox.stop_manager()
    manager = sandbox.status["manager"]
    busy = check_gpu(sandbox.status, int(output.split()[1]) / 1e9)
    check_job(sandbox.status["jobs"][0])
    traced, gaps = busy_by_trace(sandbox.trace("export", "--format", "json"),
                                 manager["started_mono_ns"] + int(manager["uptime_s"] * 1e9))
    if not close(busy, traced):
        raise Failure(f"plexrl-ctl: busy for {busy:.3f} s; trace: {traced:.3f} s")
    return busy, traced, gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="the build folder")
    options = parser.parse_args()
    with Sandbox(options.build, memory="192MiB", spec=SPEC) as sandbox:
        try:
            busy, traced, gaps = run(sandbox)
        except Failure as failure:
            print(f"FAILED: {failure}")
            for process in sandbox.started:
                print(f"---- {process.name}: {sandbox.errors(process.name).strip()}")
            return 1
    print(f"busy for {busy:.3f} s by plexrl-ctl, {traced:.3f} s by the trace, with {gaps} gaps")
    return 0


sys.exit(main())
