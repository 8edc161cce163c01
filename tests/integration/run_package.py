#!/usr/bin/env python3
"""What packages add to the programs: units, completions, and the packages themselves.

units: systemd's own check of them. service: the node manager as its units start it, with sockets passed, readiness and a watchdog told.
observed: and plexrl-observer beside it, as its unit starts it, with no more rights (root, and a kernel for eBPF).
wrong_sockets: what was passed otherwise is refused. completions: what bash and zsh offer. contents: the Debian packages, unpacked
into a folder, run jobs. installed: installed into a fresh Debian root, and removed again.
"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

from run_observer import SPEC, observes, run_way, skip_where_impossible
from sandbox import SKIPPED, Failure, run_case, wait_until

MANUALS = ("plexrl-run", "plexrl-ctl", "plexrl-trace", "plexrl-top", "plexrl-nodemgr")
PACKAGES = {"plexrl", "plexrl-clustermgr", "plexrl-simulator", "plexrl-dev"}


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failure(f"{what}: {seen!r}, not {wanted!r}")


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, words))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            print(f"skipped: {program} is not installed")
            sys.exit(SKIPPED)


def made(sandbox):
    """What the build has made for packages."""
    return sandbox.build / "tools/package"


def unit_files(sandbox):
    sources = pathlib.Path(__file__).resolve().parents[2] / "tools/package/systemd"
    return sorted([*(made(sandbox) / "systemd").glob("*.service"), *sources.glob("*.socket")])


def units(sandbox):
    need("systemd-analyze")
    folder = sandbox.folder / "units"
    folder.mkdir()
    for unit in unit_files(sandbox):
        (folder / unit.name).write_text(unit.read_text().replace("/usr/bin/plexrl", f"{sandbox.prefix}/bin/plexrl"))
    names = sorted(unit.name for unit in folder.iterdir())
    expect("units", names, ["plexrl-clustermgr.service", "plexrl-nodemgr-admin.socket", "plexrl-nodemgr-observer.socket", "plexrl-nodemgr.service",
                            "plexrl-nodemgr.socket", "plexrl-observer.service"])
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--generators=no", *(folder / name for name in names)],
                          env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    # It checks all units that ours need, some of which a container lacks.
    complaints = [line for line in done.stdout.splitlines() if "plexrl" in line]
    expect("systemd-analyze's complaints", complaints, [])
    return "systemd has nothing to say against them"


def set_in(sandbox, unit, name):
    """What the unit says of it."""
    text = next(file for file in unit_files(sandbox) if file.name == unit).read_text()
    return re.search(rf"^{name}=(.*)$", text, re.M)[1]


def command_of(sandbox, unit):
    """What the unit starts, where the build has it."""
    return set_in(sandbox, unit, "ExecStart").replace("/usr/bin", str(sandbox.prefix / "bin"))


class Service:
    """The node manager, started as systemd starts it for the units that we install."""

    def __init__(self, sandbox, passed=None, watchdog_us=2_000_000):
        self.sandbox = sandbox
        command = command_of(sandbox, "plexrl-nodemgr.service")
        self.notify = sandbox.folder / "notify"
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.unlink(missing_ok=True)
        self.told.bind(str(self.notify))
        self.told.setblocking(False)
        self.lines = []
        passed = passed if passed is not None else self.open_sockets()
        environment = sandbox.environment(PLEXRL_STATE_DIR=sandbox.state, NOTIFY_SOCKET=self.notify, WATCHDOG_USEC=watchdog_us,
                                          LISTEN_FDS=len(passed), LISTEN_FDNAMES=":".join(name for name, _ in passed))
        del environment["PLEXRL_SOCKET"]  # the sockets say where they are
        environment["LD_LIBRARY_PATH"] = str(sandbox.build / "lib/plexrl/simgpu")
        # Descriptors from 3 on, and the process's own id: by a shell, which keeps its id when it becomes the manager.
        moved = " ".join(f"{3 + i}<&{held.fileno()}" for i, (_, held) in enumerate(passed))
        script = f"export LISTEN_PID=$$ WATCHDOG_PID=$$; exec {command} {moved}"
        self.process = sandbox.start(["/bin/bash", "-c", script], environment, "service",
                                     pass_fds=[held.fileno() for _, held in passed])
        self.sockets = passed

    def open_sockets(self):
        """As the .socket units say: beyond descriptor 20, so that none is in another's way when they are moved."""
        sockets = []
        for name, kind, path in (("jobs", socket.SOCK_SEQPACKET, self.sandbox.socket),
                                 ("admin", socket.SOCK_STREAM, self.sandbox.socket.with_name("admin.sock")),
                                 ("observer", socket.SOCK_STREAM, self.sandbox.socket.with_name("observer.sock"))):
            listener = socket.socket(socket.AF_UNIX, kind)
            listener.bind(str(path))
            listener.listen(16)
            sockets.append((name, beyond(listener)))
        return sockets

    def hears(self, wanted):
        try:
            while True:
                self.lines += self.told.recv(4096).decode().splitlines()
        except BlockingIOError:
            return wanted in self.lines


def beyond(held):
    high = os.dup(held.fileno())
    while high < 20:
        high = os.dup(held.fileno())
    return socket.socket(fileno=high)


def service(sandbox):
    manager = Service(sandbox)
    wait_until(lambda: manager.hears("READY=1"), "the manager says that it is ready", beside=manager.process)
    status = next(line for line in manager.lines if line.startswith("STATUS="))
    expect("its status names the GPU as simulated", "1 GPU (simulated), " in status, True)
    job = sandbox.shared([sandbox.build / "tests/bin/rlvr", "--name", "a", "--steps", 1, "--state-bytes", 1 << 20], "job")
    sandbox.wait(job)
    expect("jobs over", sandbox.ask_manager("jobs")["jobs"], [])
    manager.lines.clear()
    wait_until(lambda: manager.hears("WATCHDOG=1"), "the watchdog is told", beside=manager.process)
    with socket.socket(socket.AF_UNIX) as observer:
        observer.connect(str(sandbox.socket.with_name("observer.sock")))
        expect("who connects as an observer is greeted", "welcome" in observer.makefile().readline(), True)
    manager.process.terminate()
    sandbox.wait(manager.process)
    expect("it says that it stops", manager.hears("STOPPING=1"), True)
    names = ("nodemgr.sock", "admin.sock", "observer.sock")
    expect("sockets are systemd's and stay", [name for name in names if sandbox.socket.with_name(name).is_socket()], [*names])
    return "the manager takes systemd's sockets and tells it what it wants to know"


def observed(sandbox):
    need("setpriv")
    skip_where_impossible(sandbox.build)
    sandbox.more_spec = SPEC
    manager = Service(sandbox)
    wait_until(lambda: manager.hears("READY=1"), "the manager is ready", beside=manager.process)
    command = command_of(sandbox, "plexrl-observer.service").replace("/run/plexrl/nodemgr.sock", str(sandbox.socket))
    rights = [name.removeprefix("CAP_").lower() for name in set_in(sandbox, "plexrl-observer.service", "CapabilityBoundingSet").split()]
    observer = sandbox.start(["setpriv", "--bounding-set=" + ",".join(["-all", *(f"+{right}" for right in rights)]), *command.split()],
                             sandbox.environment(), "observer")
    wait_until(lambda: observes(sandbox), "the manager has an observer", observer, lambda: sandbox.errors("observer"))
    sandbox.wait(run_way(sandbox, "sleep", "", "sleep", None))
    return "what a job waits for is told"


def wrong_sockets(sandbox):
    def refusal(passed):
        manager = Service(sandbox, passed)
        sandbox.wait(manager.process, expected=2)
        return sandbox.errors("service").splitlines()[-1]

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(sandbox.folder / "stream"))
    listener.listen(1)
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deaf.bind(str(sandbox.folder / "deaf"))
    stream, deaf = beyond(listener), beyond(deaf)
    for passed, said in (([("other", stream)], "named 'other'"), ([("observer", stream)], "FileDescriptorName=jobs"), ([("jobs", deaf)], "ListenSequentialPacket"),
                         ([("jobs", stream)], "ListenSequentialPacket"), ([("admin", stream)], "FileDescriptorName=jobs")):
        expect(f"{[name for name, _ in passed]}: {said}", said in refusal(passed), True)
    return "refused, with what to mend"


def completions(sandbox):
    need("bash")
    script = """
for file in "$1"/bash/*; do . "$file" || exit 1; done
offer() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  "_${1//-/_}"
  echo "${COMPREPLY[*]}"
}
offer plexrl-ctl pau
offer plexrl-ctl hold --e
offer plexrl-ctl cluster n
offer plexrl-ctl usage --by ''
offer plexrl-run --evict ''
offer plexrl-run --max-s
offer plexrl-trace summ
offer plexrl-ctl explain ''
"""
    sandbox.start_manager()
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    job = sandbox.shared(["/bin/sh", "-c", f"read line < {fifo}"], "a-job")
    wait_until(lambda: sandbox.ask_manager("jobs")["jobs"], "the job is there", beside=job)
    environment = sandbox.environment()
    environment["PATH"] = f"{sandbox.prefix}/bin:{environment['PATH']}"
    offered = run("bash", "-c", script, "completions", made(sandbox), env=environment).splitlines()
    expect("bash", offered, ["pause", "--exclusive", "nodes", "team user job", "page checkpoint", "--max-slowdown", "summary", "a-job"])
    fifo.write_text("\n")
    sandbox.wait(job)
    if shutil.which("zsh"):
        for file in sorted((made(sandbox) / "zsh").iterdir()):
            run("zsh", "-n", file)
    return "offered as the programs' help has it"


def expected_packages(sandbox):
    """That for Slurm is made where there is Slurm's header."""
    return PACKAGES | ({"plexrl-slurm"} if (sandbox.build / "lib/plexrl/spank_plexrl.so").exists() else set())


def pack(sandbox):
    """The packages by name."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps")
    out = sandbox.folder / "packages"
    run("cpack", "--config", sandbox.build / "CPackConfig.cmake", "-B", out, cwd=sandbox.folder)
    packages = {run("dpkg-deb", "-f", file, "Package").strip(): file for file in out.glob("*.deb")}
    expect("packages", set(packages), expected_packages(sandbox))
    return packages


def contents(sandbox):
    packages = pack(sandbox)
    root = sandbox.folder / "root"
    for file in packages.values():
        run("dpkg-deb", "-x", file, root)
    expect("outside of /usr", sorted(entry.name for entry in root.iterdir()), ["usr"])
    expect("for Prometheus and Grafana", sorted(file.name for file in (root / "usr/share/plexrl/monitoring").iterdir()),
           ["plexrl-board.json", "plexrl-rules.yml", "prometheus.yml"])
    for name in MANUALS:
        page = run("man", "--warnings", "-l", root / f"usr/share/man/man1/{name}.1.gz") if shutil.which("man") else "NAME"
        expect(f"{name}(1) has a name", "NAME" in page, True)
    needed = run("dpkg-deb", "-f", packages["plexrl"], "Depends")
    expect(f"the node manager's libraries are in: {needed}", "libspdlog" in needed and "adduser" in needed, True)
    expect("gRPC only where it is used", "libgrpc" in run("dpkg-deb", "-f", packages["plexrl-simulator"], "Depends"), False)
    # As an administrator's machine has it, but for the place.
    sandbox.prefix = root / "usr"
    job = sandbox.start([root / "usr/bin/plexrl-run", "--require", f"--simgpu={sandbox.spec()}", "--", sandbox.build / "tests/bin/rlvr",
                         "--name", "a", "--steps", 1, "--state-bytes", 1 << 20], sandbox.environment(), "job")
    output = sandbox.wait(job).decode()
    expect("the job has computed", "digest" in output, True)
    return "unpacked, they run a job"


def check_slurm_plugin(root, inside):
    """Slurm is told of the plugin while it is there, and what the administrator has written stays."""
    told, aside = (root / f"etc/slurm/plugstack.conf.d/{name}" for name in ("plexrl.conf", "plexrl.conf.removed"))
    plugin, package = "/usr/lib/plexrl/spank_plexrl.so", sorted(file.name for file in (root / "tmp").glob("plexrl-slurm*.deb"))[0]
    expect("Slurm is told", told.read_text(), f"required {plugin}\n")
    expect("the plugin", (root / plugin[1:]).exists(), True)
    mine = f"optional {plugin} run=/opt/plexrl-run\n"
    told.write_text(mine)
    inside("apt-get", "-qq", "install", "-y", "--reinstall", f"/tmp/{package}")
    expect("after an upgrade", told.read_text(), mine)
    inside("apt-get", "-qq", "remove", "-y", "plexrl-slurm")
    expect("Slurm is not told of what is gone", (told.exists(), aside.read_text(), (root / plugin[1:]).exists()), (False, mine, False))
    inside("apt-get", "-qq", "install", "-y", f"/tmp/{package}")
    expect("installed again", (told.read_text(), aside.exists()), (mine, False))


def installed(sandbox):
    need("debootstrap", "chroot")
    if os.getuid() != 0:
        print("skipped: a fresh root needs root")
        sys.exit(SKIPPED)
    packages = pack(sandbox)
    root = sandbox.folder / "root"
    run("debootstrap", "--variant=minbase", "bookworm", root)
    for file in packages.values():
        shutil.copy2(file, root / "tmp")

    def inside(*words):
        return run("chroot", root, "/usr/bin/env", "DEBIAN_FRONTEND=noninteractive", *words)

    inside("sh", "-c", "apt-get -qq update && apt-get -qq install -y --no-install-recommends /tmp/*.deb")
    expect("the user", "plexrl" in inside("getent", "passwd", "plexrl"), True)
    wanted = root / "etc/systemd/system/sockets.target.wants"
    expect("enabled", sorted(link.name for link in wanted.glob("plexrl*")), ["plexrl-nodemgr-admin.socket", "plexrl-nodemgr-observer.socket", "plexrl-nodemgr.socket"])
    expect("settings", "settings are good" in inside("plexrl-nodemgr", "--check-config"), True)
    run("mount", "-t", "proc", "proc", root / "proc")
    try:
        shutil.copy2(sandbox.build / "tests/bin/rlvr", root / "tmp/rlvr")
        expect("a job", "digest" in inside("plexrl-run", "--require", f"--simgpu=name={sandbox.name}-root,memory=256MiB", "--", "/tmp/rlvr",
                                           "--name", "a", "--steps", "1", "--state-bytes", str(1 << 20)), True)
    finally:
        run("umount", root / "proc")
    if "plexrl-slurm" in expected_packages(sandbox):
        check_slurm_plugin(root, inside)
    inside("apt-get", "-qq", "purge", "-y", *sorted(expected_packages(sandbox)))
    left = [str(path) for path in root.rglob("*plexrl*") if "/tmp/" not in str(path) and "/var/lib/dpkg" not in str(path)
            and "/var/cache" not in str(path) and "/var/log" not in str(path) and "/root/" not in str(path)]
    expect("left behind", left, [])
    return "installed, used and removed"


CASES = {case.__name__: case for case in (units, service, observed, wrong_sockets, completions, contents, installed)}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
