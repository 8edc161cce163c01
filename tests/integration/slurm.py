"""A Slurm of a test's own: munged, slurmctld and one slurmd for each node, all on this machine and on loopback.

Debian's daemons, as the user who runs the test, with a configuration in the test's sandbox; nothing of the machine's own Slurm is read
or changed. A port that another program takes in between is seen in a daemon's log, and all begin again with others.
"""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

from sandbox import SKIPPED, Failure, wait_until

DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "scontrol")
PR_SET_CHILD_SUBREAPER = 36
MOST_TRIES = 20

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
TaskProlog={folder}/task_prolog
GresTypes=plexrl
MessageTimeout=60
SlurmctldTimeout=600
SlurmdTimeout=600
{more}
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE OverSubscribe=NO
"""


def need_slurm():
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for program in DAEMONS:
        if not shutil.which(program):
            print(f"skipped: {program} is not installed (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)")
            sys.exit(SKIPPED)


class Slurm:
    """To be closed before its sandbox. `nodes`: names. `slots`: of the gres plexrl on each; 0: no node has any. `environments`: by node, what its tasks find in their
    environment, as a site's TaskProlog sets it. `plugins`: lines of plugstack.conf."""

    def __init__(self, sandbox, nodes, slots=4, environments=None, plugins=(), more=""):
        need_slurm()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what daemons leave behind comes to us, so that `close` finds it
        self.sandbox, self.nodes, self.slots, self.more = sandbox, nodes, slots, more
        self.folder = sandbox.folder / "slurm"
        self.folder.mkdir(mode=0o755)
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o700)
        for node in nodes:
            (self.folder / "spool" / node).mkdir()
        self.set_environments(environments or {})
        (self.folder / "plugstack.conf").write_text("".join(line + "\n" for line in plugins))
        (self.folder / "gres.conf").write_text(f"Name=plexrl Count={slots} Flags=CountOnly\n" if slots else "")
        self.start_munge()
        self.daemons = {}
        for _ in range(MOST_TRIES):
            if self.start_all():
                return
        raise Failure(f"no free ports for Slurm in {MOST_TRIES} tries")

    def set_environments(self, environments):
        prolog = self.folder / "task_prolog"
        cases = "".join("%s)\n%s;;\n" % (node, "".join(f"echo export {name}={value}\n" for name, value in its.items()))
                        for node, its in environments.items())
        prolog.write_text(f'#!/bin/sh\ncase "$SLURMD_NODENAME" in\n{cases}esac\n')
        prolog.chmod(0o755)

    # ---- daemons

    def start_munge(self):
        folder = self.folder / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        munged = self.sandbox.start(["munged", "--foreground", "--force", f"--socket={folder}/socket", f"--key-file={key}", f"--pid-file={folder}/pid",
                                     f"--log-file={folder}/log", f"--seed-file={folder}/seed"], os.environ, "munged")
        wait_until(lambda: (folder / "socket").is_socket(), "munged listens", beside=munged)

    def start_all(self):
        """False when one of the ports was taken."""
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(len(self.nodes) + 1)]
        ports = [one.getsockname()[1] for one in held]
        for one in held:
            one.close()
        host = socket.gethostname().split(".")[0]
        gres = f" Gres=plexrl:{self.slots}" if self.slots else ""
        nodes = "\n".join(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8{gres}"
                          for node, port in zip(self.nodes, ports[1:]))
        user = subprocess.run(["id", "-un"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.conf.write_text(CONFIGURATION.format(host=host, port=ports[0], user=user, folder=self.folder, nodes=nodes, more=self.more))
        self.start("slurmctld", "-D", "-c")
        for node in self.nodes:
            self.start("slurmd", "-D", "-N", node, name=f"slurmd-{node}")
        wait_until(lambda: self.is_port_taken() or self.is_up(), "all nodes of Slurm are idle", seen=lambda: self.query("sinfo", "-N", "-l"))
        if not self.is_port_taken():
            return True
        for daemon in [*self.daemons]:
            self.stop(daemon)
        return False

    def start(self, program, *options, name=None):
        name = name or program
        self.daemons[name] = self.sandbox.start([program, *options], self.environment(os.environ), name)

    def stop(self, name):
        process = self.daemons.pop(name)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
        (self.sandbox.folder / f"{name}.err").unlink(missing_ok=True)

    def is_port_taken(self):
        return any(daemon.poll() is not None and "Address already in use" in self.sandbox.errors(name)
                   for name, daemon in self.daemons.items())

    def is_up(self):
        for name, daemon in self.daemons.items():
            if daemon.poll() is not None and "Address already in use" not in self.sandbox.errors(name):
                raise Failure(f"{name} ended with {daemon.returncode}: {self.sandbox.errors(name)}")
        states = self.query("sinfo", "-N", "-h", "-o", "%T").split()
        return states == ["idle"] * len(self.nodes)

    # ---- use

    @property
    def conf(self):
        return self.folder / "slurm.conf"

    def environment(self, env):
        return {**{k: v for k, v in env.items() if not k.startswith(("SLURM_", "SBATCH_", "SALLOC_"))}, "SLURM_CONF": str(self.conf)}

    def query(self, *words):
        """What one of Slurm's programs prints, errors too."""
        return subprocess.run([str(word) for word in words], env=self.environment(os.environ), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout

    def jobs(self, what="%i"):
        """A line for each job that waits or runs, by squeue's format."""
        return self.query("squeue", "-h", "-o", what).splitlines()

    def close(self):
        """Ends all jobs and daemons, and whatever they have left behind: it is all below this process."""
        while True:
            below = descendants(os.getpid())
            if not below:
                return
            for pid in below:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for process in self.sandbox.started:
                process.poll()
            reap()


def descendants(pid):
    """Processes below `pid` that have not ended."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            found = re.match(r"(\d+) \(.*\) (\S) (\d+)", stat.read_text(errors="replace"), re.DOTALL)
        except OSError:
            continue
        if found and found[2] not in "ZX":
            children.setdefault(int(found[3]), []).append(int(found[1]))
    below = children.get(pid, [])
    for one in below:
        below += children.get(one, [])
    return below


def reap():
    """Takes note of the end of processes that nobody else here waits for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass
