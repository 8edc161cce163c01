"""A place of its own for one test: folders, a simulated GPU, a node manager, and the processes that run on them.

Nothing is shared with another test or with the user's own PlexRL: the socket, the state folder and the simulated GPU's name belong
to the sandbox, and `close` ends what it started (by the ids of their process groups) and removes the folder.
"""
import argparse
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import lease_check
import post_mortem

SKIPPED = 77
# Longer than any run on any machine we know: a test that hangs ends, a slow one does not fail.
PATIENCE_S = float(os.environ.get("PLEXRL_TEST_PATIENCE_S", 600))
LOOK_S = 0.02  # between two looks at the manager
# antagonist_rounds, program_pauses, stop, is_watched, looks, evicted_look: programs/peer.h
_PEER = struct.Struct("<QQQQQQ")
_ROUNDS, _, _STOP, _IS_WATCHED, _LOOKS, _EVICTED_LOOK = (8 * word for word in range(6))


class Failure(Exception):
    """What the test found, in one line."""


def wait_until(condition, what, beside=None, seen=lambda: ""):
    """Returns when `condition()` holds, which `what` says in words. Fails when the process `beside`, or one of several, ends before;
    `seen()` is more to say of it then."""
    deadline = time.monotonic() + PATIENCE_S
    processes = beside if isinstance(beside, tuple) else () if beside is None else (beside,)
    while not condition():
        for process in processes:
            if process.poll() is not None:
                raise Failure(f"{process.name} ended with {process.returncode} before: {what}; {seen()}")
        if time.monotonic() > deadline:
            raise Failure(f"after {PATIENCE_S} s still not: {what}; {seen()}")
        time.sleep(LOOK_S)


class Sandbox:
    def __init__(self, build, prefix=None, memory="256MiB", gpus=1, spec=""):
        """`build`: the build folder. `prefix`: where bin/ and lib/plexrl/ are, when not there. `spec`: more of PLEXRL_SIMGPU."""
        self.build = pathlib.Path(build).resolve()
        self.prefix = pathlib.Path(prefix or build).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plexrl-test-"))
        self.name = "test-" + secrets.token_hex(6)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a test that is told to end still closes its sandbox
        self.state = self.folder / "state"
        self.socket = self.folder / "run" / "nodemgr.sock"
        for folder in (self.state, self.socket.parent, self.folder / "home"):
            folder.mkdir(mode=0o700)
        self.device_log = self.folder / "device.log"
        self.memory, self.gpus, self.more_spec = memory, gpus, spec
        self.started = []
        self.manager = None
        self.watched, self.looks = None, 0
        self.peer_file = self.make_peer("peer")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- what processes see

    def spec(self, device="shared", more=""):
        parts = [f"name={self.name}-{device}", f"memory={self.memory}", f"gpus={self.gpus}", self.more_spec, more]
        if device == "shared":
            parts.append(f"log={self.device_log}")
        return ",".join(part for part in parts if part)

    def environment(self, device="shared", **more):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("PLEXRL_", "LD_", "XDG_", "CUDA_"))}
        keep.update(HOME=str(self.folder / "home"), XDG_RUNTIME_DIR=str(self.socket.parent), PLEXRL_SOCKET=str(self.socket),
                    PLEXRL_DATA=str(self.state), PLEXRL_SIMGPU=self.spec(device), PLEXRL_METRICS_LISTEN="off")
        for variable in ("PLEXRL_LOG", "UBSAN_OPTIONS", "ASAN_OPTIONS", "TSAN_OPTIONS"):
            if variable in os.environ:
                keep[variable] = os.environ[variable]
        keep.update({k: str(v) for k, v in more.items()})
        return keep

    # ---- processes

    def start(self, argv, env, name, **options):
        """Output goes to files NAME.out and NAME.err in the sandbox."""
        out, err = self.output(name), self.folder / f"{name}.err"
        with open(out, "wb") as out_file, open(err, "ab") as err_file:
            # A group of its own, which everything the process starts stays in: `close` ends all of it.
            process = subprocess.Popen([str(a) for a in argv], env=env, stdin=subprocess.DEVNULL, stdout=out_file,
                                       stderr=err_file, process_group=0, **options)
        process.name = name
        self.started.append(process)
        return process

    def output(self, name):
        return self.folder / f"{name}.out"

    def errors(self, name):
        path = self.folder / f"{name}.err"
        return path.read_text(errors="replace") if path.exists() else ""

    def alone(self, argv, name, more_spec="", **more):
        """Starts a program on a simulated GPU of its own, without PlexRL. `more_spec`: more of PLEXRL_SIMGPU."""
        env = self.environment(device=name, **more)
        env["PLEXRL_SIMGPU"] = self.spec(name, more_spec)
        env["LD_LIBRARY_PATH"] = str(self.build / "lib/plexrl/simgpu")
        return self.start(argv, env, name)

    def start_manager(self, name="nodemgr", through=(), **more):
        """Returns when it answers. Its log is NAME.err. `through`: words in front of the command."""
        ready, told = os.pipe()
        env = self.environment(**more)
        env["LD_LIBRARY_PATH"] = str(self.build / "lib/plexrl/simgpu")
        os.set_inheritable(told, True)
        self.manager = self.start([*through, self.prefix / "bin/plexrl-nodemgr", "--socket", self.socket, "--state-dir", self.state,
                                   "--ready-fd", told], env, name, pass_fds=[told])
        os.close(told)
        answer = os.read(ready, 1)
        os.close(ready)
        if not answer:
            raise Failure(f"the manager did not start: {self.errors(name).strip()}")
        return self.manager

    def shared(self, argv, name, options=(), prefix=None, **more):
        """Starts a program under plexrl-run (of another `prefix` where one is given) on the shared simulated GPU."""
        run = [(prefix or self.prefix) / "bin/plexrl-run", "--require", "--name", name, *options, "--"]
        return self.start([*run, *argv], self.environment(**more), name)

    def wait(self, process, expected=0, patience_s=PATIENCE_S):
        """Returns the output. Fails if the process ends otherwise than with `expected` (None: anything)."""
        try:
            status = process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"{process.name} was still running after {PATIENCE_S} s\n{self.errors(process.name)}") from None
        if expected is not None and status != expected:
            raise Failure(f"{process.name} ended with {status}, not {expected}\n{self.errors(process.name)}")
        return self.output(process.name).read_bytes()

    def wait_beside(self, process, other):
        """As `wait`, but fails when `other` ends first; looks after the watched job meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if other.poll() is not None and process.poll() is None:
                raise Failure(f"{other.name} ended with {other.returncode} before {process.name}")
            self.look()
            time.sleep(LOOK_S)
        return self.wait(process, patience_s=0)

    def ask_manager(self, verb):
        """What the manager answers on its socket for administration, as plexrl-ctl asks it."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket.with_name("admin.sock")))
            connection.sendall(json.dumps({"verb": verb}).encode() + b"\n")
            with connection.makefile() as answer:
                return json.loads(answer.readline())

    def memory_rows(self):
        return self.tool("plexrl-ctl", "memory", "--json")["memory"]

    def gpu_bytes(self, pid, gpu=0):
        """What the simulated GPU itself counts of a process."""
        told = json.loads(subprocess.run([self.build / "lib/plexrl/simgpu/simgpu-stat", f"{self.name}-shared", "--json"], check=True,
                                         env=self.environment(), stdout=subprocess.PIPE).stdout)
        return next(process["bytes"] for process in told["gpus"][gpu]["processes"] if process["pid"] == pid)

    def stop_manager(self):
        if self.manager is not None and self.manager.poll() is None:
            self.manager.send_signal(signal.SIGTERM)
            self.manager.wait(PATIENCE_S)

    # ---- the page shared by program, antagonist and test

    def make_peer(self, name):
        page = self.folder / name
        page.write_bytes(bytes(4096))
        return page

    def peer(self, peer_file=None):
        rounds, pauses, stop, *_ = _PEER.unpack_from((peer_file or self.peer_file).read_bytes())
        return {"rounds": rounds, "pauses": pauses, "stop": stop}

    def set_peer(self, offset, value, peer_file=None):
        with open(peer_file or self.peer_file, "r+b", buffering=0) as page:
            page.seek(offset)
            page.write(struct.pack("<Q", value))

    def end_pause(self, program, peer_file, pauses):
        """Plays the neighbour until the program has ended so many of its pauses, or itself."""
        def is_over():
            peer = self.peer(peer_file)
            self.set_peer(_ROUNDS, peer["rounds"] + 1, peer_file)
            return peer["pauses"] >= pauses or program.poll() is not None

        wait_until(is_over, f"{program.name}: the end of its pause {pauses}")

    def stop_antagonist(self, peer_file=None):
        self.set_peer(_STOP, 1, peer_file)

    def watch(self, name):
        """From now on pauses of the job `name` last until `look` has seen some of its memory in the host."""
        self.watched = name
        self.set_peer(_IS_WATCHED, 1)

    def look(self):
        if self.watched is None:
            return
        self.looks += 1
        self.set_peer(_LOOKS, self.looks)
        if any(job["name"] == self.watched and job["host_bytes"] > 0 for job in self.ask_manager("jobs")["jobs"]):
            self.set_peer(_EVICTED_LOOK, self.looks)

    # ---- what happened

    def tool(self, *argv):
        """Runs a PlexRL tool that prints JSON; returns the parsed object."""
        done = subprocess.run([str(self.prefix / "bin" / argv[0]), *map(str, argv[1:])], env=self.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failure(f"{' '.join(map(str, argv))} ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def trace(self, verb, *options):
        return self.tool("plexrl-trace", verb, *options, self.state / "trace")

    def work_in_leases(self, trace, lenders=None):
        """What ran on the shared GPUs, by their log; fails if some of it ran outside its gang's lease, or nothing did."""
        work = lease_check.read_device_log(self.device_log)
        found = list(lease_check.violations(trace, work, lenders))
        if not work or found:
            raise Failure(f"{len(found)} of {len(work)} pieces of work:\n" + "\n".join(found[:10]))
        return work

    def close(self):
        self.stop_antagonist()
        for process in reversed(self.started):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        # The last process of a simulated GPU removes its memory; where all were killed nobody did.
        for pool in pathlib.Path("/dev/shm").glob(f"plexrl-simgpu-{os.getuid()}-{self.name}-*"):
            pool.unlink(missing_ok=True)
        if os.environ.get("PLEXRL_TEST_KEEP"):
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def run_case(doc, cases, spec, memory="192MiB"):
    """The whole of a program `CASE --build DIR`: runs one of `cases` (name -> function of a Sandbox that returns what it found, in
    words). `memory`: of the GPU. Returns the exit status."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("case", choices=[*cases])
    parser.add_argument("--build", required=True, help="the build folder")
    options = parser.parse_args()
    with Sandbox(options.build, memory=memory, spec=spec) as sandbox:
        try:
            found = cases[options.case](sandbox)
        except Failure as failure:
            print(f"FAILED: {failure}")
            post_mortem.say(sandbox)
            return 1
    print(found)
    return 0
