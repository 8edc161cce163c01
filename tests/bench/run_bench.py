#!/usr/bin/env python3
"""Runs the benchmarks and prints their rows: ratios of things measured side by side in one run.

usage: run_bench.py --build DIR [--json FILE] [NAME…]     without NAME: all

Exit 0 when every row that has a goal met it, else 1. Figures of the simulated GPU are marked `simulated`; a row whose device lagged
behind its model by more than 5 % says "not measurable here".
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from sandbox import Failure, Sandbox, wait_until  # noqa: E402

MIB = 1 << 20
INIT_PROCESSES = 300
LARGEST_LAG_RATIO = 0.05


def row(name, values, unit, against, goal, better, simulated):
    """`values` are one per round; the row has their median, and half the range of the middle half as spread."""
    middle = statistics.median(values)
    low, high = interval_of_median(values)
    quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [middle] * 3
    met = None if goal is None else (middle >= goal if better == "higher" else middle <= goal)
    return {"name": name, "value": round(middle, 4), "unit": unit, "against": against, "goal": goal, "better": better,
            "met": met, "simulated": simulated, "rounds": len(values), "spread": round((quarters[2] - quarters[0]) / 2, 4),
            "low": None if low is None else round(low, 4), "high": None if high is None else round(high, 4)}


def interval_of_median(values):
    """The narrowest pair of values, as far from either end, between which the median lies with 95 %: by how many of n lie below it, a
    binomial count. None where there are too few."""
    ordered, count = sorted(values), len(values)
    outside, found = 0.0, (None, None)
    for nth in range(count // 2):
        outside += 2 * math.comb(count, nth) / 2**count
        if outside > 0.05:
            break
        found = ordered[nth], ordered[-1 - nth]
    return found


def failed_row(name, unit, against, goal, better, simulated, error):
    return {"name": name, "value": None, "unit": unit, "against": against, "goal": goal, "better": better, "met": False,
            "simulated": simulated, "rounds": 0, "spread": None, "low": None, "high": None, "error": error}


def program_output(build, name, *arguments, env=None):
    done = subprocess.run([str(build / "tests/bench" / name), *map(str, arguments)], capture_output=True, text=True, env=env,
                          check=False)
    if done.returncode != 0:
        raise Failure(f"{name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def bench_gate(build):
    """What an intercepted call (launch, query, copy, event, graph launch, allocation, free; 1 to 8 threads) costs more than the bare
    one, against a driver stub that returns at once."""
    for line in program_output(build, "gate_bench").splitlines():
        if line.startswith("{"):
            yield from ({"low": None, "high": None, **found} for found in json.loads(line).get("rows", []))


def bench_start(build):
    """A program that never uses CUDA, with the preload and without."""
    differences = []
    for _ in range(5):
        bare, loaded = map(int, program_output(build, "spawn_time", build / "lib/plexrl/libplexrl.so", 100).split())
        differences.append((loaded - bare) / 1e6)
    yield row("start_without_cuda", differences, "ms more", "the same program without the preload", 1.0, "lower", False)


def bench_init(build):
    """Processes of one job that initialise CUDA all at once, with the preload over without."""
    ratios = []
    for _ in range(3):
        with Sandbox(build, memory="1GiB", spec="ctx=1MiB") as sandbox:
            command = [build / "tests/bench/init_many", INIT_PROCESSES]
            bare = int(sandbox.wait(sandbox.alone(command, "bare")))
            sandbox.start_manager(PLEXRL_GPU_OVERHEAD="2MiB")
            ratios.append(int(sandbox.wait(sandbox.shared(command, "loaded"))) / bare)
            sandbox.stop_manager()
    yield row(f"init_{INIT_PROCESSES}_processes", ratios, "ratio", "the same processes without the preload", 1.5, "lower", True)


def lag_ratio(log, link_bytes_per_s):
    """How far copies over the link ended behind their model, as a share of the time modelled. The log has modelled starts and real
    ends, and each copy of a burst starts where the model ended the one before: what counts is the last one's delay."""
    work = [json.loads(line) for line in log.read_text().splitlines()]
    copies = sorted((w["pid"], w["kind"], w["start_ns"], w["end_ns"], w["bytes"]) for w in work
                    if w["kind"] in ("d2h", "h2d") and w["bytes"] >= MIB)
    modelled = late = last_delay = 0
    last_end = None
    for pid, kind, start, end, size in copies:
        duration = size * 1e9 / link_bytes_per_s
        if last_end is None or (pid, kind) != last_end[:2] or start > last_end[2] + 100_000:
            late += last_delay
        last_end, last_delay = (pid, kind, start + duration), max(0, end - start - duration)
        modelled += duration
    return (late + last_delay) / modelled


MODELS = {  # name of the row's end -> (specification, link in bytes/s; None: no model)
    # duplex=1: a copy's modelled time does not depend on the other direction, so that lag can be told from the log.
    "": ("link=500MB/s,duplex=1", 500e6),
    "_no_model": ("link=0,vmm=0,hbm=0", None),
}
SWAP_BYTES = 160 * MIB


class Switching:
    """Two jobs that take turns on a GPU too small for both: their switches, and the ns of a raw pinned copy of SWAP_BYTES each way on
    the same device."""

    def __init__(self, build, spec, link, changed=100, memory="256MiB", rounds=6, layout="block"):
        with Sandbox(build, memory=memory, spec=spec) as sandbox:
            sandbox.start_manager()
            jobs = [sandbox.shared([build / "tests/bench/swap_job", SWAP_BYTES, rounds, 30, 600, changed, layout], f"job{i}")
                    for i in range(2)]
            for job in jobs:
                sandbox.wait(job)
            raw = sandbox.start([build / "tests/bench/raw_copy", SWAP_BYTES, SWAP_BYTES, 3],
                                dict(sandbox.environment(), LD_LIBRARY_PATH=str(build / "lib/plexrl/simgpu")), "raw")
            self.out_ns, self.in_ns = map(int, sandbox.wait(raw).split())
            both = [sandbox.start([build / "tests/bench/raw_copy", SWAP_BYTES, SWAP_BYTES // 4, 7, direction],
                                  dict(sandbox.environment(), LD_LIBRARY_PATH=str(build / "lib/plexrl/simgpu")), f"raw-{direction}")
                    for direction in ("out", "in")]
            self.both_out_ns, self.both_in_ns = (int(sandbox.wait(copy)) for copy in both)
            self.lag = lag_ratio(sandbox.device_log, link) if link else 0.0
            sandbox.stop_manager()
            self.swaps = sandbox.trace("swaps", "--json")["swaps"]

    def raw_ns(self, swap):
        return (self.out_ns * swap["out_bytes"] + self.in_ns * swap["in_bytes"]) / SWAP_BYTES

    def raw_exchange_ns(self, swap):
        """Of two raw copies in opposite directions at the same time."""
        return max(self.both_out_ns * swap["out_bytes"], self.both_in_ns * swap["in_bytes"]) / SWAP_BYTES


def bench_switch(build):
    """From the decision to take the GPU from one job, all of whose memory changed, until the other's first kernel may run, against raw
    pinned copies of as many bytes on the same device: one after the other, and in two processes at the same time."""
    for suffix, (spec, link) in MODELS.items():
        ratios, lag = {"evict_and_restore": [], "exchange": []}, 0.0
        for _ in range(3):
            run = Switching(build, spec, link)
            lag = max(lag, run.lag)
            for swap in run.swaps:
                if min(swap["out_bytes"], swap["in_bytes"]) < 32 * MIB:  # first loads, last exits
                    continue
                ratios["evict_and_restore"].append(run.raw_ns(swap) / swap["stages"]["total_ns"])
                ratios["exchange"].append(run.raw_exchange_ns(swap) / swap["stages"]["total_ns"])
        for name, against in (("evict_and_restore", "one raw pinned copy each way of as many bytes, out then in"),
                              ("exchange", "two raw pinned copies of as many bytes in opposite directions at once")):
            common = ("ratio", against, 0.9, "higher", True)
            if not ratios[name]:
                yield failed_row(name + suffix, *common, "no switch moved memory both ways")
            elif lag > LARGEST_LAG_RATIO:
                yield failed_row(name + suffix, *common, f"not measurable here: the device lagged by {lag:.0%}")
            else:
                yield row(name + suffix, ratios[name], f"ratio ({spec})", against, 0.9, "higher", True)


def bench_layout(build):
    """Bytes a second that a switch moves where the memory is many allocations, against those where it is one, in one run."""
    goal, better = 0.8, "higher"
    for suffix, (spec, link) in MODELS.items():
        rates, lag = {layout: [] for layout in ("block", "odd", "small")}, 0.0
        for _ in range(3):
            for layout, its in rates.items():
                run = Switching(build, spec, link, rounds=4, layout=layout)
                lag = max(lag, run.lag)
                moved = [(swap["out_bytes"] + swap["in_bytes"]) / swap["stages"]["total_ns"] for swap in run.swaps
                         if min(swap["out_bytes"], swap["in_bytes"]) >= 32 * MIB]
                if moved:
                    its.append(statistics.median(moved))
        for layout, what in (("odd", "allocations of 3·2^k + 1 MiB"), ("small", "4,096 allocations of 40 KiB")):
            name, common = f"switch_{layout}{suffix}", (f"one allocation of as many bytes as {what}", goal, better, True)
            if lag > LARGEST_LAG_RATIO:
                yield failed_row(name, "ratio", *common, f"not measurable here: the device lagged by {lag:.0%}")
            elif min(len(rates[layout]), len(rates["block"])) < 3:
                yield failed_row(name, "ratio", *common, "no switch moved memory both ways")
            else:
                yield row(name, [its / block for its, block in zip(rates[layout], rates["block"])], f"ratio ({spec})", *common)


def bench_many(build):
    """Two hundred switches: how long a byte takes in the last quarter of them against the first, and the most host memory that was in
    use against all memory of the jobs."""
    size, rounds, spec = 48 * MIB, 140, "link=500MB/s,duplex=1"
    with Sandbox(build, memory="64MiB", spec=spec + ",ctx=1MiB") as sandbox:
        sandbox.start_manager(PLEXRL_GPU_OVERHEAD="2MiB", PLEXRL_POLICY_PREFETCH_SHARE="0")
        jobs = [sandbox.shared([build / "tests/bench/swap_job", size, rounds, 10, 300], f"job{i}") for i in range(2)]
        host = 0
        while any(job.poll() is None for job in jobs):
            host = max(host, sandbox.ask_manager("status")["manager"]["host_used_bytes"])
            time.sleep(0.1)
        for job in jobs:
            sandbox.wait(job)
        lag = lag_ratio(sandbox.device_log, 500e6)
        sandbox.stop_manager()
        swaps = [swap for swap in sandbox.trace("swaps", "--json")["swaps"] if min(swap["out_bytes"], swap["in_bytes"]) >= MIB]
    times = [swap["stages"]["total_ns"] / (swap["out_bytes"] + swap["in_bytes"]) for swap in swaps]
    quarter = len(times) // 4
    common = ("ratio", f"the first {quarter}", 1.05, "lower", True)
    if lag > LARGEST_LAG_RATIO:
        yield failed_row("last_switches", *common, f"not measurable here: the device lagged by {lag:.0%}")
    elif len(times) < rounds:
        yield failed_row("last_switches", *common, f"only {len(times)} switches moved memory both ways")
    else:
        first = statistics.median(times[:quarter])
        yield row("last_switches", [its / first for its in times[-quarter:]], f"ratio ({spec})", *common[1:])
    yield row("host_memory_in_use", [host / (2 * size)], f"ratio ({len(times)} switches)", "the memory of both jobs", 1.02, "lower", True)


def bench_unchanged(build):
    """What leaves a second time when a job has changed a fifth of its memory, in one piece or scattered, or nothing: bytes that are
    copied out of those that leave, and the time of leaving against that of a raw pinned copy of all of them."""
    spec, link = "link=250MB/s,hbm=2GB/s", 250e6
    cases = {"changed_fifth": (20, 0.25, 0.35), "changed_scattered_fifth": (-5, None, None), "only_read": (0, 0.03, None)}
    for name, (changed, bytes_goal, time_goal) in cases.items():
        # Little more memory than one job takes, so that most of it leaves.
        run = Switching(build, spec, link, changed, memory="224MiB")
        shares, times = [], []
        seen = set()
        for swap in run.swaps:
            left = swap["out_bytes"] + sum(swap["saved"].values())
            is_first = swap["out_job"] not in seen
            if left < 96 * MIB:
                continue
            seen.add(swap["out_job"])
            if is_first:
                continue  # nothing of it had been out before
            shares.append(swap["out_bytes"] / left)
            times.append(swap["stages"]["evict_ns"] / (run.out_ns * left / SWAP_BYTES))
        error = None
        if not shares:
            error = "no job left twice"
        elif run.lag > LARGEST_LAG_RATIO:
            error = f"not measurable here: the device lagged by {run.lag:.0%}"
        for what, values, against, goal in (("bytes", shares, "the bytes that left", bytes_goal),
                                            ("time", times, "one raw pinned copy out of what left", time_goal)):
            if error:
                yield failed_row(f"{name}_{what}", "ratio", against, goal, "lower", True, error)
            else:
                yield row(f"{name}_{what}", values, f"ratio ({spec})", against, goal, "lower", True)


def fio_bytes_per_s(way, path, size):
    """Of fio: direct, in pieces and with a queue as the disk tier has them; `path` stays."""
    try:
        done = subprocess.run(["fio", "--name=raw", f"--filename={path}", f"--rw={way}", f"--size={size}", "--bs=1M", "--iodepth=8",
                               "--direct=1", "--ioengine=io_uring", "--output-format=json"], capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise Failure("fio is not installed") from missing
    if done.returncode != 0:
        raise Failure(f"fio ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0][way]["bw_bytes"]


def bench_disk(build):
    """Chunks sealed and written to unlinked files and read back, by the library of the disk tier, against plain writes and reads in the
    same folder."""
    size, ratios = 256 * MIB, {"write": [], "read": []}
    with tempfile.TemporaryDirectory(dir=build, prefix="disk-bench-") as folder:
        for _ in range(5):
            raw_file = pathlib.Path(folder) / "raw"
            raw = {way: fio_bytes_per_s(way, raw_file, size) for way in ("write", "read")}
            raw_file.unlink()
            write_ns, read_ns, is_direct = map(int, program_output(build, "disk_tier", folder, size, 32 * MIB).split())
            if not is_direct:
                raise Failure(f"not measurable here: the file system of {build} has no direct access")
            for way, ns in (("write", write_ns), ("read", read_ns)):
                ratios[way].append(size * 1e9 / ns / raw[way])
    for way, values in ratios.items():
        yield row(f"disk_tier_{way}", values, "ratio", f"fio's {way}s of as many bytes, direct, 8 at a time, in the same folder", 0.85,
                  "higher", False)


def bench_trace(build):
    """plexrl-trace over a trace of ten million records: how many it takes a second, and its memory against that for a tenth of them."""
    events, rates, ratios = 10_000_000, [], []
    with tempfile.TemporaryDirectory(dir=build, prefix="trace-bench-") as folder:
        runs = [pathlib.Path(folder) / name for name in ("tenth", "all")]
        for run, count in zip(runs, (events // 10, events)):
            program_output(build, "make_trace", run, count)
        for _ in range(3):
            peaks, took_s = [], 0
            for run in runs:
                began = time.monotonic()
                process = subprocess.Popen([build / "bin/plexrl-trace", "summary", "--json", run], stdout=subprocess.DEVNULL)
                _, status, used = os.wait4(process.pid, 0)
                took_s = time.monotonic() - began
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode != 0:
                    raise Failure(f"plexrl-trace summary ended with {process.returncode}")
                peaks.append(used.ru_maxrss)
            rates.append(events / took_s)
            ratios.append(peaks[1] / peaks[0])
    yield row("trace_summary_events", rates, "events/s", "no bound", None, "higher", False)
    yield row("trace_summary_memory", ratios, "ratio", "a trace of a tenth of the records", 1.3, "lower", False)


def kernels_by_process(log):
    work = [json.loads(line) for line in log.read_text().splitlines()]
    return sorted((w["start_ns"], w["end_ns"], w["pid"]) for w in work if w["kind"] == "kernel")


def bench_handoff(build):
    """From the last completion of one resident job to the first launch of the other, grace time taken off."""
    grace_ms = 1
    ratios = []
    for _ in range(3):
        round_trip = int(program_output(build, "futex_round_trip", 2000))
        with Sandbox(build, memory="256MiB") as sandbox:
            sandbox.start_manager(PLEXRL_POLICY_GRACE=f"{grace_ms}ms")
            jobs = [sandbox.shared([build / "tests/bench/swap_job", 8 * MIB, 40, 5, 4], f"job{i}") for i in range(2)]
            for job in jobs:
                sandbox.wait(job)
            sandbox.stop_manager()
            work = kernels_by_process(sandbox.device_log)
        for (_, end, pid), (start, _, next_pid) in zip(work, work[1:]):
            gap = start - end - grace_ms * 1_000_000
            if pid != next_pid and 0 < gap < 3_000_000:  # longer: the other one was not waiting yet
                ratios.append(gap / round_trip)
    name, against = "handoff_resident", "the round trip of a sleeping futex"
    if ratios:
        yield row(name, ratios, "times", against, None, "lower", True)
    else:
        yield failed_row(name, "times", against, None, "lower", True, "no handoff in which the other job waited")


def bench_collectives(build):
    """Two ranks alone on their GPUs whose waits for each other in an all-reduce are short, under PlexRL over without."""
    steps, sleep_s, pairs = 150, 0.003, 11
    program = [build / "tests/integration/programs/slow_rank", steps, sleep_s]
    ratios = []
    with Sandbox(build, memory="256MiB", gpus=2, spec="ctx=8MiB") as sandbox:
        sandbox.start_manager()

        def run(name, start):
            sandbox.wait(start(program, name, PLEXRL_TEST_TIMES=1))
            return int(sandbox.errors(name).split()[-1])

        for pair in range(pairs):
            bare = run(f"bare-{pair}", sandbox.alone)
            ratios.append(run(f"shared-{pair}", sandbox.shared) / bare)
        sandbox.stop_manager()
    name, against, goal = "collectives_with_short_waits", "the same ranks without PlexRL", 1.01
    found = row(name, ratios, "ratio", against, goal, "lower", True)
    if found["high"] - found["low"] > 2 * LARGEST_LAG_RATIO:
        why = f"not measurable here: the ratio lies between {found['low']} and {found['high']}"
        found = failed_row(name, "ratio", against, goal, "lower", True, why)
    yield found


def bench_observer(build):
    """The throughput of a job that asks a tool in its gaps, while plexrl-observer finds out what it waits for, over that without: the
    run with it between two without, whose difference says what else goes on here."""
    name, against, goal = "observed_job_throughput", "the same job without plexrl-observer", 0.99
    observer = build / "bin/plexrl-observer"
    check = subprocess.run([observer, "--check"], capture_output=True, text=True, check=False) if observer.exists() else None
    if check is None or check.returncode != 0:
        why = "plexrl-observer was not built" if check is None else (check.stderr or check.stdout).strip()
        yield failed_row(name, "ratio", against, goal, "higher", True, why)
        return

    def run(sandbox, label, observed):
        process = None
        if observed:
            process = sandbox.start([observer, "--socket", sandbox.socket], sandbox.environment(), f"observer{label}")
            wait_until(lambda: sandbox.ask_manager("status")["manager"]["observer"] is not None, "the manager has an observer", process)
        took = int(sandbox.wait(sandbox.shared([build / "tests/bench/gap_job", 60, 5, 20], f"job{label}")))
        if process is not None:
            process.terminate()
            sandbox.wait(process)
        return took

    ratios, differences, gaps = [], [], 0
    with Sandbox(build, memory="256MiB", spec="ctx=8MiB") as sandbox:
        sandbox.start_manager()
        run(sandbox, "-first", False)
        for turn in range(9):
            before, with_it, after = (run(sandbox, f"-{turn}-{part}", part == 1) for part in range(3))
            ratios.append((before + after) / 2 / with_it)
            differences.append(abs(before - after) / min(before, after))
        sandbox.stop_manager()
        gaps = sum(1 for gap in sandbox.trace("gaps", "--json", "--top", 100000)["gaps"] if gap["cause"] is not None)
    if gaps < 9 * 30:
        yield failed_row(name, "ratio", against, goal, "higher", True, f"only {gaps} gaps were observed")
        return
    if statistics.median(differences) > LARGEST_LAG_RATIO:
        why = f"not measurable here: two runs without it differ by {statistics.median(differences):.0%}"
        yield failed_row(name, "ratio", against, goal, "higher", True, why)
        return
    yield row(name, ratios, "ratio", against, goal, "higher", True)


def bench_simulator(build):
    """The simulated GPU's own ceilings on this machine: what it can do with every modelled cost switched off."""
    with Sandbox(build, memory="256MiB", spec="link=0,vmm=0,hbm=0") as sandbox:
        env = dict(sandbox.environment(), LD_LIBRARY_PATH=str(build / "lib/plexrl/simgpu"))
        out, back = [], []
        for _ in range(5):
            out_ns, in_ns = map(int, program_output(build, "raw_copy", 96 * MIB, 32 * MIB, 3, env=env).split())
            out.append(96 * MIB / out_ns)
            back.append(96 * MIB / in_ns)
    yield row("simulator_copy_out_ceiling", out, "GB/s", "no model", None, "higher", True)
    yield row("simulator_copy_in_ceiling", back, "GB/s", "no model", None, "higher", True)


BENCHMARKS = {"gate": bench_gate, "start": bench_start, "init": bench_init, "switch": bench_switch, "layout": bench_layout,
              "many": bench_many, "unchanged": bench_unchanged,
              "handoff": bench_handoff, "collectives": bench_collectives, "observer": bench_observer, "disk": bench_disk, "trace": bench_trace,
              "simulator": bench_simulator}


def show(r):
    value = "failed: " + r["error"] if r["value"] is None else f"{r['value']:.3f} ± {r['spread']:.3f} {r['unit']}"
    goal = "" if r["goal"] is None else f", goal {'≥' if r['better'] == 'higher' else '≤'} {r['goal']}: " + (
        "met" if r["met"] else "MISSED")
    if r["low"] is not None:
        value += f" (95 %: {r['low']:.3f} to {r['high']:.3f})"
    print(f"{r['name']}{' (simulated)' if r['simulated'] else ''}: {value}, against {r['against']}{goal}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path, help="the build folder")
    parser.add_argument("--json", type=pathlib.Path, help="file for the rows")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {' '.join(BENCHMARKS)}")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark '{name}': there are {' '.join(BENCHMARKS)}")
    rows = []
    for name in arguments.names or BENCHMARKS:
        try:
            for one in BENCHMARKS[name](arguments.build.resolve()):
                rows.append(one)
                show(one)
        except Failure as failure:
            rows.append(failed_row(name, "", "", None, "lower", False, str(failure)))
            show(rows[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps({"schema": 1, "rows": rows}, indent=1) + "\n")
    return 1 if any(r["met"] is False for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
