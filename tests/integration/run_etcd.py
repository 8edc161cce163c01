#!/usr/bin/env python3
"""Two cluster managers and an etcd of three members on loopback. CASE is one of the functions in CASES, at the end.
"""
import os
import secrets
import socket
import sys
import urllib.request

import debian_program
from run_cluster import ClusterManager, expect
from run_placement import Cluster
from sandbox import Failure, run_case, wait_until

ETCD = debian_program.find("etcd", "etcd-server")
LEASE = "20s"  # a machine that stands still for longer has lost the lead


class Member:
    def __init__(self, name):
        self.name, self.process = name, None
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.client, self.peer = (f"127.0.0.1:{one.getsockname()[1]}" for one in self.sockets)


class Etcd:
    """Three members, each with ports that were free when they were chosen."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        while not self.start():  # another took one of the ports in between
            for member in self.members:
                self.kill(member)

    def start(self):
        self.token = secrets.token_hex(8)
        self.members = [Member(f"m{index}{self.token}") for index in range(3)]
        for member in self.members:
            for one in member.sockets:
                one.close()
        for member in self.members:
            self.start_member(member)
        wait_until(lambda: self.answers() or any(member.process.poll() is not None for member in self.members), "etcd answers",
                   seen=lambda: "\n".join(self.sandbox.errors(member.name)[-2000:] for member in self.members))
        return all(member.process.poll() is None for member in self.members)

    def start_member(self, member):
        peers = ",".join(f"{one.name}=http://{one.peer}" for one in self.members)
        member.process = self.sandbox.start(
            [ETCD, "--name", member.name, "--data-dir", self.sandbox.folder / member.name, "--log-level", "error",
             "--listen-client-urls", f"http://{member.client}", "--advertise-client-urls", f"http://{member.client}",
             "--listen-peer-urls", f"http://{member.peer}", "--initial-advertise-peer-urls", f"http://{member.peer}",
             "--initial-cluster", peers, "--initial-cluster-token", self.token, "--logger", "zap"], self.sandbox.environment(), member.name)

    def kill(self, member):
        member.process.kill()
        member.process.wait()

    def answers(self):
        """Whether each that runs knows who leads."""
        try:
            for member in (one for one in self.members if one.process.poll() is None):
                urllib.request.urlopen(f"http://{member.client}/health").close()
        except OSError:
            return False
        return True

    def url(self):
        return "etcd://" + ",".join(member.client for member in self.members) + "/clusters/one"


class Standby(ClusterManager):
    """A second manager of the same cluster, on the same address: it listens there once it leads."""

    def __init__(self, first, name):
        self.name = name
        self.sandbox, self.secure, self.options = first.sandbox, first.secure, first.options
        self.authority, self.port, self.metrics = first.authority, first.port, 0
        ready, told = os.pipe()
        os.set_inheritable(told, True)
        self.process = self.sandbox.start(
            [self.sandbox.prefix / "bin/plexrl-clustermgr", "--network-listen", f"127.0.0.1:{self.port}", "--metrics-listen",
             "127.0.0.1:0", "--ready-fd", told, "--tls-dir", self.authority / "manager-127.0.0.1", *self.options],
            self.sandbox.environment(), name, pass_fds=[told])
        os.close(told)
        self.ready = os.fdopen(ready)

    def wait_for_lead(self):
        line = self.ready.readline()
        if not line.startswith("ready "):
            raise Failure(f"{self.name} did not begin to lead: {self.sandbox.errors(self.name)}")


def options_of(etcd):
    return ["--store", etcd.url(), "--store-lease", LEASE]


def takeover(sandbox):
    """The leader is killed, then one member, then the next leader is told to stop, while a job runs."""
    etcd = Etcd(sandbox)
    cluster = Cluster(sandbox, options_of(etcd))
    first = cluster.manager.ask("cluster", "status", who=cluster.me)["cluster"]
    job = cluster.stay("long")
    placed = cluster.wait_for("long", "running", beside=job)

    second = Standby(cluster.manager, "second")
    wait_until(lambda: "waiting for the lead: another manager leads: " in sandbox.errors("second"), "the second one waits", beside=second.process,
               seen=lambda: sandbox.errors("second"))
    cluster.manager.kill()
    second.wait_for_lead()
    now = second.ask("cluster", "status", who=cluster.me)["cluster"]
    expect("the cluster", now["id"], first["id"])
    expect("generation", now["generation"], first["generation"] + 1)

    etcd.kill(etcd.members[0])
    wait_until(etcd.answers, "the other two members go on")
    told = cluster.wait_for("long", "running", beside=job)
    expect("where it runs", (told["node"], told["gpus"], told["job"]), (placed["node"], placed["gpus"], placed["job"]))
    other = cluster.stay("other")
    cluster.wait_for("other", "running", beside=other)

    third = Standby(cluster.manager, "third")
    wait_until(lambda: "waiting for the lead" in sandbox.errors("third"), "the third one waits", beside=third.process)
    second.process.terminate()
    expect("end of the second", second.process.wait(), 0)
    third.wait_for_lead()
    expect("generation", third.ask("cluster", "status", who=cluster.me)["cluster"]["generation"], first["generation"] + 2)
    cluster.wait_for("other", "running", beside=other)
    for name, process in (("long", job), ("other", other)):
        cluster.let_go(name, process)
        expect(f"end of {name}", cluster.wait_for(name, "ended")["ended_reason"], "the job has ended")
    return "two managers followed the first, one etcd member was killed, and the jobs and their places stayed"


def quorum(sandbox):
    """The majority of etcd goes and comes back."""
    etcd = Etcd(sandbox)
    cluster = Cluster(sandbox, options_of(etcd))
    first = cluster.manager.ask("cluster", "status", who=cluster.me)["cluster"]
    job = cluster.stay("long")
    cluster.wait_for("long", "running", beside=job)
    for member in etcd.members[:2]:
        etcd.kill(member)
    refused = cluster.run(["true"], "refused", ["--no-wait"])
    sandbox.wait(refused, expected=None)
    # Until the lease is over it tells why; then it ends, and another start waits.
    sandbox.wait(cluster.manager.process, expected=1)
    if "the lead is lost: etcd was not heard of" not in sandbox.errors("clustermgr"):
        raise Failure(f"the manager ended with: {sandbox.errors('clustermgr')}")
    if "no endpoint answers" not in sandbox.errors("clustermgr"):
        raise Failure(f"the manager does not say that etcd is missing: {sandbox.errors('clustermgr')}")

    again = Standby(cluster.manager, "again")
    wait_until(lambda: "no endpoint answers" in sandbox.errors("again"), "it waits for etcd", beside=again.process)
    for member in etcd.members[:2]:
        etcd.start_member(member)
    again.wait_for_lead()
    now = again.ask("cluster", "status", who=cluster.me)["cluster"]
    expect("the cluster", now["id"], first["id"])
    cluster.wait_for("long", "running", beside=job)
    cluster.let_go("long", job)
    cluster.wait_for("long", "ended")
    return "without a majority of etcd the manager says so and ends; with it again all is there"


CASES = {"takeover": takeover, "quorum": quorum}
sys.exit(run_case(__doc__, CASES, ""))
