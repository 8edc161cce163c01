"""driver_api.def has a row for every function that NVIDIA's headers declare, and no other.

usage: table_check.py COMPILER CUDA_INCLUDE_DIR INTERPOSE_DIR

The parameters are checked by the compiler (driver.cc). Where the toolkit has its stub of libcuda, its
exports are compared as well.
"""

import pathlib
import re
import subprocess
import sys

HEADERS = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n"


def declared(compiler, include_dir):
    command = [compiler, "-E", "-P", "-xc++", f"-I{include_dir}", "-"]
    text = subprocess.run(command, input=HEADERS, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


def in_table(interpose_dir):
    rows = re.findall(r"^API\((\w+),", (interpose_dir / "driver_api.def").read_text(), re.M)
    if len(rows) != len(set(rows)):
        sys.exit(f"rows that occur twice: {sorted(r for r in set(rows) if rows.count(r) > 1)}")
    return set(rows)


def in_stub(include_dir):
    for stub in (include_dir.parent / "lib64/stubs/libcuda.so", include_dir.parent / "lib/stubs/libcuda.so"):
        if stub.exists():
            command = ["nm", "-D", "--defined-only", str(stub)]
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return set(re.findall(r" [TW] (cu[A-Z]\w*)", lines))
    return set()


def main(compiler, include_dir, interpose_dir):
    table = in_table(pathlib.Path(interpose_dir))
    header = declared(compiler, include_dir)
    stub = in_stub(pathlib.Path(include_dir))
    if len(header) < 600:
        sys.exit(f"only {len(header)} functions found in {include_dir}/cuda.h")
    for what, names in (("cuda.h", header - table), ("the stub of libcuda", stub - table)):
        if names:
            sys.exit(f"in {what} but not in driver_api.def: {sorted(names)}")
    if table - header:
        sys.exit(f"in driver_api.def but not in cuda.h: {sorted(table - header)}")


main(*sys.argv[1:])
