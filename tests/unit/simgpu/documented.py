#!/usr/bin/env python3
"""documented.py CUDA_H: what cuda.h's comments say each function may return, a line DOCUMENTED(function, codes…) each."""
import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
found = {}
# Declarations without a comment of their own (the older versions at the header's end) mean what the named one says.
for comment, name in re.findall(r"/\*\*((?:(?!\*/).)*?)\*/\s*(?:__CUDA_DEPRECATED\s+)?CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", text, re.S):
    returns = re.search(r"\\returns?\b(.*?)(?:\\(?:note|notefnerr|sa|par)\b|$)", comment, re.S)
    codes = sorted(set(re.findall(r"CUDA_(?:ERROR_\w+|SUCCESS)", returns.group(1) if returns else "")))
    if codes:
        found[name] = codes
if len(found) < 350:
    sys.exit(f"only {len(found)} documented functions found in {sys.argv[1]}")
for name, codes in sorted(found.items()):
    print(f'DOCUMENTED("{name}", {", ".join(codes)})')
