"""libcuda.so.1 exports every function of NVIDIA's headers, and nothing else.

usage: exports_check.py GENERATOR COMPILER CUDA_INCLUDE_DIR LIBRARY
"""

import subprocess
import sys


def main(generator, compiler, include_dir, library):
    command = [sys.executable, generator, "list", compiler, include_dir]
    declared = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    command = ["nm", "-D", "--defined-only", library]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    exported = {line.split()[-1] for line in lines}
    if len(declared) < 600:
        sys.exit(f"only {len(declared)} functions are declared")
    if declared - exported:
        sys.exit(f"declared but not exported: {sorted(declared - exported)}")
    if exported - declared:
        sys.exit(f"exported but not declared: {sorted(exported - declared)}")


main(*sys.argv[1:])
