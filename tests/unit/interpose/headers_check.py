"""nccl_api.def has a row for every function that nccl.h declares, with its parameters, and no other; verbs_api.def has one for every
function of libibverbs' verbs.h that registers memory.

usage: headers_check.py COMPILER CUDA_INCLUDE_DIR INTERPOSE_DIR

Where there is no nccl.h it is skipped (77): the build needs none, because nccl_api.h declares what the table names. An older nccl.h may
lack functions. verbs.h is looked at where it is installed.
"""

import pathlib
import re
import subprocess
import sys

NEWEST = 22809  # NCCL_VERSION_CODE of the header that the table was made from


def compiler_says(compiler, include_dir, text, *options):
    command = [compiler, "-std=c++20", "-xc++", f"-isystem{include_dir}", "-w", *options, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def preprocessed(compiler, include_dir, header):
    """What is left of a header, or nothing where it isn't there."""
    said = compiler_says(compiler, include_dir, f"#include <{header}>\n", "-E", "-P")
    return said.stdout if said.returncode == 0 else ""


def table(path, macro):
    """{function: (result, parameters)}"""
    text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M)
    found = re.findall(rf"^{macro}\((\w+), ([^,]+), \w+,\s*\(([^)]*)\)", text, re.M)
    if len(dict.fromkeys(name for name, _, _ in found)) != len(found):
        sys.exit(f"rows that occur twice in {path.name}")
    return {name: (result, parameters) for name, result, parameters in found}


def check_nccl(compiler, include_dir, rows):
    text = preprocessed(compiler, include_dir, "nccl.h")
    if not text:
        print(f"no nccl.h in {include_dir} or where the compiler looks")
        return False
    declared = set(re.findall(r"\b(nccl[A-Z]\w*)\s*\([^()]*\)\s*;", text))
    asked = compiler_says(compiler, include_dir, "#include <nccl.h>\nNCCL_VERSION_CODE\n", "-E", "-P")
    version = int(asked.stdout.split()[-1])
    if len(declared) < 25:
        sys.exit(f"only {len(declared)} functions found in nccl.h: {sorted(declared)}")
    if declared - set(rows):
        sys.exit(f"in nccl.h ({version}) but not in nccl_api.def: {sorted(declared - set(rows))}")
    if version >= NEWEST and set(rows) - declared:
        sys.exit(f"in nccl_api.def but not in nccl.h ({version}): {sorted(set(rows) - declared)}")
    same = "\n".join(f'static_assert(std::is_same_v<{rows[name][0]} (*)({rows[name][1]}), decltype(&{form})>, "{form}");'
                     for name in sorted(declared) for form in (name, "p" + name))
    said = compiler_says(compiler, include_dir, f"#include <nccl.h>\n#include <type_traits>\n{same}\n", "-fsyntax-only")
    if said.returncode != 0:
        sys.exit(f"nccl_api.def and nccl.h differ:\n{said.stderr}")
    print(f"nccl.h {version}: {len(declared)} functions")
    return True


def check_verbs(compiler, include_dir, rows):
    text = preprocessed(compiler, include_dir, "infiniband/verbs.h")
    declared = set(re.findall(r"\b(ibv_(?:re|de)?reg_\w*mr\w*)\s*\([^()]*\)\s*;", text))
    declared -= {"ibv_reg_dm_mr"}  # a NIC's own memory; calls a function pointer
    if declared - set(rows):
        sys.exit(f"in verbs.h but not in verbs_api.def: {sorted(declared - set(rows))}")
    print(f"verbs.h: {len(declared)} functions" if text else "no infiniband/verbs.h")


def main(compiler, include_dir, interpose_dir):
    folder = pathlib.Path(interpose_dir)
    check_verbs(compiler, include_dir, table(folder / "verbs_api.def", "VERBS_API"))
    return 0 if check_nccl(compiler, include_dir, table(folder / "nccl_api.def", "NCCL_API")) else 77


sys.exit(main(*sys.argv[1:]))
