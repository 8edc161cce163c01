#!/usr/bin/env python3
"""Launchers that start a job's processes (docs/torchrun.md): all of them are of the job.

torchrun: a launcher that starts ranks as torchrun does. real_torchrun: torchrun itself, where it is installed.
"""
import json
import pathlib
import re
import shutil
import sys

from sandbox import SKIPPED, Failure, run_case, wait_until

# What each rank does: says who it is, then computes on the GPU until it is told to end.
RANK = """import json, os
told = {{name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PLEXRL_JOB_ID")}}
with open("rank" + told["RANK"] + ".tmp", "w") as out:
    json.dump(dict(told, pid=os.getpid()), out)
os.rename(out.name, "rank" + told["RANK"] + ".json")
if "SIMGPU_LIBRARIES" in os.environ:
    os.environ["LD_LIBRARY_PATH"] = os.environ["SIMGPU_LIBRARIES"]
os.execv({rlvr!r}, ["rlvr", "--name", "rank" + told["RANK"], "--steps", "2", "--seed", told["RANK"], "--state-bytes", str(1 << 20), "--until", "go"])
"""
RANKS = 2


def ranks_of(folder):
    return [json.loads(file.read_text()) for file in sorted(folder.glob("rank*.json"))]


def started_by(launcher):
    def case(sandbox):
        sandbox.start_manager()
        here = sandbox.folder / "here"
        here.mkdir()
        rlvr = str(sandbox.build / "tests/bin/rlvr")
        (here / "rank.py").write_text(RANK.format(rlvr=rlvr))
        words = [sandbox.prefix / "bin/plexrl-run", "--require", "--name", "train", "--", *launcher, "--standalone", "--nproc_per_node", RANKS,
                 "rank.py"]
        job = sandbox.start(words, sandbox.environment(), "train", cwd=here)
        wait_until(lambda: len(ranks_of(here)) == RANKS, "both ranks have begun", beside=job)
        pids = {rank["pid"] for rank in ranks_of(here)}

        def seen():
            return [{pid for gang in one["gangs"] for pid in gang["pids"]} for one in sandbox.ask_manager("jobs")["jobs"]]

        wait_until(lambda: seen() == [pids], f"one job has the processes {pids}", beside=job, seen=lambda: f"{seen()}")
        (here / "go").touch()
        printed = sorted(re.sub(r"^\[\w+\]:", "", line) for line in sandbox.wait(job).decode().splitlines())
        alone = []
        for number, rank in enumerate(ranks_of(here)):
            if (rank["RANK"], rank["LOCAL_RANK"], rank["WORLD_SIZE"]) != (str(number), str(number), str(RANKS)) or not rank["MASTER_PORT"]:
                raise Failure(f"rank {number} was started as {rank}")
            by_itself = sandbox.alone([rlvr, "--name", f"rank{number}", "--steps", 2, "--seed", number, "--state-bytes", 1 << 20], f"alone{number}")
            alone += sandbox.wait(by_itself).decode().splitlines()
        if printed != sorted(alone):
            raise Failure(f"the ranks printed {printed}, alone {sorted(alone)}")
        if len({rank["PLEXRL_JOB_ID"] for rank in ranks_of(here)}) != 1:
            raise Failure(f"ranks of several jobs: {ranks_of(here)}")
        sandbox.stop_manager()
        work = sandbox.work_in_leases(sandbox.trace("export", "--format", "json"))
        return f"{RANKS} ranks, {len(work)} pieces of work"

    return case


def real_torchrun(sandbox):
    torchrun = shutil.which("torchrun")
    if not torchrun:
        print("skipped: there is no torchrun (python3-torch)")
        sys.exit(SKIPPED)
    # Debian's PyTorch is linked with libibverbs, and does not load with the simulated one, which has no versions of symbols.
    without_simgpu = 'SIMGPU_LIBRARIES=$LD_LIBRARY_PATH; export SIMGPU_LIBRARIES; unset LD_LIBRARY_PATH; exec "$0" "$@"'
    # With Python 3.11 its defaults for these, 0, are an error. It puts a word in front of each line then.
    ways = ["--redirects", "1", "--tee", "1", "--log_dir", sandbox.folder / "logs"]
    return started_by(["sh", "-c", without_simgpu, torchrun, *ways])(sandbox)


CASES = {"torchrun": started_by([sys.executable, pathlib.Path(__file__).resolve().with_name("torchrun_stand_in.py")]),
         "real_torchrun": real_torchrun}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
