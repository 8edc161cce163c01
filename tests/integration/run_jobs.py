#!/usr/bin/env python3
"""Runs two rlvr jobs alone and then together on a simulated GPU that holds one of them, for as many switches as are asked for.

Passes if each prints the same bytes both times (the last line is a digest of its device memory), there were enough switches, and
nothing ran on the GPU outside its gang's lease. Exit 0 passed, 1 failed.
"""
import argparse
import sys

import lease_check
from sandbox import Failure, Sandbox

SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
SEEDS = {"ada": 1, "bob": 2}
LONGER_TRIES = 4


def job(sandbox, name, steps):
    # The pause is longer than the policy's grace, so each job's GPU goes to the other in it.
    return [sandbox.build / "tests/bin/rlvr", "--name", name, "--seed", SEEDS[name], "--steps", steps, "--state-bytes", "96MiB",
            "--rollout-ms", 20, "--tool-ms", 150, "--train-ms", 10]


def run(sandbox, steps):
    alone = {name: sandbox.wait(sandbox.alone(job(sandbox, name, steps), f"alone-{name}")) for name in SEEDS}
    sandbox.start_manager()
    jobs = {name: sandbox.shared(job(sandbox, name, steps), name) for name in SEEDS}
    for name, process in jobs.items():
        if sandbox.wait(process) != alone[name]:
            raise Failure(f"{name} printed something else than alone")
    sandbox.stop_manager()
    trace = sandbox.trace("export", "--format", "json")
    work = lease_check.read_device_log(sandbox.device_log)
    found = list(lease_check.violations(trace, work))
    if not work or found:
        raise Failure(f"{len(found)} of {len(work)} pieces of work:\n" + "\n".join(found[:10]))
    switches = sum(1 for swap in trace["swaps"] if swap["out_bytes"] > 0 or swap["in_bytes"] > 0)
    return switches, len(work)


def run_once(options, steps):
    """(how many switches, pieces of work); raises Failure."""
    with Sandbox(options.build, options.prefix, "160MiB", 1, SPEC) as sandbox:
        try:
            return run(sandbox, steps)
        except Failure:
            for process in sandbox.started:
                print(f"---- {process.name}: {sandbox.errors(process.name).strip()}")
            raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--prefix", help="where bin/ and lib/plexrl/ are, if not in the build folder")
    parser.add_argument("--steps", type=int, default=6, help="of each job (default: %(default)s)")
    parser.add_argument("--switches", type=int, default=2, help="as many must be seen (default: %(default)s)")
    options = parser.parse_args()
    steps, switches = options.steps, 0
    try:
        # On a busy machine one job may be done before the other has come far: then with more steps.
        for _ in range(LONGER_TRIES):
            switches, work = run_once(options, steps)
            if switches >= options.switches:
                break
            steps *= 2
        else:
            raise Failure(f"{switches} switches, not {options.switches}")
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    print(f"same bytes; {switches} switches, {work} pieces of work in their leases")
    return 0


sys.exit(main())
