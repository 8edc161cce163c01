"""What a failed test says of its processes: what each wrote, and of those that still run where every thread stands and what the manager
knows of them. A hang that comes once in a thousand runs is seen nowhere else."""
import pathlib
import shutil
import subprocess

_TOOL_S = 60  # for a tool that looks at what may hang; without it the failure would not be said
_TAIL = 4000  # characters


def say(sandbox):
    for process in sandbox.started:
        print(f"---- {process.name}: {sandbox.errors(process.name).strip()}")
    running = [process for process in sandbox.started if process.poll() is None]
    if not running:
        return
    for process in running:
        print(f"---- {process.name} still runs; its output: {sandbox.output(process.name).read_text(errors='replace')[-_TAIL:].strip()}")
    print(f"---- pauses: {sandbox.peer()}")
    if sandbox.manager is not None and sandbox.manager.poll() is None:
        for verb in (["jobs"], ["gpus"], ["memory"], *(["explain", job] for job in _jobs(sandbox))):
            _show([sandbox.prefix / "bin/plexrl-ctl", *verb], sandbox.environment())
    for process in running:
        for pid in _group(process.pid):
            _show_threads(pid)


def _jobs(sandbox):
    try:
        return [job["id"] for job in sandbox.ask_manager("jobs")["jobs"]]
    except (OSError, ValueError, KeyError):
        return []


def _group(leader):
    """The processes of a group: the fifth word of /proc/PID/stat behind the name in brackets is the group."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[2]) == leader:
            yield int(stat.parent.name)


def _show_threads(pid):
    name = pathlib.Path(f"/proc/{pid}/comm")
    if shutil.which("gdb"):
        print(f"---- threads of {pid} ({name.read_text().strip() if name.exists() else 'ended'})")
        return _show(["gdb", "-p", str(pid), "-batch", "-ex", "set width 0", "-ex", "thread apply all bt 14"], None)
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            where = [(task / what).read_text().strip() for what in ("comm", "wchan", "syscall")]
        except OSError:
            continue
        print(f"---- thread {task.name} of {pid}: {' '.join(where)}")


def _show(argv, env):
    try:
        done = subprocess.run([str(word) for word in argv], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=_TOOL_S, text=True, errors="replace")
        text = done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        text = str(error)
    print(f"---- {' '.join(str(word) for word in argv[:3])}:\n{text.strip()}")
