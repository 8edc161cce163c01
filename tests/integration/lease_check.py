"""Compares what ran on the simulated GPU with what the manager says it allowed.

The device log (PLEXRL_SIMGPU log=FILE) has a JSON line for each piece of work: pid, kind, start_ns, end_ns. `plexrl-trace export
--format json` has the states of each gang and which process belongs to which job. Both use CLOCK_BOOTTIME. Kernels, memsets, host
functions and copies within the device may run while their gang is running or draining; copies to the device also while it is
loading; copies from the device also while it is being evicted for a newcomer.
"""
import collections
import json

OPEN = ("running", "draining")


def read_device_log(path):
    """A list of dicts. A last line that was cut short by the death of its writer is left out."""
    work = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            work.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return work


def intervals(trace, states):
    """job id -> [[start, end], …] in which its gangs were in one of `states`, neighbours joined."""
    result = collections.defaultdict(list)
    for piece in sorted(trace["slices"], key=lambda s: s["start_mono_ns"]):
        if piece["state"] not in states:
            continue
        spans = result[piece["job"]]
        if spans and piece["start_mono_ns"] <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], piece["end_mono_ns"])
        else:
            spans.append([piece["start_mono_ns"], piece["end_mono_ns"]])
    return result


def with_evictions(trace, running):
    """The same intervals, each until the switch in which the job's memory was taken after it."""
    taken = collections.defaultdict(list)
    for swap in trace["swaps"]:
        if swap["out_job"] is not None and swap["out_bytes"] > 0:
            taken[swap["out_job"]].append(swap["mono_ns"])
    result = {}
    for job, spans in running.items():
        starts = [start for start, _ in spans[1:]] + [float("inf")]
        result[job] = [[start, max([end, *(at for at in taken[job] if end <= at <= following)])]
                       for (start, end), following in zip(spans, starts)]
    return result


def violations(trace, work):
    """Lines that name each piece of work outside its gang's lease."""
    job_of = {process["pid"]: process["job"] for process in trace["processes"]}
    running = intervals(trace, OPEN)
    allowed_for = {"h2d": intervals(trace, (*OPEN, "loading")), "d2h": with_evictions(trace, running)}
    for piece in work:
        if piece["kind"] == "h2h":
            continue
        job = job_of.get(piece["pid"])
        if job is None:
            yield f"work of pid {piece['pid']}, which is in no job: {piece}"
            continue
        allowed = allowed_for.get(piece["kind"], running).get(job, [])
        if not any(start <= piece["start_ns"] and piece["end_ns"] <= end for start, end in allowed):
            nearest = min(allowed, key=lambda span: abs(span[0] - piece["start_ns"]), default=None)
            yield f"outside its lease (nearest {nearest}): {piece}"
