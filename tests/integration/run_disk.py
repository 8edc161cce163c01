#!/usr/bin/env python3
"""Jobs whose memory needs GPU, host and disk. usage: run_disk.py CASE --build DIR. Exit 0 passed, 1 failed, 77 skipped.

In each case but the first jobs (turns.py) take the GPU from each other again and again, check all their bytes and
write new ones; the promises need more than GPU and host memory.

off: without a budget nothing goes to disk: such a third job is refused, with the figures.
three_take_turns: with one, three of them run; all their bytes are right, and some were on disk.
deaths: the same; managers are killed meanwhile, and one of the jobs, whose bytes on disk are given back.
damaged: one byte of each piece of a job's file is changed while it is paused: it ends with an error of CUDA's, the others do not notice.
dies_at_write, dies_at_read, dies_at_answer: the manager dies when it was asked to write a chunk, to read one, and when it has told of one.
full: the file system is full for a while: what has to leave stays in HBM meanwhile, and all goes on when there is room.
"""
import os
import shutil
import signal
import subprocess
import sys

import prefix
from sandbox import SKIPPED, Failure, run_case, wait_until
from turns import CHUNK, MEMORY, MIB, OUTSIDE, QUICK, SPEC, Turns, check_trace

HOST = 64 * MIB + 3 * 2 * CHUNK  # with a staging slab of two chunks for each process


def disk_environment(budget=OUTSIDE, **more):
    return {"PLEXRL_HOST_BUDGET": HOST, "PLEXRL_DISK_BUDGET": budget, **QUICK, **more}


def disk_rows(sandbox):
    return [row for row in sandbox.memory_rows() if row["tier"] == "disk"]


def off(sandbox):
    sandbox.start_manager(PLEXRL_HOST_BUDGET=HOST, **QUICK)
    turns = Turns(sandbox, count=2)
    for index in range(2):
        turns.start(index)
        wait_until(lambda: turns.rounds()[index] > 0, "its first round", beside=turns.jobs[index])
    refused = turns.start(2)
    sandbox.wait(refused, expected=125)
    if "host memory: all promises together need" not in sandbox.errors("job2"):
        raise Failure(f"job2 was refused with: {sandbox.errors('job2')}")
    turns.wait_for_rounds(1, of=(0, 1))
    turns.end((0, 1))
    if (sandbox.state / "spill").exists():
        raise Failure("a folder for the disk tier was made")
    return "a job that would have needed the disk was refused"


def three_take_turns(sandbox):
    sandbox.start_manager(**disk_environment())
    turns = Turns(sandbox).start_all()
    turns.wait_for_rounds(2)
    wait_until(lambda: disk_rows(sandbox), "a row of plexrl-ctl memory with the tier disk", beside=tuple(turns.jobs))
    wait_until(lambda: any(job["disk_bytes"] for job in sandbox.ask_manager("jobs")["jobs"]), "a job's disk_bytes",
               beside=tuple(turns.jobs))
    sandbox.wait(turns.start(3), expected=125)
    if "host memory and disk: all promises together need" not in sandbox.errors("job3"):
        raise Failure(f"a fourth job was refused with: {sandbox.errors('job3')}")
    turns.end()
    wait_until(lambda: sandbox.ask_manager("status")["manager"]["disk_used_bytes"] == 0, "an empty disk")
    if os.listdir(sandbox.state / "spill"):
        raise Failure(f"files have names: {os.listdir(sandbox.state / 'spill')}")
    sandbox.stop_manager()
    out, back = check_trace(sandbox)
    if out == 0 or back == 0:
        raise Failure(f"{out} bytes went to disk and {back} came from there: that is no test")
    return f"three jobs took turns, {out >> 20} MiB went to disk and {back >> 20} MiB came from there, their bytes were right"


def deaths(sandbox):
    # The first plexrl-run starts a manager, and each of them another where it is killed.
    turns = Turns(sandbox).start_all(**disk_environment())
    for _ in range(3):
        turns.wait_for_rounds(1)
        wait_until(lambda: disk_rows(sandbox), "bytes on disk", beside=tuple(turns.jobs))
        os.kill(sandbox.tool("plexrl-ctl", "status", "--json")["manager"]["pid"], signal.SIGKILL)
        wait_until(sandbox.socket.exists, "the next manager")
    turns.wait_for_rounds(1)
    os.killpg(turns.jobs[2].pid, signal.SIGKILL)
    wait_until(lambda: len(sandbox.ask_manager("jobs")["jobs"]) == 2, "the end of the job that was killed")
    turns.do_without(2)
    turns.wait_for_rounds(2, of=(0, 1))
    turns.end((0, 1))
    return "managers and a job were killed while three jobs took turns, the others went on and their bytes were right"


def damage(manager_pid, job_pid, folder):
    """Changes a byte in each megabyte of the file that the process holds the name of. Returns how many."""
    def files_of(pid):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            try:
                if os.readlink(path).startswith(f"{folder}/"):
                    yield os.stat(path).st_ino, path
            except FileNotFoundError:
                continue  # closed meanwhile, as the manager's sockets are

    own = dict(files_of(job_pid))
    changed = 0
    for inode, path in files_of(manager_pid):
        if inode not in own:
            continue
        with open(path, "r+b", buffering=0) as file:
            for offset in range(0, os.fstat(file.fileno()).st_size, MIB):
                file.seek(offset + 12345)
                byte = file.read(1)
                file.seek(offset + 12345)
                file.write(bytes([byte[0] ^ 1]))
                changed += 1
    return changed


def paused_with_bytes_on_disk(sandbox, turns):
    """Pauses one job after the other until one has bytes on disk, which then stay there. Returns its name and its process's id."""
    def seen(name):
        return next(job for job in sandbox.ask_manager("jobs")["jobs"] if job["name"] == name)

    for attempt in range(1000):
        name = f"job{attempt % 3}"
        sandbox.tool("plexrl-ctl", "pause", name, "--json")
        wait_until(lambda: all(gang["state"] == "paused" for gang in seen(name)["gangs"]), f"{name}'s pause", beside=tuple(turns.jobs))
        if seen(name)["disk_bytes"] != 0:
            return name, seen(name)["gangs"][0]["pids"][0]
        sandbox.tool("plexrl-ctl", "resume", name, "--json")
        turns.wait_for_rounds(1)
    raise Failure("no job that was paused had bytes on disk")


def damaged(sandbox):
    sandbox.start_manager(**disk_environment())
    turns = Turns(sandbox).start_all()
    turns.wait_for_rounds(1)
    name, pid = paused_with_bytes_on_disk(sandbox, turns)
    changed = damage(sandbox.manager.pid, pid, sandbox.state / "spill")
    if changed == 0:
        raise Failure("nothing was found on disk")
    sandbox.tool("plexrl-ctl", "resume", name, "--json")
    index = int(name.removeprefix("job"))
    others = tuple(other for other in range(3) if other != index)
    sandbox.wait(turns.jobs[index], expected=1)
    if "can't be read back from disk" not in sandbox.errors(name):
        raise Failure(f"{name} said: {sandbox.errors(name)}")
    if b"WRONG" in sandbox.output(name).read_bytes():
        raise Failure(f"{name} saw wrong bytes")
    turns.do_without(index)
    turns.wait_for_rounds(2, of=others)
    turns.end(others)
    return f"{changed} bytes of a job's file were changed: it ended with {sandbox.errors(name).splitlines()[-1]!r}, the others were right"


def manager_dies_at(point):
    def case(sandbox):
        sandbox.prefix = prefix.make(sandbox.folder / "prefix", sandbox.build, nodemgr=sandbox.build / "tests/plexrl-nodemgr-faults")
        sandbox.start_manager(PLEXRL_FAULT=point, **disk_environment())
        turns = Turns(sandbox).start_all(**disk_environment())
        sandbox.wait(sandbox.manager, expected=-signal.SIGKILL)
        turns.wait_for_rounds(2)
        turns.end()
        return f"the manager died at {point}, another took over, and all bytes were right"
    return case


def can_mount():
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], stderr=subprocess.DEVNULL) \
        if shutil.which("unshare") else None
    return done is not None and done.returncode == 0


def full(sandbox):
    folder = sandbox.folder / "disk"
    folder.mkdir(mode=0o700)
    size = OUTSIDE + OUTSIDE // 8
    mounted = f'mount -t tmpfs -o mode=700,size={size} none "{folder}" && exec "$@"'
    sandbox.start_manager(through=["unshare", "--mount", "sh", "-c", mounted, "sh"], **disk_environment(PLEXRL_DISK_DIR=folder))
    turns = Turns(sandbox).start_all()
    turns.wait_for_rounds(1)
    seen_there = f"/proc/{sandbox.manager.pid}/root{folder}"
    filler = os.path.join(seen_there, "filler")

    def fill():
        """As much as there is room for; a job that loads makes some more."""
        free = os.statvfs(seen_there)
        with open(filler, "ab") as file:
            try:
                os.posix_fallocate(file.fileno(), file.tell(), max(free.f_bavail * free.f_frsize, 4096))
            except OSError:
                pass
        return "the file system is full" in sandbox.errors("nodemgr")

    wait_until(fill, "a full file system", beside=tuple(turns.jobs))
    os.unlink(filler)
    turns.wait_for_rounds(1)
    turns.end()
    sandbox.stop_manager()
    check_trace(sandbox)
    return "the file system was full for a while, all bytes were right"


CASES = {"off": off, "three_take_turns": three_take_turns, "deaths": deaths, "damaged": damaged, "full": full,
         "dies_at_write": manager_dies_at("disk_write:20"), "dies_at_read": manager_dies_at("disk_read:10"),
         "dies_at_answer": manager_dies_at("disk_moved:15")}
if sys.argv[1:2] == ["full"] and not can_mount():
    print("skipped: this user may not mount a small file system")
    sys.exit(SKIPPED)
sys.exit(run_case(__doc__, CASES, SPEC, f"{MEMORY >> 20}MiB"))
