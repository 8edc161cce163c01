#!/usr/bin/env python3
"""Compiles one CUDA C++ file to PTX and writes it as a C++ header (see cuda_ptx.cmake)."""
import argparse
import ctypes
import os
import subprocess
import sys


def with_nvcc(nvcc, source, arch):
    command = [nvcc, "-ptx", "-std=c++17", "-O3", f"-arch=compute_{arch}", "-o", "-", source]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"cuda_ptx.py: failed: {' '.join(command)}")
    return done.stdout


def with_nvrtc(library, source, arch, include):
    nvrtc = ctypes.CDLL(library)
    text = open(source, encoding="utf-8").read().encode()
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, os.path.basename(source).encode(), 0, None, None)
    options = [f"--gpu-architecture=compute_{arch}", "--std=c++17", f"-I{include}"]
    c_options = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    status = nvrtc.nvrtcCompileProgram(program, len(options), c_options)
    size = ctypes.c_size_t()
    if status != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(f"cuda_ptx.py: NVRTC refused {source}:\n{log.value.decode()}")
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("header")
    parser.add_argument("--arch", default="75")
    parser.add_argument("--include", default="")
    parser.add_argument("--nvcc")
    parser.add_argument("--nvrtc")
    args = parser.parse_args()
    if args.nvcc:
        ptx = with_nvcc(args.nvcc, args.source, args.arch)
    elif args.nvrtc:
        ptx = with_nvrtc(args.nvrtc, args.source, args.arch, args.include)
    else:
        sys.exit("cuda_ptx.py: neither nvcc nor NVRTC was found; run tools/dev build, or set PLEXRL_CUDA_ROOT")
    name = os.path.basename(args.source).split(".")[0] + "_ptx"
    os.makedirs(os.path.dirname(args.header), exist_ok=True)
    with open(args.header, "w", encoding="utf-8") as out:
        out.write(f'#pragma once\ninline constexpr char {name}[] =\n')
        for line in ptx.splitlines():
            escaped = line.replace("\\", "\\\\").replace('"', '\\"')
            out.write(f'    "{escaped}\\n"\n')
        out.write("    ;\n")


main()
