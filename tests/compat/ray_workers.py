#!/usr/bin/env python3
"""Ray under PlexRL (docs/ray.md): each worker is a process of the job of the driver that it works for, and of no other.

inside: a cluster that a driver starts under plexrl-run. beside: a cluster that runs outside of PlexRL, and the drivers of two jobs, which
give their workers the job by runtime_env. Ray is that of requirements-ray.txt; each worker uses the simulated GPU by the driver API.
"""
import json
import os
import pathlib
import sys

import environments

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from sandbox import Failure, run_case, wait_until  # noqa: E402

WORKERS = 2
DRIVER = pathlib.Path(__file__).resolve().parent / "jobs/ray_workers.py"


def jobs_seen(sandbox):
    return {job["name"]: {pid for gang in job["gangs"] for pid in gang["pids"]} for job in sandbox.ask_manager("jobs")["jobs"]}


def start_driver(sandbox, name, address):
    words = [sandbox.prefix / "bin/plexrl-run", "--require", "--name", name, "--memory", "32MiB", "--", environments.python("ray"), DRIVER, address,
             str(WORKERS), sandbox.folder / f"{name}.json", sandbox.folder / "go"]
    return sandbox.start(words, sandbox.environment(RAY_TMPDIR=short_folder(sandbox), RAY_USAGE_STATS_ENABLED="0"), name)


def short_folder(sandbox):
    """Ray's sockets lie below it, and their paths have to be short."""
    folder = sandbox.folder / "r"
    folder.mkdir(exist_ok=True)
    return folder


def check(sandbox, drivers):
    told = {}
    for name, driver in drivers.items():
        file = sandbox.folder / f"{name}.json"
        wait_until(file.exists, f"the workers of '{name}' have used the GPU", beside=driver, seen=lambda name=name: sandbox.errors(name)[-2000:])
        told[name] = set(json.loads(file.read_text()))
    if any(len(pids) != WORKERS for pids in told.values()):
        raise Failure(f"workers: {told}")
    if jobs_seen(sandbox) != told:
        raise Failure(f"the workers are {told}, and the manager sees {jobs_seen(sandbox)}")
    (sandbox.folder / "go").touch()
    for name, driver in drivers.items():
        if sandbox.wait(driver).decode().splitlines()[-1] != "the bytes are right":
            raise Failure(f"'{name}' printed {sandbox.output(name).read_text()}")
    return f"{', '.join(f'{name}: {len(pids)} workers' for name, pids in told.items())}"


def inside(sandbox):
    sandbox.start_manager()
    return check(sandbox, {"train": start_driver(sandbox, "train", "local")})


def beside(sandbox):
    ray = environments.python("ray").with_name("ray")
    sandbox.start_manager()
    outside = {name: value for name, value in sandbox.environment().items() if not name.startswith("PLEXRL_")}
    outside.update(RAY_TMPDIR=str(short_folder(sandbox)), RAY_USAGE_STATS_ENABLED="0")
    head = sandbox.start([ray, "start", "--head", "--block", "--port", "0", "--num-cpus", 2 * WORKERS, "--include-dashboard", "false",
                          "--temp-dir", short_folder(sandbox)], outside, "head")
    address_file = short_folder(sandbox) / "ray_current_cluster"
    wait_until(address_file.exists, "Ray has started", beside=head, seen=lambda: sandbox.errors("head")[-2000:])
    address = address_file.read_text().strip()
    return check(sandbox, {name: start_driver(sandbox, name, address) for name in ("one", "two")})


if __name__ == "__main__":
    os.environ.pop("RAY_ADDRESS", None)
    sys.exit(run_case(__doc__, {"inside": inside, "beside": beside}, spec=""))
