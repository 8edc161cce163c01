#!/usr/bin/env python3
"""Jobs that a cluster manager places and Slurm starts: a real slurmctld and a slurmd for each node, each node with a node manager and a
simulated GPU of its own.

CASE is one of the functions in CASES, at the end.
"""
import json
import os
import pathlib
import re
import signal
import sys

from run_cluster import ClusterManager, expect
from run_placement import USER
from sandbox import SKIPPED, Failure, Sandbox, run_case, wait_until
from slurm import Slurm

TEAMS = '[[team]]\nname = "red"\nweight = 1\n[[team]]\nname = "blue"\nweight = 1\n'


class SlurmCluster:
    """A Slurm, a cluster manager, and nodes whose managers have joined. Jobs are submitted in the sandbox, which is none of the nodes.
    `joined`: the nodes with a node manager."""

    def __init__(self, sandbox, nodes=("n1", "n2"), joined=None, options=(), **slurm):
        self.sandbox, self.nodes = sandbox, {}
        self.slurm = None
        try:
            self.slurm = Slurm(sandbox, nodes, **slurm)
            self.manager = ClusterManager(sandbox, options=["--nodes-report-every", "50ms", *options])
            joined = joined or nodes
            self.manager.make("--user", USER, *(word for node in joined for word in ("--node", node)))
            for node in joined:
                self.start_node(node)
            self.slurm.set_environments({name: self.environment_of(node) for name, node in self.nodes.items()})
            wait_until(lambda: len(self.manager.ask("cluster", "nodes", who=self.me)["nodes"]) == len(joined), "the nodes have joined")
        except BaseException:
            self.close()
            raise

    me = f"user-{USER}"

    def start_node(self, name):
        node = Sandbox(self.sandbox.build, memory="192MiB")
        self.nodes[name] = node
        config = node.folder / "nodemgr.toml"
        config.write_text(TEAMS)
        node.start_manager(PLEXRL_NODE=name, PLEXRL_CLUSTER_MANAGER=f"127.0.0.1:{self.manager.port}", PLEXRL_CONFIG=config,
                           PLEXRL_CLUSTER_TLS=self.manager.authority / f"node-{name}")

    @staticmethod
    def environment_of(node):
        """What is different there."""
        return {name: node.environment()[name] for name in ("PLEXRL_SOCKET", "PLEXRL_SIMGPU", "PLEXRL_DATA", "XDG_RUNTIME_DIR")}

    def environment(self, **more):
        return self.slurm.environment(self.sandbox.environment(PLEXRL_TLS_DIR=self.manager.authority / self.me, **more))

    def run(self, argv, name, options=(), **more):
        """Under plexrl-run, placed by the cluster manager and started by Slurm."""
        command = [self.sandbox.prefix / "bin/plexrl-run", "--cluster", f"127.0.0.1:{self.manager.port}", "--name", name, *options, "--"]
        return self.sandbox.start([*command, *argv], self.environment(**more), name)

    def stay(self, name, options=(), **more):
        """A job that says where it runs, and does so until `let_go`."""
        return self.run(["sh", "-c", f"echo on $SLURMD_NODENAME; while [ ! -e {self.end_of(name)} ]; do sleep 0.05; done"], name, options, **more)

    def end_of(self, name):
        return self.sandbox.folder / f"{name}.end"

    def let_go(self, name, process):
        self.end_of(name).touch()
        return self.sandbox.wait(process).decode()

    def explain(self, job):
        done = self.manager.ctl("placement", "explain", job, "--json", *self.manager.address(self.me))
        return json.loads(done.stdout)["placement"] if done.returncode == 0 else {"state": done.stderr}

    def wait_for(self, job, state, beside=None):
        wait_until(lambda: self.explain(job)["state"] == state, f"{job} is {state}", beside=beside,
                   seen=lambda: f"{self.explain(job)} {self.slurm.jobs('%i %j %T %r %N')}")
        return self.explain(job)

    def wait_for_slurm(self, lines, what="%j %T"):
        wait_until(lambda: sorted(self.slurm.jobs(what)) == sorted(lines), f"Slurm has {lines}", seen=lambda: str(self.slurm.jobs(what)))

    def jobs_on(self, node):
        return {job["name"]: job for job in self.nodes[node].ask_manager("jobs")["jobs"]}

    def close(self):
        for node in self.nodes.values():
            node.close()
        if self.slurm:
            self.slurm.close()


def on_cluster(case, has_plugin=False, **how):
    def run(sandbox):
        plugins = [f"required {plugin(sandbox)}"] if has_plugin and plugin(sandbox).exists() else []
        cluster = SlurmCluster(sandbox, plugins=plugins, **how)
        try:
            return case(cluster, sandbox)
        except Failure as failure:
            logs = "".join(f"---- {name}: {node.errors('nodemgr')}\n" for name, node in cluster.nodes.items())
            raise Failure(f"{failure}\n{logs}") from None
        finally:
            cluster.close()
    run.__name__ = case.__name__
    return run


def placed(cluster, sandbox):
    """Three jobs of two teams on two nodes."""
    running = {}
    for name, team in (("one", "red"), ("two", "blue"), ("three", "blue")):
        running[name] = cluster.stay(name, ["--team", team])
        told = cluster.wait_for(name, "running", beside=tuple(running.values()))
        job = cluster.jobs_on(told["node"])[name]
        expect(f"{name}: id on its node, team", (job["id"], job["team"]), (told["job"], team))
        slurm = dict(line.split(" ", 1) for line in cluster.slurm.jobs("%j %i %N"))[name]
        expect(f"{name}: Slurm's id and node", slurm, f"{told['slurm_job']} {told['node']}")
        expect(f"{name} by Slurm's id", cluster.explain(f"slurm:{told['slurm_job']}")["id"], told["id"])
        gres = cluster.slurm.query("scontrol", "show", "job", told["slurm_job"])
        expect(f"{name}: gres in {gres}", "plexrl:1" in gres, True)
    first, second, third = (cluster.explain(name) for name in running)
    expect("nodes of the first two", {first["node"], second["node"]}, {"n1", "n2"})
    expect("why the third shares", third["decision"]["reason"], "no history, no free GPUs: shares")
    text = cluster.manager.ctl("placement", "explain", "one", *cluster.manager.address(cluster.me)).stdout
    expect(f"as text: {text}", f"Slurm's job {first['slurm_job']}" in text, True)
    nodes = {name: cluster.explain(name)["node"] for name in running}
    for name, process in running.items():
        expect(f"{name} ran", cluster.let_go(name, process), f"on {nodes[name]}\n")
        expect(f"how {name} ended", cluster.wait_for(name, "ended")["ended_reason"], "the job has ended")
    cluster.wait_for_slurm([])
    # The job's own status, its input, and nothing of ours in its environment.
    failing = cluster.run(["sh", "-c", "env | grep -c '^SLURM_EXIT'; exit 7"], "failing")
    expect("its output", sandbox.wait(failing, expected=7), b"0\n")
    return "each job runs where it was placed, as Slurm's job"


PROMISE = "144MiB"  # of a GPU of 192 MiB


def rlvr(sandbox, name):
    return [sandbox.build / "tests/bin/rlvr", "--name", name, "--steps", 3, "--state-bytes", 96 << 20]


def share(cluster, sandbox, start):
    """`start(name, team)` starts `rlvr` on the node n1."""
    def digests(output):
        return [line for line in output.decode().splitlines() if "digest" in line]
    alone = {name: digests(sandbox.wait(sandbox.alone(rlvr(sandbox, name), f"alone-{name}"))) for name in ("a", "b")}
    shared = {name: start(name, team) for name, team in (("a", "red"), ("b", "blue"))}
    for name, process in shared.items():
        expect(f"digest of {name}", (bool(alone[name]), digests(sandbox.wait(process))), (True, alone[name]))
    wait_until(lambda: not cluster.jobs_on("n1"), "both have left the node")
    cluster.nodes["n1"].stop_manager()  # which writes the rest of its trace
    summary = cluster.nodes["n1"].trace("summary", "--json")["summary"]
    expect("jobs there", sorted(job["name"] for job in summary["jobs"]), ["a", "b"])
    return "results as alone"


def sharing(cluster, sandbox):
    """Two RL jobs of two teams on one GPU that holds one of them: as alone, bit for bit."""
    return share(cluster, sandbox, lambda name, team: cluster.run(rlvr(sandbox, name), name, ["--team", team, "--memory", PROMISE]))


def cancelled(cluster, sandbox):
    """However a job is cancelled, Slurm, the node and the cluster manager all know."""
    def is_over(name, process, says):
        status = process.wait()
        expect(f"{name}: has failed", status != 0, True)
        expect(f"{name}: how it ended", cluster.wait_for(name, "ended")["ended_reason"], says)
        cluster.wait_for_slurm([])
        wait_until(lambda: not cluster.jobs_on("n1"), f"{name} has left its node")

    for name, how in (("interrupted", signal.SIGINT), ("terminated", signal.SIGTERM)):
        job = cluster.stay(name)
        cluster.wait_for(name, "running", beside=job)
        if how == signal.SIGINT:
            os.killpg(job.pid, how)  # as a terminal does
        else:
            job.send_signal(how)
        is_over(name, job, "the job has ended")

    job = cluster.stay("scancelled")
    cluster.slurm.query("scancel", cluster.wait_for("scancelled", "running", beside=job)["slurm_job"])
    is_over("scancelled", job, "the job has ended")

    # One that still waits in Slurm.
    cluster.slurm.query("scontrol", "update", "nodename=n1", "state=drain", "reason=a broken disk")
    for name, cancel in (("waiting", lambda job: os.killpg(job.pid, signal.SIGINT)),
                         ("waiting-too", lambda job: cluster.slurm.query("scancel", "-n", "waiting-too"))):
        job = cluster.stay(name)
        cluster.wait_for_slurm([f"{name} PENDING"])
        wait_until(lambda: "waiting in Slurm as job" in sandbox.errors(name), "plexrl-run says so", beside=job)
        for words in ("Slurm starts nothing on n1 now", "a broken disk", "state=resume"):
            expect(f"{words} in: {sandbox.errors(name)}", words in sandbox.errors(name), True)
        cancel(job)
        is_over(name, job, "plexrl-run ended before the job began")
    return "gone everywhere"


def full(cluster, sandbox):
    """Slurm has one slot on the node, so the second job waits there, and says why and for whom."""
    first = cluster.stay("first")
    id_ = cluster.wait_for("first", "running", beside=first)["slurm_job"]
    second = cluster.stay("second")
    wait_until(lambda: f"when one of these ends: {id_} (first)" in sandbox.errors("second"), "why the second waits", beside=(first, second),
               seen=lambda: sandbox.errors("second"))
    expect("its place meanwhile", cluster.explain("second")["state"], "placed")
    hurried = cluster.stay("hurried", ["--no-wait"])
    sandbox.wait(hurried, expected=125)
    expect("how it ended", cluster.wait_for("hurried", "ended")["ended_reason"], "plexrl-run ended before the job began")
    cluster.let_go("first", first)
    cluster.wait_for("second", "running", beside=second)
    cluster.let_go("second", second)
    return "waits in Slurm, and says why and when"


def refused(cluster, sandbox):
    """What can't be is told, and nothing runs."""
    def expect_failure(name, says, options=(), **more):
        job = cluster.run(["sh", "-c", "echo ran"], name, options, **more)
        out = sandbox.wait(job, expected=125)
        if out or says not in sandbox.errors(name):
            raise Failure(f"{name}: {out} {sandbox.errors(name)}")

    expect_failure("stranger", "Slurm knows no node 'n9'")
    expect("its place", cluster.wait_for("stranger", "ended")["ended_reason"], "plexrl-run ended before the job began")
    expect_failure("without", "which is not this machine", ["--slurm", "no"])
    cluster.slurm.stop("slurmctld")
    expect_failure("down", "Slurm's controller does not answer")
    return "each refusal says why"


def bare(cluster, sandbox):
    """Nodes without the gres; what is wrong with the user's own options is told by Slurm."""
    job = cluster.run(["true"], "bare")
    sandbox.wait(job, expected=125)
    expect(f"what is missing: {sandbox.errors('bare')}", "Gres=plexrl:N in slurm.conf" in sandbox.errors("bare"), True)
    return "what is missing is told"


def batch(cluster, sandbox):
    """sbatch: plexrl-run ends at once, and the place is kept until the job has begun."""
    def submit(name, argv, options=()):
        output = sandbox.wait(cluster.run(argv, name, ["--slurm", "sbatch", "--slurm-options", f"--output={sandbox.folder}/{name}.log", *options]))
        found = re.fullmatch(r"Submitted batch job (\d+) to n1\n", output.decode())
        if not found:
            raise Failure(f"{name}: {output}")
        return found[1]

    id_ = submit("odd", ["sh", "-c", 'echo "$0" "$1"; exit 3', "it's", "a b $HOME"])
    told = cluster.wait_for("odd", "ended")
    expect("its Slurm job, and how it ended", (told["slurm_job"], told["ended_reason"]), (id_, "the job has ended"))
    cluster.wait_for_slurm([])
    expect("its output", (sandbox.folder / "odd.log").read_text(), "it's a b $HOME\n")

    cluster.slurm.query("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    late, never = submit("late", ["true"]), submit("never", ["true"])
    expect("places of those that wait", [cluster.wait_for(name, "placed")["slurm_job"] for name in ("late", "never")], [late, never])
    cluster.slurm.query("scancel", never)
    expect("how it ended", cluster.wait_for("never", "ended")["ended_reason"], "Slurm ended the job before it began")
    expect("the other one's", cluster.explain("late")["state"], "placed")
    cluster.slurm.query("scontrol", "update", "nodename=n1", "state=resume")
    expect("how it ended", cluster.wait_for("late", "ended")["ended_reason"], "the job has ended")
    return "kept, begun and cancelled"


def spank(cluster, sandbox):
    """srun --plexrl and sbatch --plexrl: what their tasks see, and what the node manager sees of them."""
    need_plugin(sandbox)
    here = cluster.environment(**cluster.environment_of(cluster.nodes["n1"]))

    def srun(name, options, script, expected=0):
        process = sandbox.start(["srun", "--quiet", "-w", "n1", "--job-name", name, *options, "sh", "-c", script], here, name)
        return sandbox.wait(process, expected).decode().splitlines()

    expect("without the option", srun("plain", [], "echo ${LD_PRELOAD:-none} ${PLEXRL_JOB_ID:-none}"), ["none none"])
    expect("in the help", "--plexrl" in cluster.slurm.query("srun", "--help"), True)
    seen = srun("ranks", ["--ntasks", "2", "--gres=plexrl:2", "--plexrl=team=red,priority=7"],
                "echo $LD_PRELOAD $PLEXRL_JOB_NAME $PLEXRL_TEAM $PLEXRL_PRIORITY $PLEXRL_JOB_ID")
    expect("tasks", (len(seen), len(set(seen))), (2, 1))
    expect("their environment", seen[0].split()[:4], [f"{sandbox.build}/lib/plexrl/libplexrl.so", "ranks", "red", "7"])
    expect("jobs after that", cluster.jobs_on("n1"), {})
    expect("the task's status", srun("fails", ["--plexrl"], "exit 3", expected=3), [])

    srun("wrong", ["--plexrl=prio=1"], "echo ran", expected=None)
    expect("a wrong key is told", "--plexrl: unknown key 'prio'" in sandbox.errors("wrong"), True)
    expect("and nothing runs", sandbox.output("wrong").read_bytes(), b"")
    expect("refused", srun("large", ["--plexrl=memory=1TiB"], "echo ran", expected=125), [])
    expect(f"with the figures: {sandbox.errors('large')}", "plexrl-run: refused: " in sandbox.errors("large"), True)
    expect("a bad value", srun("bad", ["--plexrl=priority=x"], "echo ran", expected=125), [])
    expect(f"is told: {sandbox.errors('bad')}", "give a number from 0 to 100" in sandbox.errors("bad"), True)

    # A job that is there, and is cancelled.
    go = sandbox.folder / "go"
    stays = sandbox.start(["srun", "--quiet", "-w", "n1", "--job-name", "stays", "--plexrl=team=blue", "sh", "-c", f"touch {go}; sleep 1000"],
                          here, "stays")
    wait_until(go.exists, "the task runs", beside=stays)
    expect("team of the job on the node", cluster.jobs_on("n1")["stays"]["team"], "blue")
    cluster.slurm.query("scancel", "--name", "stays")
    sandbox.wait(stays, expected=None)
    wait_until(lambda: not cluster.jobs_on("n1"), "the job has left its node")

    # A script, and a step of it, are one job.
    script = sandbox.folder / "script.sh"
    script.write_text("#!/bin/sh\necho $PLEXRL_JOB_ID $LD_PRELOAD\nsrun --quiet sh -c 'echo $PLEXRL_JOB_ID $LD_PRELOAD'\n")
    process = sandbox.start(["sbatch", "--wait", "-w", "n1", "--plexrl=team=red", f"--output={sandbox.folder}/script.log", script], here, "script")
    sandbox.wait(process)
    lines = (sandbox.folder / "script.log").read_text().splitlines()
    expect("job of script and step", (len(lines), len(set(lines)), len(lines[0].split())), (2, 1, 2))
    wait_until(lambda: not cluster.jobs_on("n1"), "the script's job has left its node")
    return "a step is a job"


def spank_sharing(cluster, sandbox):
    """Two RL jobs of two teams, started by srun --plexrl, on one GPU that holds one of them: as alone, bit for bit."""
    need_plugin(sandbox)
    here = cluster.environment(**cluster.environment_of(cluster.nodes["n1"]))

    def start(name, team):
        options = ["--quiet", "-w", "n1", "--gres=plexrl:1", "--job-name", name, f"--plexrl=team={team},memory={PROMISE},require"]
        return sandbox.start(["srun", *options, *rlvr(sandbox, name)], here, name)
    return share(cluster, sandbox, start)


def need_plugin(sandbox):
    if not plugin(sandbox).exists():
        print("skipped: built without slurm/spank.h (Debian: libslurm-dev)")
        sys.exit(SKIPPED)


def plugin(sandbox):
    return sandbox.build / "lib/plexrl/spank_plexrl.so"


def documented(cluster, sandbox):
    """The commands of docs/slurm.md, with the places and programs of this test."""
    need_plugin(sandbox)
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs/slurm.md").read_text()
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    for line in ("GresTypes=plexrl", "Name=plexrl Count=40 Flags=CountOnly", "required /usr/lib/plexrl/spank_plexrl.so"):
        expect(f"'{line}' is there, and what this test has", line in lines, True)
    commands = [line for line in lines if line.split()[0] in ("plexrl-run", "plexrl-ctl", "srun", "sbatch")]
    expect("commands", len(commands), 7)
    program = sandbox.folder / "train.py"
    program.write_text("import os, sys\nprint(os.environ['PLEXRL_JOB_NAME'], os.environ['PLEXRL_TEAM'] or 'none')\n")
    (sandbox.folder / "train.sh").write_text("#!/bin/sh\npython3 train.py\n")
    here = cluster.environment(**cluster.environment_of(cluster.nodes["n1"]))
    here["PATH"] = f"{sandbox.prefix}/bin:{here['PATH']}"
    outputs = []
    for number, command in enumerate(commands):
        mine = command.replace("head.cluster:7460", f"127.0.0.1:{cluster.manager.port}").replace("40GiB", PROMISE)
        mine = mine.replace("python train.py", f"{sys.executable} train.py")
        done = sandbox.start(["sh", "-c", mine], here, f"documented-{number}", cwd=sandbox.folder)
        outputs.append((command.split()[0], sandbox.wait(done).decode()))
        cluster.wait_for_slurm([])
    python = pathlib.Path(sys.executable).name
    expect("of plexrl-run", [out for what, out in outputs if what == "plexrl-run"][:2], ["train red\n", f"{python} none\n"])
    expect("of srun", [out for what, out in outputs if what == "srun"], [f"{python} none\n", f"{python} red\n" * 2])
    expect("explained", "Slurm's job" in dict(outputs)["plexrl-ctl"], True)
    return "each does what is said"


CASES = {case.__name__: case for case in (
    on_cluster(placed), on_cluster(sharing, nodes=("n1",)), on_cluster(cancelled, nodes=("n1",)), on_cluster(full, nodes=("n1",), slots=1),
    on_cluster(refused, nodes=("n1",), joined=("n9",)), on_cluster(bare, nodes=("n1",), slots=0),
    on_cluster(batch, nodes=("n1",), options=("--placement-requester-lost-after", "1h")),
    on_cluster(spank, nodes=("n1",), has_plugin=True), on_cluster(spank_sharing, nodes=("n1",), has_plugin=True),
    on_cluster(documented, nodes=("n1",), has_plugin=True))}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
