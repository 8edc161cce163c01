#!/usr/bin/env python3
"""What tools/gpu-validate packs works away from the build: it skips where there is no GPU, and its scripts do their work on the
simulated one (a dry run of what a machine with a GPU will do; nothing is said about real GPUs).

usage: pack_test.py SOURCE BUILD
"""
import ctypes
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile


def has_gpu():
    try:
        return ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2() == 0
    except OSError:
        return False


def check(holds, what):
    if not holds:
        print(f"FAILED: {what}")
        sys.exit(1)


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="plexrl-pack-") as folder:
        pack, out = pathlib.Path(folder, "pack"), pathlib.Path(folder, "out")
        done = subprocess.run([source / "tools/gpu-validate", "--pack", pack, "--build", build], capture_output=True, text=True)
        check(done.returncode == 0, f"pack: {done.stderr}")
        check("lib/plexrl/libplexrl.so" in (str(p.relative_to(pack)) for p in pack.rglob("*")), "the pack lacks the preload")
        bare = {k: v for k, v in os.environ.items() if not k.startswith(("PLEXRL_", "LD_", "XDG_"))}
        if not has_gpu():
            done = subprocess.run([pack / "run", "--out", out], capture_output=True, text=True, env=bare)
            check(done.returncode == 77, f"without a GPU `run` ended with {done.returncode}: {done.stderr}")
        (pack / "lib/plexrl/simgpu").symlink_to(build / "lib/plexrl/simgpu")
        env = dict(bare, XDG_RUNTIME_DIR=folder, LD_LIBRARY_PATH=str(build / "lib/plexrl/simgpu"),
                   PLEXRL_SIMGPU=f"name=pack-{secrets.token_hex(4)},memory=1GiB,link=8GB/s")
        done = subprocess.run([pack / "run", "--out", out, "--only", "rlvr", "--small"], capture_output=True, text=True, env=env)
        check(done.returncode == 0, f"`run` ended with {done.returncode}: {done.stdout}{done.stderr}")
        report = json.loads((out / "report.json").read_text())
        check(report["simulated"] is True and "(simulated)" in (out / "report.md").read_text(), "the report hides that it is simulated")
        check(report["results"][0]["moved_bytes"] > 0, "nothing was paged")
    print("pack: skips without a GPU, runs on the simulated one")


if __name__ == "__main__":
    main()
