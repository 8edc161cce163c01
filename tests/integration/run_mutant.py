#!/usr/bin/env python3
"""Runs a sharing test with a preload in which one thing is switched off, and passes only if the sharing test finds that.

The mutants are test builds of the preload (tests/mutants/ in the build folder). The failure has to be of the kind that the missing
thing causes: a preload that does not load at all proves nothing.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import prefix

# mutant -> (program, what the sharing test must say, more options of the sharing test's)
MUTANTS = {
    "gate": ("many_streams", r"outside its lease|not at rest|the outputs differ|error 700|ILLEGAL_ADDRESS", ()),
    "drain": ("long_queue", r"outside its lease|not at rest|the outputs differ|error 700|ILLEGAL_ADDRESS", ()),
    "restore": ("allocation_patterns", r"the outputs differ", ()),
    # What the card writes lands in memory that may have become the neighbour's.
    "nic": ("nic_registration", r"the outputs differ|its (memory|last word) has changed", ("--antagonist", "84")),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mutant", choices=[*MUTANTS])
    parser.add_argument("preload", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    program, expected, more = MUTANTS[options.mutant]
    with tempfile.TemporaryDirectory(prefix="plexrl-mutant-") as folder:
        prefix.make(folder, options.build, preload=options.preload)
        runner = pathlib.Path(__file__).with_name("run_sharing.py")
        done = subprocess.run([sys.executable, runner, program, "--build", options.build, "--prefix", folder, *more],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    if done.returncode == 0:
        print(f"FAILED: with the {options.mutant} switched off, {program} still passes")
        return 1
    if done.returncode != 1 or not re.search(expected, done.stdout):
        print(f"FAILED: {program} failed for another reason than /{expected}/")
        return 1
    print(f"the sharing test finds that the {options.mutant} is switched off")
    return 0


sys.exit(main())
