#!/usr/bin/env python3
"""Writes what the simulated driver derives from NVIDIA's public headers, at build time.

  entry_points.py table COMPILER CUDA_INCLUDE_DIR   rows of cuGetProcAddress: base name, version, symbol
  entry_points.py stubs COMPILER CUDA_INCLUDE_DIR   a weak definition of every function of cuda.h
  entry_points.py errors COMPILER CUDA_INCLUDE_DIR  the codes of CUresult, each with a text
  entry_points.py list  COMPILER CUDA_INCLUDE_DIR   the names of all functions, one a line

cuda.h, included with __CUDA_API_VERSION_INTERNAL, declares every symbol that a driver exports. The typedefs
PFN_<base>_v<version>[_ptds|_ptsz] of cudaTypedefs.h say since which version a form exists, but not its symbol.
Both are sorted by age and paired from the newest end; the compiler then checks that the types agree.
"""

import pathlib
import re
import subprocess
import sys

HEADERS = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n"
# cudaProfilerTypedefs.h names no version for these; the reference has had them since CUDA 4.0.
WITHOUT_TYPEDEF = {"cuProfilerInitialize": 4000, "cuProfilerStart": 4000, "cuProfilerStop": 4000}
ERROR_TEXTS = {
    "CUDA_SUCCESS": "no error",
    "CUDA_ERROR_INVALID_VALUE": "invalid argument",
    "CUDA_ERROR_NOT_INITIALIZED": "initialization error",
    "CUDA_ERROR_DEINITIALIZED": "driver shutting down",
    "CUDA_ERROR_NO_DEVICE": "no CUDA-capable device is detected",
    "CUDA_ERROR_INVALID_DEVICE": "invalid device ordinal",
    "CUDA_ERROR_INVALID_IMAGE": "device kernel image is invalid",
    "CUDA_ERROR_INVALID_CONTEXT": "invalid device context",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "no kernel image is available for execution on the device",
    "CUDA_ERROR_INVALID_PTX": "a PTX JIT compilation failed",
    "CUDA_ERROR_INVALID_HANDLE": "invalid resource handle",
    "CUDA_ERROR_NOT_FOUND": "named symbol not found",
    "CUDA_ERROR_NOT_READY": "device not ready",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "an illegal memory access was encountered",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "too many resources requested for launch",
    "CUDA_ERROR_LAUNCH_FAILED": "unspecified launch failure",
    "CUDA_ERROR_ASSERT": "device-side assert triggered",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "misaligned address",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "too many blocks in cooperative launch",
    "CUDA_ERROR_NOT_SUPPORTED": "operation not supported",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "operation not permitted when stream is capturing",
    "CUDA_ERROR_UNKNOWN": "unknown error",
}


def declarations(compiler, include_dir):
    """{symbol: parameter list} of every function."""
    command = [compiler, "-E", "-P", "-xc++", f"-I{include_dir}", "-"]
    text = subprocess.run(command, input=HEADERS, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;]*)\)\s*;", text))
    if len(found) < 600:
        sys.exit(f"only {len(found)} functions found in {include_dir}/cuda.h")
    return found


def split_symbol(symbol):
    """("cuMemAlloc", "", 2) of "cuMemAlloc_v2"; a symbol without version is the first."""
    base, version, suffix = re.fullmatch(r"(cu[A-Z]\w*?)(?:_v(\d))?(_ptds|_ptsz)?", symbol).groups()
    return base, suffix or "", int(version or 1)


def typedefs(include_dir):
    """{(base, suffix): versions, oldest first} of cudaTypedefs.h."""
    text = pathlib.Path(include_dir, "cudaTypedefs.h").read_text(encoding="utf-8")
    found = {}
    for base, version, suffix in re.findall(r"\bPFN_(cu[A-Z]\w*?)_v(\d{4,5})(_ptds|_ptsz)?\)", text):
        found.setdefault((base, suffix), set()).add(int(version))
    return {form: sorted(versions) for form, versions in found.items()}


def table(symbols, include_dir):
    """(base, suffix, version, symbol, typedef) of every form that can be looked up."""
    forms = {}
    for symbol in symbols:
        base, suffix, number = split_symbol(symbol)
        forms.setdefault((base, suffix), []).append((number, symbol))
    versions_of = typedefs(include_dir)
    for (base, suffix), found in sorted(forms.items()):
        found = [symbol for _, symbol in sorted(found)]
        versions = versions_of.get((base, suffix), [])
        if not versions and base in WITHOUT_TYPEDEF:
            yield base, suffix, WITHOUT_TYPEDEF[base], found[0], None
            continue
        if len(versions) < len(found):
            sys.exit(f"cudaTypedefs.h has {len(versions)} typedefs for {found}")
        for version, symbol in zip(versions[-len(found):], found):
            yield base, suffix, version, symbol, f"PFN_{base}_v{version}{suffix}"


def write_table(symbols, include_dir):
    print("// ENTRY(base name, since, is per thread, symbol, typedef of that version)")
    for base, suffix, version, symbol, typedef in table(symbols, include_dir):
        is_per_thread = "true" if suffix else "false"
        print(f'ENTRY("{base}", {version}, {is_per_thread}, {symbol}, {typedef or f"decltype(&{symbol})"})')


def write_stubs(parameters):
    print('#include "tools/simgpu/driver/cuda_api.h"\n')
    print('#pragma GCC diagnostic ignored "-Wunused-parameter"\n\nextern "C" {')
    for symbol in sorted(parameters):
        print(f"[[gnu::weak, gnu::visibility(\"default\")]] CUresult CUDAAPI {symbol}({parameters[symbol]}) {{ return CUDA_ERROR_NOT_SUPPORTED; }}")
    print("}")


def write_errors(include_dir):
    text = pathlib.Path(include_dir, "cuda.h").read_text(encoding="utf-8")
    codes = re.search(r"typedef enum cudaError_enum \{(.*?)\} CUresult;", text, re.S).group(1)
    for code in re.findall(r"^\s*(CUDA_\w+)\s*=\s*\d+", codes, re.M):
        # CUDA_ERROR_NOT_FOUND is "not found"; a few are better known by other words.
        words = code.removeprefix("CUDA_ERROR_").replace("_", " ").lower()
        print(f'ERROR({code}, "{ERROR_TEXTS.get(code, words)}")')


def main(arguments):
    if len(arguments) != 3 or arguments[0] not in ("table", "stubs", "errors", "list"):
        sys.exit(__doc__)
    what, compiler, include_dir = arguments
    found = declarations(compiler, include_dir)
    if what == "table":
        write_table(found, include_dir)
    elif what == "stubs":
        write_stubs(found)
    elif what == "errors":
        write_errors(include_dir)
    else:
        print("\n".join(sorted(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
