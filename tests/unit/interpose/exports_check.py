"""A preload exports what its version script lists and nothing else, and needs only libc,
of a version that job containers have.

usage: exports_check.py PRELOAD VERSION_SCRIPT
"""

import re
import subprocess
import sys

# What glibc itself brings; anything else may be missing where a job runs.
ALLOWED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}

# Job containers as old as RHEL 8's.
NEWEST_GLIBC = (2, 28)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(preload, script):
    with open(script, encoding="utf-8") as text:
        listed = set(re.findall(r"^    (\w+);$", text.read(), re.M))
    exported = set(re.findall(r" [A-Z] (\S+)$", run("nm", "-D", "--defined-only", preload), re.M))
    if exported != listed:
        sys.exit(f"exported only: {sorted(exported - listed)}\nlisted only: {sorted(listed - exported)}")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", preload)))
    if needed - ALLOWED:
        sys.exit(f"needs {sorted(needed - ALLOWED)}")
    wanted = run("nm", "-D", "--undefined-only", preload)
    foreign = re.findall(r" U ((?:cu|nvml|p?nccl|ibv_)\S*)", wanted)
    if foreign:
        sys.exit(f"calls the driver's exports instead of plexrl::driver: {foreign}")
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"@GLIBC_([\d.]+)", wanted)}
    newest = max(versions, default=(0,))
    if newest > NEWEST_GLIBC:
        late = [line.split()[-1] for line in wanted.splitlines() if "@GLIBC_" + ".".join(map(str, newest)) in line]
        sys.exit(f"wants a glibc newer than {NEWEST_GLIBC} for {late}: see interpose/older_glibc.cc")
    print("needs", sorted(needed), "and glibc", ".".join(map(str, newest)))


main(*sys.argv[1:])
