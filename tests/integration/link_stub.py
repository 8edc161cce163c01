#!/usr/bin/env python3
"""Writes a C file with an empty function for each symbol of the driver table: a libcuda.so.1 to link programs against, as the
toolkit's stub is, which no process ever loads."""
import re
import sys

table = open(sys.argv[1], encoding="utf-8").read()
with open(sys.argv[2], "w", encoding="utf-8") as out:
    for symbol in re.findall(r"^API\((\w+),", table, re.M):
        out.write(f'__attribute__((visibility("default"))) int {symbol}(void) {{ return 999; }}\n')
