#!/usr/bin/env python3
"""What becomes of a process that PlexRL can't wholly see, as the manager has it. Exit 0 passed, 1 failed.

In the first three the driver is the simulated one with a launch function of a new name and a newer form of cuLaunchKernel (newer_driver.cc). A
process that has only asked for such a function is shared like any other, and its memory is taken once; from its first call on it
keeps its GPU, by name, to its end.

unknown_by_name: found with dlsym. unknown_by_version: with cuGetProcAddress. newer_form: cuLaunchKernel as of CUDA 13.2.
other_cxx_runtime: a program whose C++ runtime is not the system's.
"""
import os
import sys
import time

from sandbox import PATIENCE_S, Failure, run_case

MIB = 1 << 20
SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
MEMORY = {"PLEXRL_TEST_BALLAST": 64 * MIB, "PLEXRL_TEST_ANTAGONIST": 48 * MIB}


def under_newer_driver(sandbox, way, fifo):
    program = sandbox.build / "tests/integration/programs/newer_launch"
    newer = sandbox.build / "tests/integration/newer_driver"
    return ["/bin/sh", "-c", 'LD_LIBRARY_PATH="$0:$LD_LIBRARY_PATH" exec "$@"', newer, program, way, fifo]


def release(fifo, process):
    """Lets the program go on that waits at the FIFO; fails when it ends before it does."""
    poll(lambda: try_open(fifo), process, f"{process.name} waiting at its FIFO")


def try_open(fifo):
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False  # nobody reads it yet
    return True


def poll(condition, process, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None:
            raise Failure(f"{process.name} ended with {process.returncode} before {what}")
        if time.monotonic() > deadline:
            raise Failure(f"after {PATIENCE_S} s still not: {what}")
        time.sleep(0.02)


def exclusive_reason(sandbox):
    jobs = {job["name"]: job for job in sandbox.ask_manager("jobs")["jobs"]}
    return next((gang["exclusive_reason"] for gang in jobs.get("program", {}).get("gangs", [])), None)


def waits_for(sandbox):
    jobs = {job["name"]: job for job in sandbox.ask_manager("jobs")["jobs"]}
    return " ".join(gang["waits_for"] or "" for gang in jobs["antagonist"]["gangs"])


def newer(way):
    def case(sandbox):
        fifo = sandbox.folder / "release"
        os.mkfifo(fifo)
        alone = sandbox.alone(under_newer_driver(sandbox, way, fifo), "alone", **MEMORY)
        release(fifo, alone)
        expected = sandbox.wait(alone)
        sandbox.start_manager()
        sandbox.watch("program")
        more = dict(MEMORY, PLEXRL_TEST_PEER=sandbox.peer_file)
        antagonist = sandbox.shared([sandbox.build / "tests/integration/programs/antagonist"], "antagonist", **more)
        program = sandbox.shared(under_newer_driver(sandbox, way, fifo), "program", **more)

        def one_pause():
            sandbox.look()
            reason, pauses = exclusive_reason(sandbox), sandbox.peer()["pauses"]  # in this order: the pause comes before the call
            if reason and pauses == 0:
                raise Failure(f"exclusive before the first call: {reason}")
            return pauses > 0

        poll(one_pause, program, "its memory taken once")
        poll(lambda: exclusive_reason(sandbox), program, "the manager calls the program exclusive")
        reason = exclusive_reason(sandbox)
        if "does not know" not in reason:
            raise Failure(f"exclusive for another reason: {reason}")
        poll(lambda: "exclusive" in waits_for(sandbox), program, "the antagonist waits for an exclusive holder")
        rounds = sandbox.peer()["rounds"]
        release(fifo, program)
        if sandbox.wait(program) != expected:
            raise Failure("the outputs differ")
        poll(lambda: sandbox.peer()["rounds"] > rounds, antagonist, "the antagonist goes on afterwards")
        sandbox.stop_antagonist()
        sandbox.wait(antagonist)
        return f"shared until its first call, then exclusive: {reason}"
    return case


def other_cxx_runtime(sandbox):
    """The program finds its own libstdc++.so.6 in front of the system's, which it could not use: as in a conda environment."""
    sandbox.start_manager()
    for runtime in ("older", "newer"):
        folder = sandbox.build / "tests/integration/cxx_runtime" / runtime
        in_front = ["/bin/sh", "-c", 'LD_LIBRARY_PATH="$0${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$0/throws"', folder]
        alone = sandbox.wait(sandbox.alone(in_front, f"{runtime}_alone")).decode()
        if f"runtime: {folder}/libstdc++.so.6\n{runtime}, 1 in the process\n" not in alone:
            raise Failure(f"{runtime}: the program did not get its own runtime: {alone}")
        shared = sandbox.wait(sandbox.shared(in_front, runtime)).decode()
        if shared != alone:
            raise Failure(f"{runtime}: the outputs differ\nalone:\n{alone}\nshared:\n{shared}")
    sandbox.stop_manager()
    jobs = {job["name"]: job for job in sandbox.trace("summary", "--json")["summary"]["jobs"]}
    if any(jobs[runtime]["busy_s"] <= 0 for runtime in ("older", "newer")):
        raise Failure(f"the GPU was used past the preload: {jobs}")
    return "an older and a newer libstdc++ in front: exceptions work, and no other runtime is in the process"


CASES = {"other_cxx_runtime": other_cxx_runtime, "unknown_by_name": newer("by_name"), "unknown_by_version": newer("by_version"), "newer_form": newer("newer_form")}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, SPEC))
