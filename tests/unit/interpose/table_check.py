"""driver_api.def has a row for every function that NVIDIA's headers declare, and no other; none simply passes whose parameters name
device memory or a stream; what may need memory for the driver itself waits for room; none that only gives back waits at the gate.

usage: table_check.py COMPILER CUDA_INCLUDE_DIR INTERPOSE_DIR

The parameters are checked by the compiler (driver.cc). Where the toolkit has its stub of libcuda, its
exports are compared as well.
"""

import pathlib
import re
import subprocess
import sys

# What names device memory, or a place where work is queued. Structures that hold one of them count as well.
MEMORY_AND_QUEUES = {"CUstream", "CUdeviceptr", "CUdeviceptr_v1", "CUarray", "CUmipmappedArray", "CUgraphExec", "CUmemoryPool",
                     "CUmemGenericAllocationHandle", "CUexternalMemory", "CUgraphicsResource", "CUtensorMap"}
# What the names of functions that only give something back say (docs/architecture.md, invariant 11); and those that submit work.
GIVES_BACK = re.compile("Destroy|Free|Unload|Release|Unregister|Close|Unmap|Reset|Trim|DisablePeer")
SUBMITS = {"cuGraphicsUnmapResources", "cuGraphicsUnmapResources_ptsz", "cuGraphAddMemFreeNode"}

# A parameter of these types may have to be loaded first (CUDA_MODULE_LOADING), for which the driver needs HBM; what takes some by
# itself; and who only counts or gives back.
LOADED_LATE = re.compile(r"\b(CUfunction|CUkernel|CUmodule|CUlibrary)\b(?!\s*\*)")
TAKES_ROOM = {"cuCtxSetLimit", "cuEventCreate"}
LOADS_NOTHING = {"cuModuleGetFunctionCount", "cuModuleUnload", "cuLibraryGetKernelCount", "cuLibraryUnload", "cuKernelGetLibrary",
                 "cuFuncIsLoaded"}

HEADERS = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n"


def preprocessed(compiler, include_dir):
    command = [compiler, "-E", "-P", "-xc++", f"-I{include_dir}", "-"]
    return subprocess.run(command, input=HEADERS, capture_output=True, text=True, check=True).stdout


def declared(text):
    """{function: its parameters}"""
    return dict(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;]*)\)\s*;", text))


def bodies(text):
    """(name, what is inside) of every structure and union."""
    for opening in re.finditer(r"\b(?:struct|union)\s*(\w*)\s*\{", text):
        end, depth = opening.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        body = text[opening.end():end - 1]
        typedef = re.match(r"\s*(\w*)\s*;", text[end:])
        for name in filter(None, (opening.group(1), typedef and typedef.group(1))):
            yield name, body


def sensitive_types(text):
    """MEMORY_AND_QUEUES, and every type of the headers that holds one or is another name for one."""
    inside = [(name, set(re.findall(r"\w+", body))) for name, body in bodies(text)]
    inside += [(new, {old}) for old, new in re.findall(r"typedef\s+(?:struct\s+|union\s+)?(\w+)\s*\**\s*(\w+)\s*;", text)]
    found = set(MEMORY_AND_QUEUES)
    while True:
        more = {name for name, words in inside if words & found and name.startswith("CU")} - found
        if not more:
            return found
        found |= more


def in_table(interpose_dir):
    """{function: class}"""
    rows = re.findall(r"^API\((\w+),\s*\d+,\s*(\w+),", (interpose_dir / "driver_api.def").read_text(), re.M)
    names = [name for name, _ in rows]
    if len(names) != len(set(names)):
        sys.exit(f"rows that occur twice: {sorted(n for n in set(names) if names.count(n) > 1)}")
    return dict(rows)


def in_stub(include_dir):
    for stub in (include_dir.parent / "lib64/stubs/libcuda.so", include_dir.parent / "lib/stubs/libcuda.so"):
        if stub.exists():
            command = ["nm", "-D", "--defined-only", str(stub)]
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return set(re.findall(r" [TW] (cu[A-Z]\w*)", lines))
    return set()


def main(compiler, include_dir, interpose_dir):
    table = in_table(pathlib.Path(interpose_dir))
    text = preprocessed(compiler, include_dir)
    header = declared(text)
    stub = in_stub(pathlib.Path(include_dir))
    if len(header) < 600:
        sys.exit(f"only {len(header)} functions found in {include_dir}/cuda.h")
    for what, names in (("cuda.h", set(header) - set(table)), ("the stub of libcuda", stub - set(table))):
        if names:
            sys.exit(f"in {what} but not in driver_api.def: {sorted(names)}")
    if set(table) - set(header):
        sys.exit(f"in driver_api.def but not in cuda.h: {sorted(set(table) - set(header))}")
    sensitive = sensitive_types(text)
    if not {"CUDA_MEMCPY3D", "CUlaunchConfig", "CUgraphNodeParams"} <= sensitive:
        sys.exit(f"structures with device memory in them were not recognised: {sorted(sensitive)}")
    silent = sorted(name for name, cls in table.items()
                    if cls == "pass" and sensitive & set(re.findall(r"\w+", header[name])))
    if silent:
        sys.exit(f"of class pass, but their parameters name memory or streams: give them another class, or `through` and a reason: {silent}")
    late = {name for name, parameters in header.items() if LOADED_LATE.search(parameters)} - LOADS_NOTHING | TAKES_ROOM
    failing = sorted(name for name in late if table[name] not in ("room", "gate", "host"))
    if len(late) < 50 or failing:
        sys.exit(f"of {len(late)} functions that may need memory of the driver's these fail without room for it: {failing}")
    giving_back = {name for name in set(table) - SUBMITS if GIVES_BACK.search(name)}
    waiting = {name for name in giving_back if table[name] in ("gate", "host")}
    if len(giving_back) < 40 or waiting:
        sys.exit(f"of {len(giving_back)} functions that only give back these wait at the gate: {sorted(waiting)}")


main(*sys.argv[1:])
