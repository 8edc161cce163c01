#!/usr/bin/env python3
"""Two processes of a job share memory (programs/shares.cc) and one of them dies; the other goes on, with the right bytes or an error.

`run_share_faults.py CASE[:POINT] --build DIR`: with POINT the victim kills itself at that named point of a test build of the preload.
Exit 0 passed, 1 failed.
"""
import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import post_mortem  # noqa: E402
import prefix  # noqa: E402
from sandbox import LOOK_S, PATIENCE_S, Failure, Sandbox  # noqa: E402

BYTES = 4 << 20  # programs/shares.cc
# What the survivor says, after its ballast's digest has been left out.
EXPECTED = {
    "owner:export.named": ["nothing was handed over", "works on"],
    "owner:export.handed_out": ["works on", "what did not come in time: CUDA_ERROR_ILLEGAL_ADDRESS"],
    "importer:import.known": ["works on", "it has 7", "all of it is free again"],
    "importer:import.mapped": ["works on", "it has 7", "all of it is free again"],
    "forgotten": ["what a dead process exported: CUDA_ERROR_INVALID_VALUE", "works on"],
    "orphaned": ["works on", f"{BYTES // 4} of {BYTES // 4} words are right"],
    "replaced": ["works on", f"{BYTES // 4} of {BYTES // 4} words are right"],
}


def wait_until(condition, process, what):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        if process.poll() is not None:
            raise Failure(f"{process.name} ended with {process.returncode} before {what}")
        time.sleep(LOOK_S)
    raise Failure(f"no {what} in {PATIENCE_S} s")


def owned_by(sandbox, pid):
    """The sizes of what the manager says that this process has from cuMemCreate, or has inherited."""
    try:
        rows = sandbox.tool("plexrl-ctl", "memory", "--json")["memory"]
    except Failure:
        return []  # there is no manager just now
    return [row["bytes"] for row in rows if row["pid"] == pid and row["kind"] == "vmm"]


def orphaned(sandbox, job, owner):
    """Kills the owner while there is no manager."""
    job.send_signal(signal.SIGSTOP)  # plexrl-run would start the next manager at once
    sandbox.manager.kill()
    sandbox.wait(sandbox.manager, expected=-signal.SIGKILL)
    os.kill(owner, signal.SIGKILL)
    job.send_signal(signal.SIGCONT)


def replaced(_, job, owner):
    """Has the owner become another program, which lives on."""
    os.kill(owner, signal.SIGUSR1)
    wait_until(lambda: pathlib.Path(f"/proc/{owner}/comm").read_text() == "sleep\n", job, "exec")


DEEDS = {"orphaned": orphaned, "replaced": replaced}


def orphan(sandbox, job, fifo, deed):
    """Takes the memory's owner away, and has the survivor go on when the manager knows whose the memory is then."""
    words = wait_until(lambda: sandbox.output("shares").read_text().split(), job, "the survivor's word that it has the memory")
    owner, survivor = int(words[0]), int(words[2])
    deed(sandbox, job, owner)
    wait_until(lambda: owned_by(sandbox, survivor) == [BYTES], job, "inheritance")
    fifo.write_bytes(b"x")


def run(sandbox, case):
    role, _, point = case.partition(":")
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    sandbox.start_manager()
    more = {"PLEXRL_TEST_FAULT": point} if point else {}
    job = sandbox.shared([sandbox.build / "tests/fault/programs/shares", role, fifo], "shares", **more)
    if role in DEEDS:
        orphan(sandbox, job, fifo, DEEDS[role])
    lines = [line for line in sandbox.wait(job).decode().splitlines() if not line.startswith("ballast:")]
    if role in DEEDS:
        lines = lines[1:]  # the pids
    if lines != EXPECTED[case]:
        raise Failure(f"the survivor said {lines}, not {EXPECTED[case]}")
    if role != "orphaned":  # there the manager has ended with the job
        wait_until(lambda: not sandbox.tool("plexrl-ctl", "memory", "--json")["memory"], sandbox.manager, "end of all memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=[*EXPECTED])
    parser.add_argument("--build", required=True)
    parser.add_argument("--preload", help="a test build of the preload")
    options = parser.parse_args()
    with (tempfile.TemporaryDirectory(prefix="plexrl-fault-") as folder,
          Sandbox(options.build, prefix.make(folder + "/prefix", options.build, options.preload, None),
                  memory="192MiB", spec="link=4GB/s,hbm=40GB/s,ctx=4MiB") as sandbox):
        try:
            run(sandbox, options.case)
        except Failure as failure:
            print(f"FAILED: {options.case}: {failure}")
            post_mortem.say(sandbox)
            return 1
    print(f"{options.case}: passed")
    return 0


sys.exit(main())
