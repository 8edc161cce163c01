"""Compares what ran on the simulated GPU with what the manager says it allowed.

The device log (PLEXRL_SIMGPU log=FILE) has a JSON line for each piece of work: pid, gpu, stream, kind, bytes, start_ns, end_ns.
`plexrl-trace export --format json` has the states of each gang, which process belongs to which gang since when, and a window for each
time that a process moved memory out (evict) or in (load, prefetch). Both use CLOCK_BOOTTIME. The rules (docs/architecture.md, invariant 3):

1. What a process submitted runs only while its gang is running or draining.
2. The pager's copies out of a process lie in an evict window of that process and GPU, and so does all that hashes its chunks; its
   copies in, and its fills of chunks of one repeated word, lie in a load or prefetch window.
3. While memory of a process leaves, all of its gang is at rest: from when the manager asked to when it was told, nothing of any
   process of the gang runs but copies out and hashes, and copies in of a prefetch that ends with that.
4. Memory leaves only gangs without a lease, and comes only to gangs with one, or to those that were asked to prefetch while they
   had none.
5. A window's bytes are those of the copies in it.
"""
import collections
import json

OPEN = ("running", "draining")
LEASE = (*OPEN, "loading")
CHUNK = 2 << 20
IN = ("load", "prefetch")
DIRECTION = {"d2h": ("evict",), "h2d": IN, "memset": IN}  # the windows of the pager's work with whole chunks
HASH_KERNEL = "plexrl_chunk_hash"
FOREVER = float("inf")


def read_device_log(path):
    """A list of dicts. A last line that was cut short by the death of its writer is left out."""
    work = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            work.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return work


def joined(spans):
    """The same time as [start, end] lists, in order, neighbours joined."""
    result = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([start, end])
    return result


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


def inside(one, spans):
    return any(start <= one[0] and one[1] <= end for start, end in spans)


def span_of(piece):
    return piece["start_ns"], piece["end_ns"]


class Gangs:
    """Who belonged to which gang when, and when which gang was in which states."""

    def __init__(self, trace):
        self.slices = collections.defaultdict(list)  # gang -> [(state, start, end)]
        for piece in trace["slices"]:
            self.slices[piece["gang"]].append((piece["state"], piece["start_mono_ns"], piece["end_mono_ns"]))
        self.memberships = collections.defaultdict(list)  # pid -> [(gang, since, until)]
        for process in trace["processes"]:
            since = process["gangs"]
            ends = [entry["since_mono_ns"] for entry in since[1:]] + [FOREVER]
            self.memberships[process["pid"]] += [(entry["gang"], entry["since_mono_ns"], end) for entry, end in zip(since, ends)]

    def spans(self, gang, states):
        return joined((start, end) for state, start, end in self.slices[gang] if state in states)

    def open_spans(self, pid):
        """When the process's gate may have been open."""
        return joined((max(start, since), min(end, until)) for gang, since, until in self.memberships[pid]
                      for start, end in self.spans(gang, OPEN) if start < until and since < end)

    def was_in(self, pid, gang, span):
        return any(its == gang and overlap(span, (since, until)) for its, since, until in self.memberships[pid])


class Window:
    def __init__(self, record, lenders):
        self.record = record
        self.kind, self.pid, self.gang = record["kind"], record["pid"], record["gang"]
        self.gpus = {*record["gpus"], *(lenders[gpu] for gpu in record["gpus"] if gpu in lenders)}
        end = record["end_mono_ns"]
        self.span = (record["start_mono_ns"], FOREVER if end is None else end)
        self.manager_span = (record["asked_mono_ns"], record["told_mono_ns"])

    def takes(self, piece):
        return (piece["pid"] == self.pid and piece["gpu"] in self.gpus and self.kind in DIRECTION.get(piece["kind"], ())
                and inside(span_of(piece), [self.span]))

    def __str__(self):
        return f"{self.kind} window of pid {self.pid} {self.span} asked and told {self.manager_span}"


def stream_of(piece):
    return piece["pid"], piece["ctx"], piece["stream"]


def hash_streams(work):
    """The streams with the pager's own kernel, and what it needs: a few copies and fills."""
    return {stream_of(piece) for piece in work if piece["kind"] == "kernel" and piece["name"] == HASH_KERNEL}


def pager_streams(work, windows):
    """The streams that carry whole chunks between device and host, or fill them, and do nothing else; some of it while memory was to
    move, fills only then."""
    pieces = collections.defaultdict(list)
    for piece in work:
        pieces[stream_of(piece)].append(piece)
    return {stream for stream, all_of_it in pieces.items()
            if all(p["kind"] in DIRECTION and p["bytes"] % CHUNK == 0 for p in all_of_it)
            and any(window.pid == stream[0] and any(overlap(window.manager_span, span_of(p)) for p in all_of_it)
                    for window in windows)
            and all(p["kind"] != "memset" or any(window.takes(p) for window in windows) for p in all_of_it)}


def violations(trace, work, lenders=None):
    """Lines that name each piece of work, and each window, that breaks a rule. `lenders`: GPU -> the one whose context copies for it,
    because the program has none there."""
    gangs = Gangs(trace)
    windows = [Window(record, lenders or {}) for record in trace["paging"]]
    work = [piece for piece in work if piece["kind"] not in ("h2h", "failure")]  # no device takes part
    hashers = hash_streams(work)
    pagers = pager_streams(work, windows)
    moved = collections.Counter()
    open_spans = {pid: gangs.open_spans(pid) for pid in {piece["pid"] for piece in work}}
    for piece in work:
        pid = piece["pid"]
        if not gangs.memberships[pid]:
            yield f"work of pid {pid}, which is in no gang: {piece}"
        elif stream_of(piece) in pagers:
            taken = [window for window in windows if window.takes(piece)]
            for window in taken:
                moved[window] += piece["bytes"] if piece["kind"] != "memset" else 0
            if not taken:
                yield f"the pager's copy outside its windows: {piece}"
        elif stream_of(piece) in hashers:
            if not any(window.kind == "evict" and window.pid == pid and piece["gpu"] in window.gpus
                       and inside(span_of(piece), [window.span]) for window in windows):
                yield f"hashed outside the evict windows: {piece}"
        elif not inside(span_of(piece), open_spans[pid]):
            nearest = min(open_spans[pid], key=lambda span: abs(span[0] - piece["start_ns"]), default=None)
            yield f"outside its lease (nearest {nearest}): {piece}"
    for window in windows:
        yield from window_violations(window, windows, gangs, work, (pagers, hashers), moved[window])


def evictions_and_restores(moves):
    """Of the trace's paging windows of a job: how many leases ended with contents leaving, and how many began with them coming back;
    by a copy, or without one where they consist of one word or are still in the host."""
    def leases(kind):
        means = ("out_bytes", "in_bytes", "repeated_bytes", "unchanged_bytes")
        return len({move["epoch"] for move in moves if move["kind"] == kind and any(move[by] > 0 for by in means)})
    return leases("evict"), leases("load")  # what was prefetched may leave again unused


def window_violations(window, windows, gangs, work, streams, moved):
    pagers, hashers = streams
    if window.kind == "evict":
        prefetches = [other for other in windows if other.kind == "prefetch"]
        for piece in work:
            leaves = piece["kind"] == "d2h" and stream_of(piece) in pagers or stream_of(piece) in hashers
            called_off = stream_of(piece) in pagers and any(prefetch.takes(piece) for prefetch in prefetches)
            if (not leaves and not called_off and overlap(window.manager_span, span_of(piece))
                    and gangs.was_in(piece["pid"], window.gang, span_of(piece))):
                yield f"not at rest in the {window}: {piece}"
        for span in gangs.spans(window.gang, LEASE):
            if overlap(window.manager_span, span):
                yield f"its gang had a lease {span} in the {window}"
    elif window.kind == "prefetch":
        for span in gangs.spans(window.gang, OPEN):
            if overlap(window.span, span):
                yield f"its gang ran {span} in the {window}"
    elif not inside(window.span, gangs.spans(window.gang, LEASE)):
        yield f"its gang had no lease in the {window}"
    told = window.record["out_bytes" if window.kind == "evict" else "in_bytes"]
    if window.record["outcome"] in ("done", "failed") and told != moved:
        yield f"{moved} bytes were copied, not {told}, in the {window}"
