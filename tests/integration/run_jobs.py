#!/usr/bin/env python3
"""Runs two rlvr jobs alone and then together on simulated GPUs that hold one of them, again until there were enough switches.

With --ranks each job is several processes with a GPU each, which meet in collectives (tests/workloads/rlvr). The second job has the GPUs
in the reverse order: what one trains on the other samples on, or the ranks of one wait for each other across those of the other.

After their first step both jobs keep the GPU busy until the manager has granted it back and forth, so each run has switches, however
slow or fast the machine is.

Passes if each prints the same bytes every time (the last line is a digest of its device memory) and nothing ran on the GPU outside
its gang's lease (lease_check.py). Exit 0 passed, 1 failed.
"""
import argparse
import sys
import time

import post_mortem
from sandbox import LOOK_S, PATIENCE_S, Failure, Sandbox

SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
SEEDS = {"ada": 1, "bob": 2}
GRANTS = 5  # of the GPU, while both want it: two switches at least that move memory


def job(sandbox, name, options, *more):
    # The pause is longer than the policy's grace, so each job's GPU goes to the other in it.
    ranks = ["--ranks", options.ranks] + ["--disaggregated"] * options.disaggregated
    return [sandbox.build / "tests/bin/rlvr", "--name", name, "--seed", SEEDS[name], "--steps", options.steps, "--state-bytes", "96MiB",
            "--rollout-ms", 20, "--tool-ms", 150, "--train-ms", 10, *ranks, *more]


def devices(sandbox, name):
    order = range(sandbox.gpus) if name == "ada" else reversed(range(sandbox.gpus))
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, order))}


def run(sandbox, options):
    alone = {name: sandbox.wait(sandbox.alone(job(sandbox, name, options), f"alone-{name}", **devices(sandbox, name)))
             for name in SEEDS}
    sandbox.start_manager()
    released = sandbox.folder / "released"
    jobs = {name: sandbox.shared(job(sandbox, name, options, "--until", released), name, **devices(sandbox, name)) for name in SEEDS}
    wait_for_grants(sandbox, jobs.values())
    released.touch()
    for name, process in jobs.items():
        if sandbox.wait(process) != alone[name]:
            raise Failure(f"{name} printed something else than alone")
    sandbox.stop_manager()
    trace = sandbox.trace("export", "--format", "json")
    work = sandbox.work_in_leases(trace)
    switches = sum(1 for swap in trace["swaps"] if swap["out_bytes"] > 0 or swap["in_bytes"] > 0)
    return switches, len(work)


def wait_for_grants(sandbox, processes):
    deadline = time.monotonic() + PATIENCE_S
    while sandbox.ask_manager("status")["manager"]["grants"] < GRANTS:
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            raise Failure(f"a job ended, or no {GRANTS} grants in {PATIENCE_S} s")
        time.sleep(LOOK_S)


def run_once(options):
    """(how many switches, pieces of work); raises Failure."""
    gpus = options.ranks * (2 if options.disaggregated else 1)
    with Sandbox(options.build, options.prefix, "160MiB", gpus, SPEC) as sandbox:
        try:
            return run(sandbox, options)
        except Failure:
            post_mortem.say(sandbox)
            raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--prefix", help="where bin/ and lib/plexrl/ are, if not in the build folder")
    parser.add_argument("--steps", type=int, default=6, help="of each job (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=1, help="of each job that train, each with a GPU (default: %(default)s)")
    parser.add_argument("--disaggregated", action="store_true", help="as many more sample")
    parser.add_argument("--switches", type=int, default=2, help="as many in all runs (default: %(default)s)")
    options = parser.parse_args()
    runs = switches = work = 0
    try:
        while switches < options.switches:
            more_switches, more_work = run_once(options)
            if more_switches == 0:
                raise Failure("no switch moved memory")
            runs, switches, work = runs + 1, switches + more_switches, work + more_work
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    print(f"same bytes; {runs} runs, {switches} switches, {work} pieces of work in their leases")
    return 0


sys.exit(main())
