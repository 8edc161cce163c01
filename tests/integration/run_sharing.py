#!/usr/bin/env python3
"""Runs a program alone and then beside the antagonist on a simulated GPU that is too small for both.

Passes if both outputs are the same bytes, and the same when alone its work begins later here and there, the program's memory was taken and brought back at least once for each of its pauses, and
nothing ran on the GPU outside its gang's lease (lease_check.py). Exit 0 passed, 1 failed, 77 skipped.
"""
import argparse
import ctypes.util
import pathlib
import sys

import lease_check
import post_mortem
from sandbox import SKIPPED, Failure, Sandbox

MIB = 1 << 20
STAGGER, STAGGER_SEEDS = "5ms", (1, 2, 3)
SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"  # fast, so that the test is about what happens and not about waiting


def command(sandbox, options):
    """The program, with one more preload before or behind those that it gets."""
    program = sandbox.build / "tests/integration/programs" / options.program
    if options.preload is None:
        return [program]
    position, library = options.preload.split(":")
    order = '$0${LD_PRELOAD:+:$LD_PRELOAD}' if position == "first" else '${LD_PRELOAD:+$LD_PRELOAD:}$0'
    return ["/bin/sh", "-c", f'LD_PRELOAD="{order}" exec "$1"', ctypes.util.find_library(library), program]


def run(sandbox, program, options):
    programs = sandbox.build / "tests/integration/programs"
    memory = {"PLEXRL_TEST_BALLAST": options.ballast * MIB, "PLEXRL_TEST_ANTAGONIST": options.antagonist * MIB}
    memory.update(setting.split("=", 1) for setting in options.env)
    alone = sandbox.wait(sandbox.alone(command(sandbox, options), "alone", **memory))
    if not alone:
        raise Failure(f"{program} printed nothing")
    check_order(sandbox, program, alone, memory)
    sandbox.start_manager()
    sandbox.watch("program")
    memory["PLEXRL_TEST_PEER"] = sandbox.peer_file
    # A preload that is put to the test (--prefix) is the program's only: its neighbour keeps to its leases.
    where = {"CUDA_VISIBLE_DEVICES": options.antagonist_gpu} if options.antagonist_gpu else {}
    antagonist = sandbox.shared([programs / "antagonist"], "antagonist", prefix=sandbox.build, **memory, **where)
    if options.failing:
        memory["PLEXRL_SIMGPU"] = sandbox.spec(more=f"fail={options.failing}")
    shared = sandbox.wait_beside(sandbox.shared(command(sandbox, options), "program", options.run_option, **memory), antagonist)
    sandbox.stop_antagonist()
    sandbox.wait(antagonist)
    sandbox.stop_manager()
    if options.failing and not any(piece["kind"] == "failure" for piece in lease_check.read_device_log(sandbox.device_log)):
        raise Failure(f"{options.failing} did not happen")
    if shared != alone:
        raise Failure(f"the outputs differ\nalone:\n{alone.decode()}\nshared:\n{shared.decode()}")
    return sandbox.peer()["pauses"]


def check_order(sandbox, program, alone, memory):
    """The program's output may not depend on the order of work that it left unordered: then a difference would prove nothing."""
    for seed in STAGGER_SEEDS:
        name = f"staggered{seed}"
        output = sandbox.wait(sandbox.alone([sandbox.build / "tests/integration/programs" / program], name,
                                            more_spec=f"stagger={STAGGER},seed={seed}", **memory))
        if output != alone:
            raise Failure("the program itself leaves work unordered (simulated GPU with "
                          f"stagger={STAGGER},seed={seed})\nwithout:\n{alone.decode()}\nwith:\n{output.decode()}")


def check_paging(trace, least):
    """How many of the program's leases ended with bytes leaving, and how many began with bytes coming back."""
    program = next(job["id"] for job in trace["summary"]["jobs"] if job["name"] == "program")
    moves = [move for move in trace["paging"] if move["job"] == program]
    out, back = lease_check.evictions_and_restores(moves)
    if least == 0 or out < least or back < least:
        raise Failure(f"the program was evicted {out} times and restored {back} times, not {least} times")
    return out, back


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the name of a program in tests/integration/programs")
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--prefix", help="where bin/ and lib/plexrl/ are for all but the antagonist, if not in the build folder")
    parser.add_argument("--memory", default="192MiB", help="of the simulated GPU")
    parser.add_argument("--ballast", type=int, default=64, help="MiB that program and antagonist hold beside their own")
    parser.add_argument("--antagonist", type=int, default=48, help="MiB that the antagonist rewrites")
    parser.add_argument("--evictions", type=int, help="at least as many evictions and restores must be seen; else one for each pause")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--spec", help="more of PLEXRL_SIMGPU")
    parser.add_argument("--antagonist-gpu", type=int, default=0, help="whose neighbour it is")
    parser.add_argument("--lender", action="append", default=[], metavar="GPU:OTHER", help="lease_check.py")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the programs")
    parser.add_argument("--failing", metavar="CALL@N:CODE", help="a driver's call that fails once in each process when it shares")
    parser.add_argument("--needs", metavar="FILE", help="without it the test is skipped")
    parser.add_argument("--run-option", action="append", default=[], help="for the program's plexrl-run")
    parser.add_argument("--preload", metavar="first|behind:NAME", help="another library to preload, as find_library(NAME) has it")
    options = parser.parse_args()
    if options.preload and ctypes.util.find_library(options.preload.split(":")[1]) is None:
        print(f"skipped: there is no lib{options.preload.split(':')[1]}: tools/dev test compat installs it")
        return SKIPPED
    if options.needs and not pathlib.Path(options.needs).is_file():
        print(f"skipped: there is no {options.needs}")
        return SKIPPED
    with Sandbox(options.build, options.prefix, options.memory, options.gpus, ",".join(filter(None, (SPEC, options.spec)))) as sandbox:
        try:
            pauses = run(sandbox, options.program, options)
            trace = sandbox.trace("export", "--format", "json")
            out, back = check_paging(trace, options.evictions or pauses)
            lenders = dict(map(int, pair.split(":")) for pair in options.lender)
            work = len(sandbox.work_in_leases(trace, lenders))
        except Failure as failure:
            print(f"FAILED: {options.program}: {failure}")
            post_mortem.say(sandbox)
            return 1
    print(f"{options.program}: same bytes; {pauses} pauses, {out} evictions, {back} restores, {work} pieces of work in their leases")
    return 0


sys.exit(main())
