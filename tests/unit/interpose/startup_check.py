"""A program that never uses CUDA starts with the preload as without: allocations, threads, files.

usage: startup_check.py PROGRAM PRELOAD
"""

import os
import subprocess
import sys


def start(program, preload):
    environment = dict(os.environ, LD_PRELOAD=preload)
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(program, preload):
    alone, with_preload = start(program, ""), start(program, preload)
    if alone != with_preload or "allocations" not in alone:
        sys.exit(f"alone:   {alone}\npreload: {with_preload}")


main(*sys.argv[1:])
