#!/usr/bin/env python3
"""What containers get of a node's PlexRL (docs/containers.md).

spec: `plexrl-ctl cdi generate` makes a good specification, without the socket for administration, and says what is missing. container:
a job inside of namespaces and a root of its own, with nothing of PlexRL but what the specification names, computes the same bytes as alone.
pod: the pod of docs/containers.md has the same mounts and environment.
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

from cdi_check import problems
from sandbox import SKIPPED, Failure, run_case, wait_until

DEVICE = "plexrl.local/share=node"


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failure(f"{what}: {seen!r}, not {wanted!r}")


def generate(sandbox, *options, **more):
    return subprocess.run([sandbox.prefix / "bin/plexrl-ctl", "cdi", "generate", *map(str, options)], env=sandbox.environment(**more),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def edits_of(sandbox):
    done = generate(sandbox)
    if done.returncode != 0:
        raise Failure(f"cdi generate: {done.stderr}")
    told = json.loads(done.stdout)
    expect("problems", problems(told), [])
    expect("name", f"{told['kind']}={told['devices'][0]['name']}", DEVICE)
    return told["devices"][0]["containerEdits"]


def spec(sandbox):
    sandbox.start_manager()
    admin = sandbox.socket.with_name("admin.sock")
    edits = edits_of(sandbox)
    sources = [pathlib.Path(mount["hostPath"]) for mount in edits["mounts"]]
    expect("what is mounted", sorted(source.name for source in sources), ["libplexrl.so", "nodemgr.sock", "plexrl-run"])
    reachable = [str(source) for source in sources if source.is_dir() or source.samefile(admin)]
    expect("mounts by which the socket for administration could be reached", reachable, [])
    expect("what can be written to", [mount["containerPath"] for mount in edits["mounts"] if "ro" not in mount["options"]],
           ["/run/plexrl/nodemgr.sock"])
    expect("environment", edits["env"], ["PLEXRL_SOCKET=/run/plexrl/nodemgr.sock"])
    run = next(mount["hostPath"] for mount in edits["mounts"] if mount["containerPath"].endswith("plexrl-run"))
    needed = {pathlib.Path(library).name for library in libraries(run)}
    expect("libraries that plexrl-run needs of an image", needed, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})
    versions = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)\0", pathlib.Path(run).read_bytes())]
    expect(f"a C library of 2.35 will do: {max(versions)}", max(versions) <= 35, True)

    file = sandbox.folder / "plexrl.json"
    file.write_text("an old one")
    done = generate(sandbox, "--output", file)
    expect("with --output", (done.returncode, done.stdout), (0, ""))
    expect("a file as stdout has it", file.read_text(), generate(sandbox).stdout)
    expect("files beside it", sorted(path.name for path in sandbox.folder.glob("plexrl.json*")), ["plexrl.json"])
    for options, more, status, says in (
            (("--output", sandbox.folder / "nowhere/plexrl.json"), {}, 1, "can't be written"),
            ((), {"PLEXRL_SOCKET": sandbox.folder / "none.sock"}, 1, "plexrl-nodemgr.socket"),
            ((), {"PLEXRL_SOCKET": admin}, 1, "is for administration"),
            (("--out-put", "x"), {}, 2, "--out-put")):
        done = generate(sandbox, *options, **more)
        if done.returncode != status or says not in done.stderr or done.stdout:
            raise Failure(f"{options} {more}: {done.returncode} {done.stdout}{done.stderr}")
    return "good, and each refusal says what to do"


def libraries(program):
    """Those that the program needs, and the loader."""
    told = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", told)


class Container:
    """A root with a shell, a program and the libraries of both; what `edits` say; the simulated GPU, as a runtime brings a real one."""

    def __init__(self, sandbox, edits, program):
        self.sandbox, self.edits = sandbox, edits
        self.root = sandbox.folder / "root"
        shell = pathlib.Path("/bin/sh").resolve()
        for source, inside in ((shell, "/bin/sh"), (program, "/program"), (shutil.which("ls"), "/bin/ls")):
            for library in libraries(source):
                self.copy(library, library)
            self.copy(source, inside)
        (self.root / "proc").mkdir()
        gpu = sandbox.build / "lib/plexrl/simgpu"
        (sandbox.socket.parent / "plexrl-simgpu").mkdir(exist_ok=True)
        self.mounts = [(gpu, "/usr/local/lib/plexrl/simgpu"), (sandbox.socket.parent / "plexrl-simgpu", "/run/user/plexrl-simgpu"),
                       ("/dev/shm", "/dev/shm"), ("/dev/null", "/dev/null"), ("/dev/urandom", "/dev/urandom"), (sandbox.folder, "/log")]
        self.mounts += [(mount["hostPath"], mount["containerPath"]) for mount in edits["mounts"]]

    def copy(self, source, inside):
        there = pathlib.Path(f"{self.root}{inside}")
        there.parent.mkdir(parents=True, exist_ok=True)
        if not there.exists():
            shutil.copy2(source, there)

    def start(self, command, name):
        """`command`: for the shell inside."""
        steps = ["set -e"]
        for source, inside in self.mounts:
            there = pathlib.Path(f"{self.root}{inside}")
            there.parent.mkdir(parents=True, exist_ok=True)
            if pathlib.Path(source).is_dir():
                there.mkdir(exist_ok=True)
            else:
                there.touch()
            steps.append(f"mount --bind '{source}' '{there}'")
        simulated = self.sandbox.spec().replace(str(self.sandbox.folder), "/log")
        env = ["PATH=/usr/local/bin:/bin", "XDG_RUNTIME_DIR=/run/user", f"PLEXRL_SIMGPU={simulated}", *self.edits["env"]]
        steps += [f"mount -t proc proc '{self.root}/proc'",
                  f"exec chroot '{self.root}' /bin/env -i " + " ".join(f"'{one}'" for one in env) + f" /bin/sh -c '{command}'"]
        self.copy(shutil.which("env"), "/bin/env")
        user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        return self.sandbox.start(["unshare", *user, "--mount", "--uts", "--ipc", "--pid", "--fork", "sh", "-c", "\n".join(steps)],
                                  self.sandbox.environment(), name)


def container(sandbox):
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    if subprocess.run(["unshare", *user, "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("skipped: namespaces of one's own are not allowed here")
        sys.exit(SKIPPED)
    program = sandbox.build / "tests/bin/rlvr"
    options = ["--name", "a", "--steps", "2", "--state-bytes", str(1 << 20)]
    alone = sandbox.wait(sandbox.alone([program, *options], "alone"))
    sandbox.start_manager()
    inside = Container(sandbox, edits_of(sandbox), program)
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    job = inside.start(f"ls /run/plexrl >&2; plexrl-run --require --name inside -- /program {' '.join(options)} && read line < /log/go", "inside")
    wait_until(lambda: b"digest" in sandbox.output("inside").read_bytes(), "the job has computed", beside=job)
    fifo.write_text("\n")
    expect("its results", sandbox.wait(job), alone)
    expect("sockets inside", sandbox.errors("inside").split()[:1], ["nodemgr.sock"])
    sandbox.stop_manager()  # which writes the rest of its trace
    ran = [its for its in sandbox.trace("summary", "--json")["summary"]["jobs"] if its["name"] == "inside"]
    expect("the manager gave it the GPU", [its["held_s"] > 0 for its in ran], [True])
    return "as alone"


def pod(sandbox):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sandbox.socket))
        edits = edits_of(sandbox)
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/containers.md").read_text()
    mounts = re.findall(r"\{name: (\w+), mountPath: ([^,}]+)(, readOnly: true)?\}", page)
    volumes = dict(re.findall(r"\{name: (\w+), hostPath: \{path: ([^,}]+), type: \w+\}\}", page))
    expect("mounts of the pod", {(inside, bool(readonly)) for _, inside, readonly in mounts},
           {(mount["containerPath"], "ro" in mount["options"]) for mount in edits["mounts"]})
    expect("files of the pod", {name: pathlib.Path(volumes[name]).name for name, _, _ in mounts},
           {name: pathlib.Path(inside).name for name, inside, _ in mounts})
    expect("environment of the pod", [f"{name}={value}" for name, value in re.findall(r"\{name: (\w+), value: ([^}]+)\}", page)], edits["env"])
    expect("the device is named as it is", page.count(DEVICE) > 1, True)
    return "as the specification has it"


CASES = {case.__name__: case for case in (spec, container, pod)}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
