#!/usr/bin/env python3
"""tools/dev demo: two RL jobs on one GPU that holds only one of them, each alone and then both together under plexrl-run.

Ends with a table and `digests: equal` (exit 0) or `digests: DIFFERENT` (exit 1).
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
STATE_SHARE = 0.70  # of the GPU, for each job
START_S, LARGEST_SLOWDOWN = 1, 1.25  # of a job alone, beyond what its steps take: then the machine has no time for it
JOBS = {"ada": 1, "bob": 2}  # name: seed


class Gpu:
    """The GPU of the demo and how processes reach it."""

    def __init__(self, build, folder, simulated):
        self.build, self.folder = build, folder
        self.simulated = simulated or not self.probe()
        self.budget = 8192 * MIB  # contexts take about 0.5 GiB each of it, so much less would hold no job
        if self.simulated:
            self.budget = 256 * MIB
            self.title = f"the simulated GPU ({self.budget // MIB} MiB of memory)"

    def probe(self):
        """True if the machine has an NVIDIA driver with a GPU."""
        try:
            cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
        count, name, device = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_int()
        if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
            return False
        cuda.cuDeviceGet(ctypes.byref(device), 0)
        cuda.cuDeviceGetName(name, 128, device)
        self.title = f"{name.value.decode()}, with a budget of 8 GiB on its memory"
        return True

    def environment(self, device):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PLEXRL_")}
        env.update(PLEXRL_SOCKET=str(self.folder / "run/nodemgr.sock"), PLEXRL_DATA=str(self.folder / "state"))
        if self.simulated:
            env.update(XDG_RUNTIME_DIR=str(self.folder / "run"),
                       PLEXRL_SIMGPU=f"name=demo-{os.getpid()}-{device},memory={self.budget // MIB}MiB,link=4GB/s,"
                                     f"log={self.log(device)}")
        else:
            env["PLEXRL_GPU_MEMORY"] = f"{self.budget // MIB}MiB"
        return env

    def log(self, device):
        return self.folder / f"device-{device}.log"

    def work(self, device):
        """What ran, by the simulated GPU's log (tools/simgpu/README.md)."""
        return [json.loads(line) for line in self.log(device).read_text().splitlines()]

    def busy_s(self, device):
        """Seconds in which any kernel ran, by the simulated GPU's log; None on a real GPU."""
        if not self.simulated:
            return None
        spans = [(piece["start_ns"], piece["end_ns"]) for piece in self.work(device) if piece["kind"] == "kernel"]
        busy, end = 0, 0
        for start, stop in sorted(spans):
            busy += max(0, stop - max(start, end))
            end = max(end, stop)
        return busy / 1e9


class Progress:
    """What the jobs print, as it comes: one line that is rewritten on a terminal, single lines elsewhere."""

    def __init__(self):
        self.lock, self.latest, self.tty = threading.Lock(), {}, sys.stdout.isatty()

    def note(self, name, line):
        match = re.search(r"step (\d+)/(\d+) reward ([\d.]+)", line)
        if not match:
            return
        with self.lock:
            self.latest[name] = f"{name} step {match.group(1)}/{match.group(2)} reward {match.group(3)}"
            if self.tty:
                print("\r\033[K  " + "   ".join(self.latest.values()), end="", flush=True)
            elif int(match.group(1)) % 4 == 0:
                print("  " + self.latest[name], flush=True)

    def close(self):
        if self.tty:
            print("\r\033[K", end="", flush=True)


class Job:
    """One rlvr process: its digest and times."""

    started = []

    def __init__(self, name, argv, env, progress):
        self.name = name
        Job.started.append(self)
        self.start = time.monotonic()
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines, self.errors = [], []
        self.readers = [threading.Thread(target=self.read_output, args=(progress,)),
                        threading.Thread(target=lambda: self.errors.extend(self.process.stderr))]
        for reader in self.readers:
            reader.start()

    def read_output(self, progress):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            progress.note(self.name, line)

    def finish(self):
        for reader in self.readers:
            reader.join()
        status = self.process.wait()
        self.seconds = time.monotonic() - self.start
        if status != 0:
            raise SystemExit(f"demo: {self.name} ended with status {status}\n{''.join(self.errors)}")
        self.digest = next(line for line in self.lines if line.startswith("digest: "))
        self.times = json.loads(next(line for line in self.errors if line.startswith("{")))
        return self


def rlvr(gpu, name, options):
    return [str(gpu.build / "tests/bin/rlvr"), "--name", name, "--seed", str(JOBS[name]), "--steps", str(options.steps),
            "--state-bytes", str(int(gpu.budget * STATE_SHARE)), "--rollout-ms", str(options.rollout_ms), "--tool-ms",
            str(options.tool_ms), "--train-ms", str(options.train_ms), "--times"]


def run_alone(gpu, options):
    jobs = {}
    for name in JOBS:
        print(f"{name} alone, without PlexRL:", flush=True)
        env = gpu.environment(f"alone-{name}")
        if gpu.simulated:
            env["LD_LIBRARY_PATH"] = str(gpu.build / "lib/plexrl/simgpu")
        progress = Progress()
        jobs[name] = Job(name, rlvr(gpu, name, options), env, progress).finish()
        progress.close()
    return jobs


def run_together(gpu, options):
    print(f"{' and '.join(JOBS)} together, each under plexrl-run:", flush=True)
    progress = Progress()
    start = time.monotonic()
    jobs = [Job(name, [str(gpu.build / "bin/plexrl-run"), "--require", "--name", name, "--", *rlvr(gpu, name, options)],
                gpu.environment("together"), progress) for name in JOBS]
    jobs = {job.name: job.finish() for job in jobs}
    progress.close()
    return jobs, time.monotonic() - start


def trace(gpu, verb):
    done = subprocess.run([str(gpu.build / "bin/plexrl-trace"), verb, "--json", str(gpu.folder / "state/trace")],
                          env=gpu.environment("together"), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"demo: plexrl-trace {verb} ended with status {done.returncode}")
    return json.loads(done.stdout)


def mib(count):
    return f"{count / MIB:.0f} MiB"


def table(gpu, alone, together, makespan):
    """Rows of the closing table, and what both took together against the sum alone."""
    total = sum(job.seconds for job in alone.values())
    summary = {job["name"]: job for job in trace(gpu, "summary")["summary"]["jobs"]}
    swaps = trace(gpu, "swaps")["swaps"]
    switching = sum(swap["stages"][stage] for swap in swaps for stage in ("drain_ns", "evict_ns", "load_ns")) / 1e9
    busy = gpu.busy_s("together")
    if busy is None:
        busy = sum(summary[name]["busy_s"] for name in JOBS)
    rows = [["", *(f"{name} alone" for name in JOBS), "one after the other", "together"],
            ["makespan", *(f"{alone[name].seconds:.1f} s" for name in JOBS), f"{total:.1f} s", f"{makespan:.1f} s"],
            ["GPU duty", *(f"{alone[n].times['device_s'] / alone[n].seconds:.0%}" for n in JOBS),
             f"{sum(j.times['device_s'] for j in alone.values()) / total:.0%}", f"{busy / makespan:.0%}"],
            ["slowdown", *("" for _ in JOBS), "", ", ".join(f"{n} {together[n].seconds / alone[n].seconds:.2f}" for n in JOBS)],
            ["paged out", *("" for _ in JOBS), "", ", ".join(f"{n} {mib(summary[n]['out_bytes'])}" for n in JOBS)],
            ["paged in", *("" for _ in JOBS), "", ", ".join(f"{n} {mib(summary[n]['in_bytes'])}" for n in JOBS)],
            ["switching", *("" for _ in JOBS), "", f"{switching:.1f} s in {len(swaps)} switches"]]
    return rows, makespan / total


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(prog="tools/dev demo", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--simulated", action="store_true", help="use the simulated GPU although there is a real one")
    parser.add_argument("--steps", type=int, default=16, help="of each job (default: %(default)s)")
    parser.add_argument("--rollout-ms", type=int, default=400, help="device time of a rollout (default: %(default)s)")
    parser.add_argument("--tool-ms", type=int, default=900, help="without the GPU in each step (default: %(default)s)")
    parser.add_argument("--train-ms", type=int, default=200, help="device time of training (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the trace, make a page of it, and say where they are")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="plexrl-demo-"))
    for name in ("run", "state"):
        (folder / name).mkdir(mode=0o700)
    try:
        gpu = Gpu(options.build, folder, options.simulated)
        print(f"Two RL jobs on {gpu.title}; each holds {STATE_SHARE:.0%} of it and needs it for "
              f"{(options.rollout_ms + options.train_ms) / 1000:.1f} s in each step of "
              f"{(options.rollout_ms + options.train_ms + options.tool_ms) / 1000:.1f} s.", flush=True)
        alone = run_alone(gpu, options)
        together, makespan = run_together(gpu, options)
        rows, ratio = table(gpu, alone, together, makespan)
        print()
        print_table(rows)
        print(f"\ntogether they took {ratio:.2f} of the time one after the other{' (simulated)' if gpu.simulated else ''}")
        planned_s = options.steps * (options.rollout_ms + options.train_ms + options.tool_ms) / 1000
        alone_s = max(job.seconds for job in alone.values())
        if gpu.simulated and alone_s > START_S + LARGEST_SLOWDOWN * planned_s:
            print(f"this machine was busy: alone a job took {alone_s:.1f} s for steps of {planned_s:.1f} s in all, so these times say little; "
                  "try again when nothing else runs")
        for name in JOBS:
            print(f"{name}: alone {alone[name].digest.split()[1]}, together {together[name].digest.split()[1]}")
        equal = all(alone[name].lines == together[name].lines for name in JOBS)
        print("digests: equal" if equal else "digests: DIFFERENT")
        return 0 if equal else 1
    finally:
        for job in Job.started:
            if job.process.poll() is None:
                job.process.terminate()
        if options.keep:
            print(f"trace: {folder}/state/trace")
            page = f"{folder}/report.html"
            if subprocess.run([str(gpu.build / "bin/plexrl-trace"), "report", "--output", page, f"{folder}/state/trace"]).returncode == 0:
                print(f"page for a browser: {page}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
