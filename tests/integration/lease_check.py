"""Compares what ran on the simulated GPU with what the manager says it allowed.

The device log (PLEXRL_SIMGPU log=FILE) has a JSON line for each piece of work: pid, kind, start_ns, end_ns. `plexrl-trace export
--format json` has the states of each gang and which process belongs to which job. Both use CLOCK_BOOTTIME. What a job does may run
while its gang is running or draining. The pager's own copies, on a stream of their own, also run at other times: to the device while
the gang is loading, from the device until it loads again.
"""
import collections
import json

OPEN = ("running", "draining")
CHUNK = 2 << 20


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


def until_next_load(trace, running):
    """The same intervals, each until the job begins to load again: so long its memory may be copied out."""
    loads = intervals(trace, ("loading",))
    result = {}
    for job, spans in running.items():
        result[job] = [[start, min((load for load, _ in loads[job] if load >= end), default=float("inf"))]
                       for start, end in spans]
    return result


def pager_streams(work):
    """(pid, stream) of the streams that carry whole chunks between device and host and nothing else."""
    pieces = collections.defaultdict(list)
    for piece in work:
        pieces[piece["pid"], piece["stream"]].append(piece)
    return {stream for stream, all_of_it in pieces.items()
            if all(p["kind"] in ("h2d", "d2h") and p["bytes"] % CHUNK == 0 for p in all_of_it)}


def violations(trace, work):
    """Lines that name each piece of work outside its gang's lease."""
    job_of = {process["pid"]: process["job"] for process in trace["processes"]}
    running = intervals(trace, OPEN)
    paging = {"h2d": intervals(trace, (*OPEN, "loading")), "d2h": until_next_load(trace, running)}
    pagers = pager_streams(work)
    for piece in work:
        if piece["kind"] == "h2h":
            continue
        job = job_of.get(piece["pid"])
        if job is None:
            yield f"work of pid {piece['pid']}, which is in no job: {piece}"
            continue
        is_paging = (piece["pid"], piece["stream"]) in pagers
        # A gang of several processes may be evicted from one while another still leaves, and the trace has no window for each. What
        # must hold is that the process's own work is at rest while its memory is copied out.
        if is_paging and piece["kind"] == "d2h" and list(job_of.values()).count(job) > 1:
            for other in work:
                if (other["pid"] == piece["pid"] and (other["pid"], other["stream"]) not in pagers and other["kind"] != "h2h"
                        and other["start_ns"] < piece["end_ns"] and piece["start_ns"] < other["end_ns"]):
                    yield f"copied out while the process's own work ran ({other}): {piece}"
            continue
        allowed = (paging[piece["kind"]] if is_paging else running).get(job, [])
        if not any(start <= piece["start_ns"] and piece["end_ns"] <= end for start, end in allowed):
            nearest = min(allowed, key=lambda span: abs(span[0] - piece["start_ns"]), default=None)
            yield f"outside its lease (nearest {nearest}): {piece}"
