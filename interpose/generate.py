#!/usr/bin/env python3
"""Writes, from the tables of this folder, what the preprocessor can't.

  generate.py exports     DRIVER_TABLE NVML_TABLE NCCL_TABLE VERBS_TABLE
                                                    the linker's version script: all that a preload exports
  generate.py passthrough DRIVER_TABLE              what passes although it touches memory or other processes (Markdown)
"""

import re
import sys


def rows(path, macro):
    """(symbol, class, rest of the row) of each row of a table."""
    with open(path, encoding="utf-8") as table:
        text = re.sub(r"^\s*//.*$", "", table.read(), flags=re.M)
    # Between symbol and class: the driver's version, or the type of the result.
    between = {"API": r"\d+,\s*", "NVML_API": ""}.get(macro, r"[\w *]+,\s*")
    for match in re.finditer(rf"^{macro}\((\w+),\s*{between}(\w+),(.*?)(?=^{macro}\(|\Z)", text, re.M | re.S):
        yield match.groups()


def exports(driver_table, nvml_table, nccl_table, verbs_table):
    names = ["dlsym", "dlvsym", "__asan_default_options"]
    names += [symbol for symbol, _, _ in rows(driver_table, "API")]
    names += [symbol for symbol, cls, _ in rows(nvml_table, "NVML_API") if cls != "real"]
    for symbol, _, _ in rows(nccl_table, "NCCL_API"):
        names += [symbol, "p" + symbol]
    names += [symbol for symbol, cls, _ in rows(verbs_table, "VERBS_API") if cls != "real"]
    # No version node: an export with a version would not catch references to dlsym@GLIBC_2.2.5.
    print("{\n  global:")
    for name in names:
        print(f"    {name};")
    print("  local:\n    *;\n};")


def passthrough(driver_table):
    print("| driver function | why it passes through |\n| --- | --- |")
    for symbol, cls, rest in rows(driver_table, "API"):
        if cls == "through":
            reason = re.search(r'"([^"]*)"', rest).group(1)
            print(f"| `{symbol}` | {reason} |")


def main(arguments):
    makers = {"exports": (exports, 4), "passthrough": (passthrough, 1)}
    maker, count = makers.get(arguments[0] if arguments else "", (None, 0))
    if maker is None or len(arguments) != count + 1:
        sys.exit(__doc__)
    maker(*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
