#!/usr/bin/env python3
"""Jobs that a real cluster manager places: `plexrl-run --cluster` on a machine whose node manager has joined, as the node a1.

CASE is one of the functions in CASES, at the end.
"""
import getpass
import os
import signal
import sys

from run_cluster import ClusterManager, expect, joining
from sandbox import Failure, run_case, wait_until

USER = getpass.getuser()


class Cluster:
    """A cluster manager and one node."""

    def __init__(self, sandbox, options=(), node=True):
        self.sandbox = sandbox
        self.manager = ClusterManager(sandbox, options=["--nodes-report-every", "50ms", *options])
        self.manager.make("--user", USER, "--user", "eve", "--node", "a1")
        self.me = f"user-{USER}"
        if node:
            self.start_node()

    def start_node(self):
        self.sandbox.start_manager("node", **joining(self.manager))
        wait_until(lambda: [node["name"] for node in self.manager.ask("cluster", "nodes", who=self.me)["nodes"]] == ["a1"],
                   "the node has joined", beside=self.sandbox.manager)

    def run(self, argv, name, options=(), who=None, **more):
        """Under plexrl-run, placed by the cluster manager."""
        return self.sandbox.shared(argv, name, ["--cluster", f"127.0.0.1:{self.manager.port}", *options],
                                   PLEXRL_TLS_DIR=self.manager.authority / (who or self.me), PLEXRL_SLURM="no", **{**joining(self.manager), **more})

    def stay(self, name, options=(), **more):
        """A job that runs until `let_go`."""
        return self.run(["sh", "-c", f"while [ ! -e {self.end_of(name)} ]; do sleep 0.02; done"], name, options, **more)

    def end_of(self, name):
        return self.sandbox.folder / f"{name}.end"

    def let_go(self, name, process):
        self.end_of(name).touch()
        return self.sandbox.wait(process)

    def explain(self, job):
        return self.manager.ask("placement", "explain", job, who=self.me)["placement"]

    def wait_for(self, job, state, beside=None):
        """Returns what is said of the job once it is in that state."""
        def seen():
            done = self.manager.ctl("placement", "explain", job, *self.manager.address(self.me))
            return done.stdout + done.stderr
        def is_there():
            done = self.manager.ctl("placement", "explain", job, "--json", *self.manager.address(self.me))
            return done.returncode == 0 and f'"state":"{state}"' in done.stdout
        wait_until(is_there, f"{job} is {state}", beside=beside, seen=seen)
        return self.explain(job)


def gpus(sandbox):
    return [gpu["uuid"] for gpu in sandbox.ask_manager("status")["gpus"]]


def placed(sandbox):
    sandbox.gpus = 2
    cluster = Cluster(sandbox)
    uuids = gpus(sandbox)
    first = cluster.stay("first")
    told = cluster.wait_for("first", "running", beside=first)
    expect("where", (told["node"], told["gpus"], told["user"]), ("a1", uuids[:1], USER))
    expect("why", told["decision"]["reason"], "no history: profiled on its own")
    jobs = {job["name"]: job for job in sandbox.ask_manager("jobs")["jobs"]}
    expect("its id", told["job"], jobs["first"]["id"])
    text = cluster.manager.ctl("placement", "explain", told["job"][:8], *cluster.manager.address(cluster.me)).stdout
    if "why: no history: profiled on its own" not in text or "chosen" not in text or "(simulated)" not in text:
        raise Failure(f"as text: {text}")

    # The second one sees the other GPU, and it alone.
    program = sandbox.build / "tests/integration/programs/visible_gpus"
    seen = sandbox.wait(cluster.run([program], "second")).decode().split()
    expect("GPUs that the second job sees", seen, [uuids[1]])
    narrowed = cluster.run([program], "narrowed", CUDA_VISIBLE_DEVICES=uuids[1])
    expect("GPUs that one narrowed by its user sees", sandbox.wait(narrowed).decode().split(), [uuids[1]])

    cluster.let_go("first", first)
    told = cluster.wait_for(told["job"], "ended")
    expect("how it ended", told["ended_reason"], "the job has ended")
    both = sandbox.wait(cluster.run([program], "both", ["--gpus", 2])).decode().split()
    expect("GPUs of one that asked for two", both, uuids)
    return "each job sees the GPUs that it was given"


def queue(sandbox):
    cluster = Cluster(sandbox, ["--placement-max-sharers", "1"])
    first = cluster.stay("first")
    cluster.wait_for("first", "running", beside=first)
    second = cluster.stay("second")
    told = cluster.wait_for("second", "queued", beside=second)
    expect("why", told["decision"]["reason"], "slots of its size have their most sharers")
    expect("when", told["decision"]["when"], f"when one of these ends: {USER}/first on a1")
    wait_until(lambda: "waiting for a place: slots of its size" in sandbox.errors("second"), "plexrl-run says so", beside=second)

    refused = cluster.stay("third", ["--no-wait"])
    sandbox.wait(refused, expected=125)
    if "refused: slots of its size have their most sharers" not in sandbox.errors("third"):
        raise Failure(f"--no-wait: {sandbox.errors('third')}")
    expect("its state", cluster.explain("third")["state"], "refused")

    # One that no longer waits is out of the queue, whichever way it went.
    for signal_, name in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated"), (signal.SIGKILL, "killed")):
        waiting = cluster.stay(name)
        cluster.wait_for(name, "queued", beside=waiting)
        waiting.send_signal(signal_)
        sandbox.wait(waiting, expected=None)
        expect(f"end of {name}", cluster.wait_for(name, "ended")["ended_reason"], "plexrl-run ended before the job began")

    cluster.let_go("first", first)
    told = cluster.wait_for("second", "running", beside=second)
    expect("its GPU", told["gpus"], gpus(sandbox))
    cluster.let_go("second", second)
    return "placed when there was room"


def silent_requester(sandbox):
    """plexrl-run and what asks for it killed at once: the manager finds out by itself."""
    cluster = Cluster(sandbox, ["--placement-max-sharers", "1", "--placement-requester-lost-after", "2s"])
    first = cluster.stay("first")
    cluster.wait_for("first", "running", beside=first)
    second = cluster.stay("second")
    cluster.wait_for("second", "queued", beside=second)
    os.killpg(second.pid, signal.SIGKILL)
    second.wait()
    expect("how it ended", cluster.wait_for("second", "ended", beside=first)["ended_reason"], "who asked for it has gone")
    expect("the one that runs", cluster.explain("first")["state"], "running")
    cluster.let_go("first", first)
    return "given up after its time"


def sharing(sandbox):
    """Two jobs with gaps and one GPU: the second is put beside the first, with an estimate from what both have shown."""
    cluster = Cluster(sandbox)
    worker = sandbox.build / "tests/integration/programs/regular_gaps"

    def start(name, peer):
        return cluster.run([worker], name, ["--memory", "64MiB"], PLEXRL_TEST_PEER=peer)

    def is_known(name):
        return any(gang["gaps"] and gang["gaps"]["weight"] >= 3 for node in cluster.manager.ask("cluster", "nodes", who=cluster.me)["nodes"]
                   for job in node["jobs"] if job["name"] == name for gang in job["gangs"])

    first_peer, second_peer = sandbox.make_peer("one"), sandbox.make_peer("two")
    first = start("one", first_peer)
    wait_until(lambda: is_known("one"), "gaps of the first job are known", beside=first)
    second = start("two", second_peer)
    told = cluster.wait_for("two", "running", beside=(first, second))
    expect("why", told["decision"]["reason"], "no history, no free GPUs: shares")
    expect("beside", told["decision"]["choices"][0]["beside"], [f"{USER}/one"])
    wait_until(lambda: is_known("two"), "gaps of the second job are known", beside=(first, second))
    sandbox.stop_antagonist(second_peer)
    sandbox.wait(second)
    cluster.wait_for(told["job"], "ended", beside=first)

    # What its run has shown is there for the next one.
    second_peer = sandbox.make_peer("three")
    second = start("two", second_peer)
    told = cluster.wait_for("two", "running", beside=(first, second))
    expect("why, with history", told["decision"]["reason"], "shares: least marginal cost")
    # Replayed if there was time to do so; their records change while they run.
    if told["decision"]["choices"][0]["basis"] not in ("estimate", "replay"):
        raise Failure(f"by {told['decision']['choices']}")
    for peer in (first_peer, second_peer):
        sandbox.stop_antagonist(peer)
    for job in (first, second):
        expect("the job's result", sandbox.wait(job).splitlines()[0], b"memory: as computed")
    return "beside each other, and why is told"


def restart(sandbox):
    """The cluster manager is killed while one job runs and one waits."""
    cluster = Cluster(sandbox, ["--placement-max-sharers", "1"])
    first = cluster.stay("first")
    before = cluster.wait_for("first", "running", beside=first)
    second = cluster.stay("second")
    cluster.wait_for("second", "queued", beside=second)
    cluster.manager.kill()
    wait_until(lambda: "can't be reached" in sandbox.errors("second"), "who waits is told", beside=(first, second))
    cluster.manager.start()
    after = cluster.wait_for("first", "running", beside=(first, second))
    expect("the same place", (after["id"], after["gpus"]), (before["id"], before["gpus"]))
    cluster.let_go("first", first)
    cluster.wait_for("second", "running", beside=second)
    cluster.let_go("second", second)
    return "nobody noticed but who waits"


def refused(sandbox):
    """What goes wrong is told, and nothing runs."""
    cluster = Cluster(sandbox)

    def expect_failure(name, says, options=(), who=None, **more):
        job = cluster.run(["sh", "-c", "echo ran"], name, options, who, **more)
        out = sandbox.wait(job, expected=125)
        if out or says not in sandbox.errors(name):
            raise Failure(f"{name}: {out} {sandbox.errors(name)}")

    expect_failure("wide", "no node has more than 1", ["--gpus", 9])
    expect_failure("large", "lower --memory", ["--memory", "1TiB"])
    expect_failure("several", "several nodes can't be placed yet", ["--nodes", 2])
    expect_failure("indexed", "does not name GPUs by UUID", CUDA_VISIBLE_DEVICES=0)
    expect_failure("foreign", f"of user/eve, and the job of user {USER}", who="user-eve")
    expect_failure("of a node", "this needs the role user or admin", who="node-a1")
    expect_failure("off", "PLEXRL_DISABLE=1", PLEXRL_DISABLE=1)
    expect_failure("elsewhere", "was placed on node a1", PLEXRL_SOCKET=sandbox.folder / "nowhere" / "nodemgr.sock")
    expect("the place of that one", cluster.wait_for("elsewhere", "ended")["ended_reason"], "plexrl-run ended before the job began")
    cluster.manager.kill()
    expect_failure("unreachable", "is plexrl-clustermgr running there?")
    return "each refusal says why"


CASES = {case.__name__: case for case in (placed, queue, silent_requester, sharing, restart, refused)}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
