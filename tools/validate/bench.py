"""Benchmarks of a machine's GPU: their rows have the keys of all benchmark rows (docs/contract.md)."""
import statistics
import subprocess

import sharing


def row(machine, name, value, unit, against, rounds, goal=None, better="higher"):
    met = None if goal is None else value >= goal if better == "higher" else value <= goal
    return {"name": name, "value": round(value, 4), "unit": unit, "against": against, "goal": goal, "better": better, "met": met,
            "simulated": machine.simulated, "rounds": rounds}


def passed(name, detail, rows, **more):
    met = all(row["met"] is not False for row in rows)
    return dict(more, name=name, result="passed" if met else "failed", detail=detail, rows=rows)


def numbers(machine, program, *arguments):
    """What a program of tests/bench prints: a list of numbers for each line."""
    done = subprocess.run([str(machine.programs / "bench" / program), *map(str, arguments)], capture_output=True, text=True, check=True,
                          timeout=machine.command_s())
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def measure_switch(machine):
    """Evict and restore as the trace shows them, against raw pinned copies of as many bytes, in turns."""
    mib, name = machine.mib, "evict_and_restore"
    ratios, rates = [], []
    for turn in range(3):
        (out_ns,), (in_ns,) = numbers(machine, "raw_copy", 1024 * mib, min(1024 * mib, 32 << 20), 5)
        session = sharing.Session(machine.sessions / name / str(turn), 6144 * mib)
        jobs = [session.start([machine.programs / "bench/swap_job", 3840 * mib, 8, 200, 400]) for _ in range(2)]
        for job, (_, errors) in zip(jobs, sharing.outputs(machine, jobs)):
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
    rows = [row(machine, name, ratio, "ratio", "one raw pinned copy each way of as many bytes", len(ratios), goal=0.7)]
    return passed(name, f"{ratio:.3f} of a raw pinned copy (goal 0.7), {statistics.median(rates):.1f} GB/s", rows, switches=len(ratios))


def measure_both_ways(machine):
    """What each direction of the link gives while another process keeps the other direction busy, against that direction by itself."""
    size, piece, rounds = 1024 * machine.mib, min(256 * machine.mib, 32 << 20), 7
    rows = []
    for way, other in (("out", "in"), ("in", "out")):
        (alone_ns,), = numbers(machine, "raw_copy", size, piece, rounds, way)
        # Without rounds: until it is killed. It says when it has begun.
        beside = sharing.start([machine.programs / "bench/raw_copy", piece, piece, 0, other], None)
        try:
            sharing.begun(machine, beside)
            (both_ns,), = numbers(machine, "raw_copy", size, piece, rounds, way)
            if beside.poll() is not None:
                return {"name": "link_both_ways", "result": "failed", "detail": beside.communicate()[1].decode()[-500:]}
        finally:
            sharing.stop(beside)
        rows.append(row(machine, f"link_{way}_beside_{other}", alone_ns / both_ns, "ratio",
                        f"the same copies with nothing going {other}: {size / alone_ns:.1f} GB/s", rounds))
    detail = ", ".join(f"{one['name']}: {one['value']:.2f} of {one['against'].split(': ')[1]}" for one in rows)
    return passed("link_both_ways", detail, rows)


VMM_CALLS = ("create", "map", "set_access", "unmap", "release")


def size_name(size):
    return f"{size >> 30}GiB" if size >> 30 else f"{size >> 20}MiB"


def measure_vmm(machine):
    """What the calls of virtual memory management cost by size, on the bare driver."""
    rounds = 20
    rows = []
    for size, *times in numbers(machine, "vmm_cost", max(1024 * machine.mib >> 20, 2), rounds):
        rows += [row(machine, f"vmm_{call}_{size_name(size)}", time_ns / 1e3, "us", "nothing: the median of the call itself", rounds,
                     better="lower") for call, time_ns in zip(VMM_CALLS, times)]
    creates = [one for one in rows if "_create_" in one["name"]]
    return passed("vmm_cost", "cuMemCreate: " + ", ".join(f"{one['name'].split('_')[-1]} {one['value']:.1f} us" for one in creates), rows)
