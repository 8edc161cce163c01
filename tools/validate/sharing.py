"""Programs alone and sharing the GPU under plexrl-run: same bytes on stdout, and memory was paged."""
import atexit
import functools
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

from machine import PACK, used_bytes


class NoEnd(Exception):
    """A command was stopped because it took too long, or the time of the whole run was up."""


def start(command, environment):
    return subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True)


def outputs(machine, jobs):
    """(stdout, stderr) of each. When the time is up all of them are killed."""
    began = time.monotonic()
    try:
        limit_s = machine.command_s()
        return [job.communicate(timeout=max(1.0, limit_s - (time.monotonic() - began))) for job in jobs]
    except subprocess.TimeoutExpired:
        for job in jobs:
            stop(job)
        raise NoEnd(f"no end after {time.monotonic() - began:.0f} s") from None


def begun(machine, job):
    """Waits for the first line that a job prints. Where none comes it is killed."""
    limit = threading.Timer(machine.command_s(), os.killpg, [job.pid, signal.SIGKILL])
    limit.start()
    line = job.stdout.readline()
    limit.cancel()
    if not line:
        raise NoEnd(f"{job.args[0]} ended or hung before it had begun: {job.communicate()[1].decode(errors='replace')[-500:]}")


def stop(job):
    """With what it has started itself: under plexrl-run, the program."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


class Session:
    """A node manager of its own (its socket, state and budget), and the jobs that run under it."""

    def __init__(self, folder, budget_bytes, environment=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # A socket's path has 107 characters at most; OUT may be longer.
        self.sockets = tempfile.mkdtemp(prefix="plexrl-validate-")
        atexit.register(shutil.rmtree, self.sockets, ignore_errors=True)
        self.environment = dict(os.environ, **(environment or {}), PLEXRL_SOCKET=self.sockets + "/nodemgr.sock",
                                PLEXRL_DATA=str(folder / "state"), PLEXRL_GPU_MEMORY=str(budget_bytes))

    def start(self, command, *options):
        return start([PACK / "bin/plexrl-run", "--require", *options, "--", *command], self.environment)

    def host_bytes(self, job_name):
        """Of a job's memory, as the manager says; 0 while there is no manager or no such job."""
        answer = subprocess.run([str(PACK / "bin/plexrl-ctl"), "jobs", "--json"], capture_output=True, text=True, check=False,
                                env=self.environment)  # has an end: plexrl-ctl waits a minute for a silent manager
        jobs = json.loads(answer.stdout)["jobs"] if answer.returncode == 0 else []
        return sum(job["host_bytes"] for job in jobs if job["name"] == job_name)

    def swaps(self):
        answer = subprocess.run([str(PACK / "bin/plexrl-trace"), "swaps", "--json", str(self.folder / "state/trace")],
                                capture_output=True, text=True, check=True, env=self.environment)
        return json.loads(answer.stdout)["swaps"]


class Rest:
    """How much of the GPU is in use while nothing of ours is on it, by others."""

    def __init__(self):
        self.known = None

    def bytes(self):
        """Memory of a process that has just ended may be released some time later: this waits until no more is in use than before."""
        patience = time.monotonic() + 30
        while self.known is not None and used_bytes() > self.known and time.monotonic() < patience:
            time.sleep(0.01)
        self.known = used_bytes()
        return self.known


rest = Rest()


class Watch:
    """The most memory that was in use on the GPU inside a `with`, beyond what was in use before: `peak_bytes`."""

    def __enter__(self):
        self.peak_bytes, self.before, self.ended = 0, rest.bytes(), threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.ended.wait(0.01):
            self.peak_bytes = max(self.peak_bytes, used_bytes() - self.before)

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


@functools.cache
def context_bytes(machine):
    """What a process takes on the GPU beside the memory it asks for."""
    before = rest.bytes()
    job = start([machine.programs / "bench/raw_copy", 2 << 20, 2 << 20, 0, "out"], None)  # until it is killed
    try:
        begun(machine, job)
        return used_bytes() - before
    finally:
        stop(job)


class Alone:
    """What a program printed and how long it took without PlexRL. `result` is set where that is all: it skipped, or failed."""

    def __init__(self, machine, name, command, environment=None):
        began = time.monotonic()
        with Watch() as self.memory:
            job = start(command, dict(os.environ, **(environment or {})))
            (self.output, errors), = outputs(machine, [job])
        self.seconds = time.monotonic() - began
        errors = errors.decode(errors="replace")
        # What a program says of what it runs on: "version: 2.11.0".
        self.version = next((line.split(": ", 1)[1] for line in errors.splitlines() if line.startswith("version: ")), None)
        self.result = None
        if job.returncode == 77:
            self.result = {"name": name, "result": "skipped", "detail": (errors.strip().splitlines() or ["without a reason"])[-1]}
        elif job.returncode != 0:
            self.result = {"name": name, "result": "failed", "detail": "alone: " + errors[-500:]}

    def problems(self, job, output, errors):
        if job.returncode != 0:
            return [f"exit status {job.returncode}: {errors.decode(errors='replace')[-500:]}"]
        return [] if output == self.output else ["DIFFERENT output from alone"]

    def against(self, name, problems, session, shared_s):
        swaps = [] if problems else session.swaps()
        result = {"name": name, "result": "failed" if problems else "passed", "detail": "; ".join(problems),
                  "alone_s": round(self.seconds, 3), "shared_s": round(shared_s, 3), "switches": len(swaps),
                  "moved_bytes": sum(swap["moved_bytes"] for swap in swaps)}
        # With what left the GPU and needed no copy: a chunk of one repeated word, say.
        result["left_bytes"] = result["moved_bytes"] + sum(sum(swap.get("saved", {}).values()) for swap in swaps)
        return dict(result, version=self.version) if self.version else result


NOTHING_PAGED = "nothing was paged, so sharing was not tested"


class PeerPage:
    """The page that program and antagonist share (programs/peer.h), with a watcher that tells the program when memory of it is off the
    GPU: each of its pauses lasts until then."""

    WORD = struct.Struct("<Q")
    PAUSES, STOP, IS_WATCHED, LOOKS, EVICTED_LOOK = 8, 16, 24, 32, 40

    def __init__(self, session, job_name):
        self.session, self.job_name, self.path = session, job_name, session.folder / "peer"
        self.path.write_bytes(bytes(4096))
        self.ended = threading.Event()
        self.watcher = threading.Thread(target=self.watch)

    def __enter__(self):
        self.set(self.IS_WATCHED, 1)
        self.watcher.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.watcher.join()

    def get(self, place):
        return self.WORD.unpack_from(self.path.read_bytes(), place)[0]

    def set(self, place, value):
        with open(self.path, "r+b", buffering=0) as page:
            page.seek(place)
            page.write(self.WORD.pack(value))

    def watch(self):
        for look in itertools.count(1):
            if self.ended.wait(0.02):
                return
            self.set(self.LOOKS, look)
            if self.session.host_bytes(self.job_name) > 0:
                self.set(self.EVICTED_LOOK, look)


def check_beside_antagonist(machine, program, *run_options):
    """An integration program alone, then beside the antagonist on a budget that holds only one of them: each has a third of `share`
    beside its own, the antagonist another quarter. How many contexts a program makes, and how large one is, is found out."""
    name, folder = program.name, machine.sessions / program.name
    share = max(2304 * machine.mib, 192 << 20)
    memory = {"PLEXRL_TEST_BALLAST": str(share // 3), "PLEXRL_TEST_ANTAGONIST": str(share // 4)}
    alone = Alone(machine, name, [program], memory)
    if alone.result:
        return alone.result
    # Both would take the program's peak, the antagonist's context and 7/12 of `share`. It is near that, since the antagonist has to
    # fit beside all contexts of a program that takes less than its third. The manager keeps some of it in reserve.
    budget_bytes = alone.memory.peak_bytes + context_bytes(machine) + share * 9 // 16
    session = Session(folder, budget_bytes, memory)
    with PeerPage(session, name) as peer:
        session.environment.update(PLEXRL_TEST_PEER=str(peer.path))
        began = time.monotonic()
        # Promised what it takes and little more: a program whose memory has to stay on the GPU needs room beside the promise.
        antagonist = session.start([program.parent / "antagonist"], "--memory", str(share * 2 // 3))
        job = session.start([program], *run_options)
        try:
            (output, errors), = outputs(machine, [job])
            shared_s = time.monotonic() - began
            peer.set(peer.STOP, 1)
            outputs(machine, [antagonist])
        finally:
            stop(antagonist)
    result = alone.against(name, alone.problems(job, output, errors), session, shared_s)
    if result["result"] == "passed" and peer.get(peer.PAUSES) > 0 and result["left_bytes"] == 0:
        return dict(result, result="failed", detail=NOTHING_PAGED)
    return result


def check_sharing(machine, name, commands, budget_bytes, environment=None):
    """Each of `commands` is longer than the one before. The next is run when two of one were not there at once for long enough."""
    for turn, command in enumerate(commands):
        result = check_twice_at_once(machine, name, command, machine.sessions / name / str(turn), budget_bytes, environment)
        if result["result"] != "passed" or result["moved_bytes"] > 0:
            return result
    return dict(result, result="failed", detail=NOTHING_PAGED)


def check_twice_at_once(machine, name, command, folder, budget_bytes, environment=None):
    """Runs `command` alone, then twice at once under PlexRL, and compares what each prints on stdout."""
    alone = Alone(machine, name, command, environment)
    if alone.result:
        return alone.result
    session = Session(folder, budget_bytes, environment)
    began = time.monotonic()
    jobs = [session.start(command) for _ in range(2)]
    printed = outputs(machine, jobs)
    shared_s = time.monotonic() - began
    problems = [problem for job, (output, errors) in zip(jobs, printed) for problem in alone.problems(job, output, errors)]
    return alone.against(name, problems, session, shared_s)
