#!/usr/bin/env python3
"""What tools/gpu-validate packs works away from the build: it skips where there is no GPU, and its scripts do their work on the
simulated one (a dry run of what a machine with a GPU will do; nothing is said about real GPUs).

usage: pack_test.py SOURCE BUILD
"""
import ctypes
import json
import os
import pathlib
import re
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


def check_rows(source, report):
    """As a report of a real GPU it makes rows of docs/compatibility.md."""
    sys.path.insert(0, str(source / "tests/compat"))
    import frameworks
    table = frameworks.table(frameworks.Tree(source).rows(), {"gpu-x": dict(report, simulated=False)})
    where = re.escape(f"{report['gpu']}, driver {report['driver']} | ")
    for result in ("link_out_beside_in: ", "cuMemCreate: 2MiB ", "not run: no PyTorch in ", "not run: (NVIDIA's libraries refuse|not in this pack)"):
        check(re.search(where + result, table), f"no row says '{result}':\n{table}")


def check_report(report, text):
    check(report["simulated"] is True and "(simulated)" in text, "the report hides that it is simulated")
    results = {f"{one['set']}/{one['name']}": one for one in report["results"]}
    for name in ("rlvr/rlvr", "integration/contexts_on_mappings"):
        check(results[name]["result"] == "passed" and results[name]["left_bytes"] > 0, f"{name}: {results[name]}")
    check(results["integration/two_devices"]["detail"] == "needs two GPUs", f"two_devices: {results}")
    for name, one in results.items():
        kind = one["set"]
        if kind in ("cudart", "cublas", "nccl", "torch"):
            reason = "No module named 'torch'" if kind == "torch" else "refuse the simulated GPU|not in this pack"
            check(one["result"] == "skipped" and re.search(reason, one["detail"]), f"{name}: {one}")
    for name in ("torch/grpo", "torch/expandable_segments", "cudart/cudart_mix_shared", "cublas/cublas_mix", "nccl/nccl_mix"):
        check(name in results, f"{name} is not in the report")
    rows = {row["name"]: row for row in report["rows"]}
    check(all(row["simulated"] for row in rows.values()), "a row hides that it is simulated")
    for name in ("link_out_beside_in", "link_in_beside_out", "vmm_create_2MiB", "vmm_create_64MiB", "vmm_release_64MiB"):
        check(rows[name]["value"] > 0, f"{name}: {rows[name]}")


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
        # Hides a PyTorch that this machine may have.
        pathlib.Path(folder, "torch.py").write_text("raise ImportError(\"No module named 'torch'\")\n")
        env["PYTHONPATH"] = folder
        only = ["rlvr", "torch", "cudart", "cublas", "nccl", "bench/link_both_ways", "bench/vmm_cost", "integration/contexts_on_mappings",
                "integration/two_devices"]
        done = subprocess.run([pack / "run", "--out", out, "--small", "--time-limit", "3600", *(word for one in only for word in ("--only", one))],
                              capture_output=True, text=True, env=env)
        check(done.returncode == 0, f"`run` ended with {done.returncode}: {done.stdout}{done.stderr}")
        report = json.loads((out / "report.json").read_text())
        check_report(report, (out / "report.md").read_text())
        check_rows(source, report)
    print("pack: skips without a GPU, runs on the simulated one")


if __name__ == "__main__":
    main()
