#!/usr/bin/env python3
"""Checks PlexRL on this machine's NVIDIA GPU: programs alone and sharing, results compared byte for byte.

usage: run --out OUT [--only SET] [--small]     SET: integration, cudart, rlvr, bench (default: all)

--small takes 1/16 of the memory, for a GPU (or a simulated one) with less than 8 GiB.

Writes OUT/report.md and OUT/report.json. Exits 0 when all passed, 1 when something failed, 77 without a GPU.
"""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import platform
import struct
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TIME_LIMIT_S = 9 * 60
SETS = ("integration", "cudart", "rlvr", "bench")


def find_gpu():
    """(name, total bytes, driver version, how many) of the first GPU, or None; asked of NVML, so that no context is made."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) != 0:
        return None
    name = ctypes.create_string_buffer(96)
    version = ctypes.create_string_buffer(96)
    memory = (ctypes.c_ulonglong * 3)()
    nvml.nvmlDeviceGetName(handle, name, 96)
    nvml.nvmlSystemGetDriverVersion(version, 96)
    nvml.nvmlDeviceGetMemoryInfo(handle, memory)
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlShutdown()
    return name.value.decode(), int(memory[0]), version.value.decode(), count.value


def is_simulated(gpu):
    return gpu[0].startswith("PlexRL Simulated")


class Session:
    """A node manager of its own (its socket, state and budget), and the jobs that run under it."""

    def __init__(self, folder, budget_bytes):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # A socket's path has 107 characters at most; OUT may be longer.
        self.sockets = tempfile.mkdtemp(prefix="plexrl-validate-")
        self.environment = dict(os.environ, PLEXRL_SOCKET=self.sockets + "/nodemgr.sock",
                                PLEXRL_DATA=str(folder / "state"), PLEXRL_GPU_MEMORY=str(budget_bytes))

    def start(self, command):
        return subprocess.Popen([str(HERE / "bin/plexrl-run"), "--require", "--", *command], env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def swaps(self):
        answer = subprocess.run([str(HERE / "bin/plexrl-trace"), "swaps", "--json", str(self.folder / "state/trace")],
                                capture_output=True, text=True, check=True, env=self.environment)
        return json.loads(answer.stdout)["swaps"]


PEER = struct.Struct("<QQQ")  # antagonist's rounds, program's pauses, stop: programs/peer.h


def check_beside_antagonist(name, program, folder, budget_bytes):
    """An integration program alone, then beside the antagonist on a budget that holds only one of them."""
    memory = {"PLEXRL_TEST_BALLAST": str(budget_bytes // 3), "PLEXRL_TEST_ANTAGONIST": str(budget_bytes // 4)}
    started = time.monotonic()
    alone = subprocess.run([str(program)], capture_output=True, check=False, env=dict(os.environ, **memory))
    if alone.returncode == 77:
        return {"name": name, "result": "skipped", "detail": alone.stderr.decode().strip()}
    if alone.returncode != 0:
        return {"name": name, "result": "failed", "detail": "alone: " + alone.stderr.decode()[-500:]}
    alone_s = time.monotonic() - started
    session = Session(folder, budget_bytes)
    peer = folder / "peer"
    peer.write_bytes(bytes(4096))
    session.environment.update(memory, PLEXRL_TEST_PEER=str(peer))
    started = time.monotonic()
    antagonist = session.start([str(program.parent / "antagonist")])
    job = session.start([str(program)])
    output, errors = job.communicate()
    shared_s = time.monotonic() - started
    with open(peer, "r+b") as page:
        page.seek(16)
        page.write(struct.pack("<Q", 1))
    antagonist.communicate()
    problems = []
    if job.returncode != 0:
        problems.append(f"exit status {job.returncode}: {errors.decode()[-500:]}")
    elif output != alone.stdout:
        problems.append("DIFFERENT output from alone")
    swaps = [] if problems else session.swaps()
    moved = sum(swap["moved_bytes"] for swap in swaps)
    if not problems and PEER.unpack_from(peer.read_bytes())[1] > 0 and moved == 0:
        problems.append("nothing was paged, so sharing was not tested")
    return {"name": name, "result": "failed" if problems else "passed", "detail": "; ".join(problems),
            "alone_s": round(alone_s, 3), "shared_s": round(shared_s, 3), "switches": len(swaps), "moved_bytes": moved}


def measure_switch(name, folder, mib, simulated):
    """Evict and restore as the trace shows them, against raw pinned copies of as many bytes, in turns. A bench row."""
    bench = HERE / "programs/bench"
    ratios, rates = [], []
    for turn in range(3):
        raw = subprocess.run([str(bench / "raw_copy"), str(1024 * mib), str(min(1024 * mib, 32 << 20)), "5"], capture_output=True, text=True, check=True)
        out_ns, in_ns = map(int, raw.stdout.split())
        session = Session(folder / str(turn), 6144 * mib)
        jobs = [session.start([str(bench / "swap_job"), str(3840 * mib), "8", "200", "400"]) for _ in range(2)]
        for job in jobs:
            _, errors = job.communicate()
            if job.returncode != 0:
                return {"name": name, "result": "failed", "detail": errors.decode()[-500:]}
        for swap in session.swaps():
            if min(swap["out_bytes"], swap["in_bytes"]) >= 512 * mib:
                took = swap["stages"]["evict_ns"] + swap["stages"]["load_ns"]
                ratios.append((out_ns * swap["out_bytes"] + in_ns * swap["in_bytes"]) / (1024 * mib) / took)
                rates.append((swap["out_bytes"] + swap["in_bytes"]) / took)
    if not ratios:
        return {"name": name, "result": "failed", "detail": "no switch moved memory both ways"}
    ratio = statistics.median(ratios)
    return {"name": name, "result": "passed" if ratio >= 0.7 else "failed", "switches": len(ratios),
            "detail": f"{ratio:.3f} of a raw pinned copy (goal 0.7), {statistics.median(rates):.1f} GB/s",
            "row": {"name": name, "value": round(ratio, 4), "unit": "ratio", "against": "one raw pinned copy each way of as many bytes",
                    "goal": 0.7, "better": "higher", "met": ratio >= 0.7, "simulated": simulated, "rounds": len(ratios)}}


def run_alone(command):
    return subprocess.run(command, capture_output=True, check=False)


def check_sharing(name, commands, folder, budget_bytes):
    """Each of `commands` is longer than the one before. The next is run when two of one were not there at once for long enough."""
    for turn, command in enumerate(commands):
        result = check_twice_at_once(name, command, folder / str(turn), budget_bytes)
        if result["result"] != "passed" or result["moved_bytes"] > 0:
            return result
    return dict(result, result="failed", detail="nothing was paged, so sharing was not tested")


def check_twice_at_once(name, command, folder, budget_bytes):
    """Runs `command` alone, then twice at once under PlexRL, and compares what each prints on stdout."""
    started = time.monotonic()
    alone = run_alone(command)
    if alone.returncode == 77:
        return {"name": name, "result": "skipped", "detail": alone.stderr.decode().strip()}
    if alone.returncode != 0:
        return {"name": name, "result": "failed", "detail": "alone: " + alone.stderr.decode()[-500:]}
    alone_s = time.monotonic() - started
    session = Session(folder, budget_bytes)
    started = time.monotonic()
    jobs = [session.start(command) for _ in range(2)]
    outputs = [job.communicate() for job in jobs]
    shared_s = time.monotonic() - started
    problems = []
    for job, (output, errors) in zip(jobs, outputs):
        if job.returncode != 0:
            problems.append(f"exit status {job.returncode}: {errors.decode()[-500:]}")
        elif output != alone.stdout:
            problems.append("DIFFERENT output from alone")
    swaps = [] if problems else session.swaps()
    moved = sum(swap["moved_bytes"] for swap in swaps)
    return {"name": name, "result": "failed" if problems else "passed", "detail": "; ".join(problems),
            "alone_s": round(alone_s, 3), "shared_s": round(shared_s, 3), "switches": len(swaps), "moved_bytes": moved}


def checks(only, out, small, gpu):
    """(set, name, what to call for its result) of each check, the most telling first: time may run out."""
    mib = (1 << 20) // (16 if small else 1)
    programs = HERE / "programs"
    sessions = out / "sessions"
    if only in (None, "rlvr"):
        rlvr = [[str(programs / "rlvr"), "--steps", str(steps), "--state-bytes", str(4096 * mib), "--seed", "1"] for steps in (10, 40, 160)]
        yield "rlvr", "rlvr", lambda: check_sharing("rlvr", rlvr, sessions / "rlvr", 7168 * mib)
    if only in (None, "cudart") and not is_simulated(gpu):  # NVIDIA's runtime library refuses any driver but NVIDIA's
        for program in sorted(programs.glob("cudart_mix_*")):
            mixes = [[str(program), str((2048 * mib) >> 20), str(rounds), "100"] for rounds in (20, 80, 320)]
            yield "cudart", program.name, lambda n=program.name, m=mixes: check_sharing(n, m, sessions / n, 4096 * mib)
    if only in (None, "bench"):
        yield "bench", "evict_and_restore", lambda: measure_switch("evict_and_restore", sessions / "bench", mib, is_simulated(gpu))
    if only in (None, "integration"):
        for program in sorted((programs / "integration").glob("*")):
            if program.name != "antagonist" and (program.name != "two_devices" or gpu[3] > 1):
                yield "integration", program.name, lambda p=program: check_beside_antagonist(p.name, p, sessions / p.name, max(1536 * mib, 192 << 20))


def write_report(out, gpu, results, began):
    counts = {word: sum(r["result"] == word for r in results) for word in ("passed", "failed", "skipped", "not run")}
    name, total_bytes, driver, _ = gpu
    report = {"schema": 1, "simulated": is_simulated(gpu), "node": platform.node(), "gpu": name, "total_bytes": total_bytes,
              "driver": driver, "date": datetime.date.today().isoformat(), "took_s": round(time.monotonic() - began, 1),
              "counts": counts, "results": results,
              "rows": [r["row"] for r in results if "row" in r]}
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    lines = [f"# {name}, driver {driver}, {report['date']}" + (" (simulated)" if is_simulated(gpu) else ""), "",
             ", ".join(f"{number} {word}" for word, number in counts.items()), "",
             "| set | program | result | alone s | shared s | switches | MiB moved | detail |", "|---|---|---|---|---|---|---|---|"]
    for r in results:
        lines.append("| {} | {} | {} | {} | {} | {} | {} | {} |".format(
            r["set"], r["name"], r["result"], r.get("alone_s", ""), r.get("shared_s", ""), r.get("switches", ""),
            r.get("moved_bytes", 0) >> 20, r.get("detail", "").replace("\n", " ").replace("|", "/")))
    (out / "report.md").write_text("\n".join(lines) + "\n")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for the report")
    parser.add_argument("--only", choices=SETS, help="one set of checks (default: all)")
    parser.add_argument("--small", action="store_true", help="1/16 of the memory")
    arguments = parser.parse_args()
    gpu = find_gpu()
    if gpu is None:
        print("run: skipped: no NVIDIA GPU here (NVML finds none)", file=sys.stderr)
        return 77
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    results = []
    for kind, name, check in checks(arguments.only, out, arguments.small, gpu):
        if time.monotonic() - began > TIME_LIMIT_S - 60:
            result = {"name": name, "result": "not run", "detail": "out of time"}
        else:
            try:
                result = check()
            except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
                result = {"name": name, "result": "failed", "detail": f"{type(error).__name__}: {error}"}
        results.append(dict(result, set=kind))
        print(f"{kind}/{name}: {result['result']} {result['detail']}", flush=True)
        write_report(out, gpu, results, began)
    counts = write_report(out, gpu, results, began)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not results else 0


if __name__ == "__main__":
    sys.exit(main())
