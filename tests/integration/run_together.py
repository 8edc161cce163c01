#!/usr/bin/env python3
"""Three programs at a time, chosen by a seed, on a simulated GPU that is too small for them and is taken from each again and again.

run_together.py --build DIR [--seed N] [--rounds N]: each round of a seed has programs, memory and quantum of its own. Passes if every
program prints what it prints alone, and nothing ran outside its gang's lease. A round can be run by itself: --seed of the line that it
prints, --rounds 1.
"""
import argparse
import random
import sys

import post_mortem
from sandbox import Failure, Sandbox

MIB = 1 << 20
AT_ONCE = 3
SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
# Two promises don't fit; beside one there is room for what only the driver can move.
GPU_MEMORY, PROMISE = "224MiB", "128MiB"
BALLASTS_MIB = (8, 32, 64)
QUANTA_MS = (10, 50, 200)
# They need more than a GPU that they share: several of them, a NIC, or an option of plexrl-run.
# What only the driver can move has to fit beside another's promise (docs/architecture.md, Admission), which that of these leaves no room for:
LARGE_MODULES = {"grown_beside", "late_loading"}
DRIVERS_OWN = {"arrays_and_textures", "graph_left_memory", "graph_memory", "graph_queue", "managed_memory", "mipmaps_and_cubes"} | LARGE_MODULES
APART = {"capability_queries", "exported_memory", "nic_registration", "peer_access", "shared_pool_access", "two_devices"}


def programs(sandbox):
    names = (sandbox.build / "tests/integration/sharing_programs.txt").read_text().split()
    return sorted(set(names) - APART)


def fit_together(chosen):
    return not LARGE_MODULES & set(chosen) or len(DRIVERS_OWN & set(chosen)) == 1


def run_round(sandbox, seed):
    chance = random.Random(seed)
    chosen = chance.sample(programs(sandbox), AT_ONCE)
    while not fit_together(chosen):
        chosen = chance.sample(programs(sandbox), AT_ONCE)
    memory = [{"PLEXRL_TEST_BALLAST": chance.choice(BALLASTS_MIB) * MIB} for _ in chosen]
    quantum_ms = chance.choice(QUANTA_MS)
    print(f"seed {seed}: {', '.join(chosen)}, quantum {quantum_ms} ms", flush=True)
    folder = sandbox.build / "tests/integration/programs"
    alone = [sandbox.wait(sandbox.alone([folder / name], f"alone-{name}", **more)) for name, more in zip(chosen, memory)]
    sandbox.start_manager(PLEXRL_POLICY_MIN_QUANTUM=f"{quantum_ms}ms", PLEXRL_POLICY_QUANTUM_FACTOR="1", PLEXRL_POLICY_SWITCH_SHARE="1")
    started = [sandbox.shared([folder / name], name, ["--memory", PROMISE], **more) for name, more in zip(chosen, memory)]
    for name, process, expected in zip(chosen, started, alone):
        output = sandbox.wait(process)
        if output != expected:
            raise Failure(f"{name} printed something else\nalone:\n{expected.decode()}\ntogether:\n{output.decode()}")
    sandbox.stop_manager()
    trace = sandbox.trace("export", "--format", "json")
    work = sandbox.work_in_leases(trace)
    return len(trace["swaps"]), len(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each has the next one")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    switches = pieces = 0
    for seed in range(options.seed, options.seed + options.rounds):
        with Sandbox(options.build, memory=GPU_MEMORY, spec=SPEC) as sandbox:
            try:
                found = run_round(sandbox, seed)
            except Failure as failure:
                print(f"FAILED: seed {seed}: {failure}")
                post_mortem.say(sandbox)
                return 1
        switches, pieces = switches + found[0], pieces + found[1]
    print(f"{options.rounds} rounds of {AT_ONCE} programs: same bytes; {switches} switches, {pieces} pieces of work in their leases")
    return 0


sys.exit(main())
