#!/usr/bin/env python3
"""The simulated libnccl.so.2 exports every function of NCCL's API under both of its names, and nothing else.

usage: nccl_exports_check.py NCCL_API_DEF LIBRARY
"""
import pathlib
import re
import subprocess
import sys

table, library = sys.argv[1:]
rows = set(re.findall(r"^NCCL_API\((nccl\w+),", pathlib.Path(table).read_text(), re.M))
listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
exported = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
wanted = rows | {f"p{name}" for name in rows}
if len(rows) < 30 or exported != wanted:
    sys.exit(f"missing: {sorted(wanted - exported)}; too many: {sorted(exported - wanted)}")
print(f"{len(exported)} functions")
