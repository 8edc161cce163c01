#!/usr/bin/env python3
"""Runs jobs/JOB.py of a framework for each JOB named: each alone, then all at once under plexrl-run on a simulated GPU too small for two.

Passes if each prints the same bytes both times, memory of each left the GPU and came back at least twice, and nothing ran on the GPU
outside its gang's lease (lease_check.py). Exit 0 passed, 1 failed, 77 skipped.

--record NAME: what was run, and its result, goes to BUILD/compat-results/NAME.json (frameworks.py).

While a job waits for the service (jobs/service.py) its GPU is idle. HOLDS times the service answers only when some of the job's
memory has left the GPU, or no other job is left: how often that happens is counted, never timed.
"""
import argparse
import contextlib
import datetime
import json
import pathlib
import socketserver
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "jobs"), str(HERE.parent / "integration")]
import environments  # noqa: E402
import frameworks  # noqa: E402
import lease_check  # noqa: E402
import post_mortem  # noqa: E402
import service  # noqa: E402
from sandbox import LOOK_S, PATIENCE_S, Failure, Sandbox  # noqa: E402

SPEC = "link=4GB/s,hbm=40GB/s,vmm=20us,ctx=4MiB"
HOLDS, MOVES = 4, 2  # with so many held answers each of two jobs is moved at least one time less


class Server:
    """The service, on a socket of the sandbox. `hold(job)` is called for HOLDS of the requests of each job, and returns when the
    answer may go."""

    def __init__(self, sandbox, hold=None):
        self.path = sandbox.folder / "service.sock"
        self.path.unlink(missing_ok=True)
        self.hold, self.requests = hold, {}
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                for line in self.rfile:
                    with contextlib.suppress(BrokenPipeError):
                        self.wfile.write(json.dumps(server.answer(json.loads(line))).encode() + b"\n")

        self.server = socketserver.ThreadingUnixStreamServer(str(self.path), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request):
        job = request["job"]
        self.requests[job] = self.requests.get(job, 0) + 1
        # The first few of a job compile its kernels; later ones run what is compiled.
        if self.hold is not None and 2 < self.requests[job] <= 2 + HOLDS:
            self.hold(job)
        return service.answer(request)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Run:
    def __init__(self, sandbox, options):
        self.sandbox = sandbox
        self.python = pathlib.Path(sys.executable) if options.environment == "none" else environments.python(options.environment)
        self.jobs = {f"seed{seed}": (seed, job) for seed, job in enumerate(options.jobs, start=1)}
        self.variables = dict(variable.split("=", 1) for variable in options.env)
        compiler = sorted(self.python.parent.parent.glob("lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so*"))
        if compiler:
            self.variables["NVRTC_PATH"] = str(compiler[0])
        self.running = {}

    def start(self, name, how, process_name, server):
        seed, job = self.jobs[name]
        return how([self.python, "-u", HERE / "jobs" / f"{job}.py"], process_name, JOB_SEED=seed, JOB_SERVICE=server.path,
                   PYTHONHASHSEED=0, PYTHONDONTWRITEBYTECODE=1, **self.variables)

    def alone(self):
        with contextlib.closing(Server(self.sandbox)) as server:
            return {name: self.sandbox.wait(self.start(name, self.sandbox.alone, f"alone-{name}", server)) for name in self.jobs}

    def shared(self):
        self.sandbox.start_manager()
        with contextlib.closing(Server(self.sandbox, self.hold)) as server:
            for name in self.jobs:
                self.running[name] = self.start(name, self.sandbox.shared, name, server)
            outputs = {name: self.sandbox.wait(process) for name, process in self.running.items()}
        self.sandbox.stop_manager()
        return outputs

    def hold(self, name):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if all(process.poll() is not None for other, process in self.running.items() if other != name):
                return
            if any(job["name"] == name and job["host_bytes"] > 0 for job in self.sandbox.ask_manager("jobs")["jobs"]):
                return
            time.sleep(LOOK_S)


def check(sandbox, names):
    """Moves of each job, and pieces of work. Raises Failure."""
    trace = sandbox.trace("export", "--format", "json")
    moves = []
    for name in names:
        job = next(job["id"] for job in trace["summary"]["jobs"] if job["name"] == name)
        paging = [move for move in trace["paging"] if move["job"] == job]
        out, back = lease_check.evictions_and_restores(paging)
        if min(out, back) < MOVES:
            raise Failure(f"{name} was evicted {out} times and restored {back} times, not {MOVES} times")
        moves.append(f"{name} {out} evictions and {back} restores")
    return moves, len(sandbox.work_in_leases(trace))


VERSIONS = "import importlib.metadata, json, sys; print(json.dumps({p: importlib.metadata.version(p) for p in sys.argv[1:]}))"


def write_record(options, python, result, found):
    """What is installed is asked of the environment itself."""
    pinned = frameworks.Tree().pins(options.environment)
    versions = subprocess.run([python, "-c", VERSIONS, *pinned], stdout=subprocess.PIPE, text=True, check=True).stdout
    record = {"schema": 1, "test": options.record, "environment": options.environment, "jobs": options.jobs, "where": "simulated",
              "packages": json.loads(versions), "result": result, "found": found, "date": datetime.date.today().isoformat()}
    folder = pathlib.Path(options.build, "compat-results")
    folder.mkdir(exist_ok=True)
    (folder / f"{options.record}.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def run_all(sandbox, run):
    """What was found, in words; raises Failure."""
    alone, shared = run.alone(), run.shared()
    for name, output in alone.items():
        if not output or shared[name] != output:
            raise Failure(f"{name}: the outputs differ\nalone:\n{output.decode()}\nshared:\n{shared[name].decode()}")
    moves, work = check(sandbox, run.jobs)
    return f"same bytes; {', '.join(moves)}, {work} pieces of work in their leases"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", help="the NAME of a requirements-NAME.txt; none: this Python")
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="programs in tests/compat/jobs; the first gets JOB_SEED=1, the next 2")
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--memory", default="96MiB", help="of the simulated GPU (default: %(default)s)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the jobs")
    parser.add_argument("--record", metavar="NAME", help="writes BUILD/compat-results/NAME.json")
    options = parser.parse_args()
    with Sandbox(options.build, memory=options.memory, spec=SPEC) as sandbox:
        run = Run(sandbox, options)
        try:
            result, found = "passed", run_all(sandbox, run)
        except Failure as failure:
            result, found = "failed", str(failure)
            print(f"FAILED: {failure}")
            post_mortem.say(sandbox)
    if options.record:
        write_record(options, run.python, result, found.splitlines()[0])
    if result == "passed":
        print(found)
    return 0 if result == "passed" else 1


sys.exit(main())
