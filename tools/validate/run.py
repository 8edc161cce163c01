#!/usr/bin/env python3
"""Checks PlexRL on this machine's NVIDIA GPU: programs alone and sharing, results compared byte for byte.

usage: run --out OUT [--only SET[/NAME]]… [--small] [--python PATH] [--time-limit S]

--small takes 1/16 of the memory, for a GPU (or a simulated one) with less than 12 GiB. All of it ends within 9 minutes; what there
was no time for is reported as not run. The sets:

{sets}

Writes OUT/report.md and OUT/report.json. Exits 0 when nothing failed and all was run, 1 otherwise, 2 for wrong usage, 77
without a GPU.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import checks
import machine as this_machine
import sharing

LAST_START_S = 90  # before the time limit: a check that begins later could hardly end


def report(out, machine, gpu, results, began):
    """Writes both reports; returns how many have passed, failed, …"""
    counts = {word: sum(r["result"] == word for r in results) for word in ("passed", "failed", "skipped", "not run")}
    name, total_bytes, driver, _ = gpu
    rows = [row for r in results for row in r.get("rows", [])]
    found = {"schema": 1, "simulated": machine.simulated, "node": platform.node(), "gpu": name, "total_bytes": total_bytes,
             "driver": driver, "date": datetime.date.today().isoformat(), "took_s": round(time.monotonic() - began, 1),
             "counts": counts, "results": [{key: value for key, value in r.items() if key != "rows"} for r in results], "rows": rows}
    (out / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = [f"# {name}, driver {driver}, {found['date']}" + (" (simulated)" if machine.simulated else ""), "",
             ", ".join(f"{number} {word}" for word, number in counts.items()), "",
             "| set | program | version | result | alone s | shared s | switches | MiB moved | detail |",
             "|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        lines.append("| {} | {} | {} | {} | {} | {} | {} | {} | {} |".format(
            r["set"], r["name"], r.get("version", ""), r["result"], r.get("alone_s", ""), r.get("shared_s", ""), r.get("switches", ""),
            r.get("moved_bytes", 0) >> 20, r.get("detail", "").replace("\n", " ").replace("|", "/")))
    if rows:
        lines += ["", "| benchmark | value | unit | against |", "|---|---|---|---|"]
        lines += [f"| {row['name']} | {row['value']} | {row['unit']} | {row['against']} |" for row in rows]
    (out / "report.md").write_text("\n".join(lines) + "\n")
    return counts


def run_check(machine, name, check):
    if machine.left_s() < LAST_START_S:
        return {"name": name, "result": "not run", "detail": "out of time"}
    try:
        return check()
    except (sharing.NoEnd, OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
        return {"name": name, "result": "failed", "detail": f"{type(error).__name__}: {error}"}


def main():
    sets = "\n".join(f"  {name:<12} {what}" for name, what in checks.SETS.items())
    parser = argparse.ArgumentParser(description=__doc__.format(sets=sets), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for the report")
    parser.add_argument("--only", action="append", default=[], metavar="SET[/NAME]", help="a set of checks, or one of a set (default: all)")
    parser.add_argument("--small", action="store_true", help="1/16 of the memory")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, default=540, metavar="S", help="seconds for all of it (default: %(default)s)")
    arguments = parser.parse_args()
    for only in arguments.only:
        if only.split("/")[0] not in checks.SETS:
            parser.error(f"--only {only}: the sets are {', '.join(checks.SETS)}")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as NVML numbers GPUs
    gpu = this_machine.find_gpu()
    if gpu is None:
        print("run: skipped: no NVIDIA GPU here (NVML finds none)", file=sys.stderr)
        return 77
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    machine = this_machine.Machine(gpu, out, arguments.small, arguments.python, arguments.time_limit)
    sharing.rest.bytes()
    results = []
    for kind, name, check in checks.checks(machine):
        if not arguments.only or kind in arguments.only or f"{kind}/{name}" in arguments.only:
            result = run_check(machine, name, check)
            results.append(dict(result, set=kind))
            print(f"{kind}/{name}: {result['result']} {result['detail']}", flush=True)
            report(out, machine, gpu, results, began)
    counts = report(out, machine, gpu, results, began)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped, {counts['not run']} not run")
    if not results:
        parser.error(f"--only {' '.join(arguments.only)}: there is no such check here")
    return 1 if counts["failed"] or counts["not run"] else 0


if __name__ == "__main__":
    sys.exit(main())
