#!/usr/bin/env python3
"""Real cluster managers on loopback, at ports that the kernel chooses: what plexrl-ctl and Prometheus see of them.

CASE is one of the functions in CASES, at the end.
"""
import json
import os
import signal
import subprocess
import sys
import urllib.request

from sandbox import Failure, run_case, wait_until


class ClusterManager:
    """`secure`: with certificates that plexrl-ctl makes. `options`: more of the command line."""

    def __init__(self, sandbox, secure=True, options=()):
        self.sandbox, self.secure, self.options = sandbox, secure, options
        self.authority = sandbox.folder / "ca"
        self.process, self.port, self.metrics = None, 0, 0
        if secure:
            self.make("--manager", "127.0.0.1")
        self.start()

    def make(self, *options):
        done = self.ctl("tls", "init", self.authority, *options)
        if done.returncode != 0:
            raise Failure(f"tls init {options}: {done.stderr}")

    def start(self):
        """On the same port as before, if there was one."""
        ready, told = os.pipe()
        os.set_inheritable(told, True)
        own = ["--tls-dir", self.authority / "manager-127.0.0.1"] if self.secure else ["--network-insecure-loopback"]
        self.process = self.sandbox.start(
            [self.sandbox.prefix / "bin/plexrl-clustermgr", "--network-listen", f"127.0.0.1:{self.port}", "--metrics-listen",
             "127.0.0.1:0", "--ready-fd", told, *own, *self.options], self.sandbox.environment(), "clustermgr", pass_fds=[told])
        os.close(told)
        with os.fdopen(ready) as lines:
            line = lines.readline()
        if not line.startswith("ready "):
            raise Failure(f"the cluster manager did not start: {self.sandbox.errors('clustermgr')}")
        told = dict(word.split("=") for word in line.split()[1:])
        self.port, self.metrics = int(told["port"]), int(told["metrics"])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def address(self, who):
        access = ["--tls", self.authority / who] if self.secure else ["--insecure-loopback"]
        return ["--cluster", f"127.0.0.1:{self.port}", *access]

    def ctl(self, *words):
        return subprocess.run([self.sandbox.prefix / "bin/plexrl-ctl", *map(str, words)], env=self.sandbox.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def ask(self, *words, who="user-ann"):
        done = self.ctl(*words, "--json", *self.address(who))
        if done.returncode != 0:
            raise Failure(f"plexrl-ctl {words} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def has_metric(self, name):
        try:
            return self.metric(name) > 0
        except Failure:
            return False

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as page:
            for line in page.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        raise Failure(f"no metric {name}")


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failure(f"{what}: {seen}, not {wanted}")


def status(sandbox):
    manager = ClusterManager(sandbox)
    manager.make("--user", "ann")
    first = manager.ask("cluster", "status")["cluster"]
    expect("caller", first["caller"], "user/ann")
    expect("generation", first["generation"], 1)
    expect("readiness", manager.metric("plexrl_cluster_ready"), 1)
    text = manager.ctl("cluster", "status", *manager.address("user-ann"))
    if f"cluster {first['id']}" not in text.stdout or "\nready\n" not in text.stdout:
        raise Failure(f"status as text: {text.stdout}{text.stderr}")

    manager.kill()
    gone = manager.ctl("cluster", "status", *manager.address("user-ann"))
    expect("status without a manager", gone.returncode, 1)
    if "is plexrl-clustermgr running there?" not in gone.stderr or gone.stdout:
        raise Failure(f"without a manager: {gone.stdout}{gone.stderr}")

    manager.start()
    second = manager.ask("cluster", "status")["cluster"]
    expect("cluster after a kill", second["id"], first["id"])
    expect("generation after a kill", second["generation"], 2)
    manager.process.send_signal(signal.SIGTERM)
    expect("status of a manager told to stop", manager.process.wait(), 0)
    return "killed and started again, the same cluster"


def certificates(sandbox):
    manager = ClusterManager(sandbox)
    manager.make("--user", "ann")
    before = (manager.authority / "ca.pem").read_bytes()
    manager.make("--user", "ann", "--node", "a1")
    expect("authority after a second init", (manager.authority / "ca.pem").read_bytes(), before)
    expect("caller with the renewed one", manager.ask("cluster", "status")["cluster"]["caller"], "user/ann")
    for file, mode in (("ca-key.pem", 0o600), ("user-ann/key.pem", 0o600), ("user-ann", 0o700)):
        expect(file, oct((manager.authority / file).stat().st_mode & 0o777), oct(mode))

    other = sandbox.folder / "other"
    manager.ctl("tls", "init", other, "--user", "eve")
    refused = manager.ctl("cluster", "status", "--cluster", f"127.0.0.1:{manager.port}", "--tls", other / "user-eve")
    if refused.returncode != 1 or "not one of the authority in" not in refused.stderr:
        raise Failure(f"a manager of another authority: {refused.stderr}")
    (other / "user-eve/ca.pem").write_bytes(before)
    refused = manager.ctl("cluster", "status", "--cluster", f"127.0.0.1:{manager.port}", "--tls", other / "user-eve")
    if refused.returncode != 1 or "the certificate of user/eve is not one of this cluster's authority" not in refused.stderr:
        raise Failure(f"a user of another authority: {refused.stderr}")
    expect("refused callers counted", manager.metric("plexrl_cluster_refused_callers_total"), 1)

    plain = manager.ctl("cluster", "status", "--cluster", f"127.0.0.1:{manager.port}", "--insecure-loopback")
    if plain.returncode != 1 or "leave out --insecure-loopback" not in plain.stderr:
        raise Failure(f"without certificates: {plain.stderr}")
    for bad, status_, says in ((["--valid", "0"], 2, "a second or more"), (["--node", "a/b"], 1, "is no name"),
                               (["--nodes", "a"], 2, "--nodes")):
        done = manager.ctl("tls", "init", sandbox.folder / "bad", *bad)
        if done.returncode != status_ or says not in done.stderr:
            raise Failure(f"tls init {bad}: {done.returncode} {done.stderr}")
    return "each refusal says why"


def insecure(sandbox):
    manager = ClusterManager(sandbox, secure=False)
    expect("caller", manager.ask("cluster", "status")["cluster"]["caller"], "admin/loopback")
    far = manager.ctl("cluster", "status", "--cluster", "192.0.2.1:7460", "--insecure-loopback")
    if far.returncode != 1 or "only this machine" not in far.stderr:
        raise Failure(f"another machine without certificates: {far.stderr}")
    return "without certificates on loopback only"


def settings(sandbox):
    config = sandbox.folder / "clustermgr.toml"
    program = sandbox.prefix / "bin/plexrl-clustermgr"

    def check(text):
        config.write_text(text)
        return subprocess.run([program, "--check-config", "--config", config], env=sandbox.environment(), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    good = check('[network]\nlisten = "127.0.0.1:0"\nmax_message = "1MiB"\n')
    expect("a good file", (good.returncode, good.stderr), (0, ""))
    for text, says in (('[network]\nlisten_on = "x"\n', "did you mean"), ('[networt]\n', "did you mean 'network'"),
                       ('[network]\ninsecure_loopback = true\n', "others than this machine")):
        bad = check(text)
        if bad.returncode != 2 or says not in bad.stderr:
            raise Failure(f"{text!r}: {bad.returncode} {bad.stderr}")
    missing = subprocess.run([program, "--network-listen", "127.0.0.1:0", "--metrics-listen", "off", "--tls-dir",
                              sandbox.folder / "nowhere"], env=sandbox.environment(), text=True, stderr=subprocess.PIPE, check=False)
    if missing.returncode != 1 or "plexrl-ctl tls init DIR" not in missing.stderr:
        raise Failure(f"without certificates: {missing.returncode} {missing.stderr}")
    return "wrong settings are named"


def joining(manager, who="node-a1"):
    """Settings of a node manager `a1` that joins with the certificate of `who`."""
    return {"PLEXRL_NODE": "a1", "PLEXRL_CLUSTER_MANAGER": f"127.0.0.1:{manager.port}",
            "PLEXRL_CLUSTER_TLS": manager.authority / who}


def nodes(sandbox):
    manager = ClusterManager(sandbox, options=["--nodes-report-every", "50ms", "--nodes-lost-after", "2s",
                                               "--nodes-jobs-lost-after", "1s"])
    manager.make("--user", "ann", "--node", "a1")
    expect("nodes before any joined", manager.ask("cluster", "nodes")["nodes"], [])
    sandbox.start_manager("node", **joining(manager))
    # Its plexrl-run starts a node manager anew when that has died, with the settings it was given itself.
    job = sandbox.shared([sandbox.build / "tests/integration/programs/regular_gaps"], "worker", PLEXRL_TEST_PEER=sandbox.peer_file,
                         **joining(manager))

    def seen():
        """What the cluster manager says of the node."""
        found = manager.ask("cluster", "nodes")["nodes"]
        return found[0] if found else {"state": "", "jobs": []}

    def learned(node):
        gangs = [gang for its in node["jobs"] for gang in its["gangs"] if gang["gaps"]]
        return gangs[0]["gaps"]["weight"] if gangs else 0

    wait_until(lambda: learned(seen()) >= 3, "the cluster manager knows gaps of the job", beside=job, seen=lambda: str(seen()))
    node = seen()
    expect("node", (node["name"], node["state"], node["simulated"], len(node["gpus"])), ("a1", "joined", True, 1))
    expect("job", (node["jobs"][0]["name"], len(node["jobs"][0]["id"])), ("worker", 32))
    told = sandbox.ask_manager("status")
    expect("memory of the GPU", node["gpus"][0]["total_bytes"], told["gpus"][0]["total_bytes"])
    expect("host memory", node["host_budget_bytes"], told["manager"]["host_budget_bytes"])
    gang = node["jobs"][0]["gangs"][0]
    if gang["recent_bursts"] < 3 or (gang["recent_bursts"] > 3 and not 0.2 < gang["period_s"]):
        raise Failure(f"bursts, and the period of at least 300 ms that they show: {gang}")
    if node["gpus"][0]["in_link_bytes_s"] <= 0 or not 0.2 < node["jobs"][0]["gangs"][0]["gaps"]["p50_s"]:
        raise Failure(f"link and gaps, which are of 300 ms: {node}")
    text = manager.ctl("cluster", "nodes", *manager.address("user-ann")).stdout
    if "1 simulated" not in text or "worker" not in text:
        raise Failure(f"nodes as text: {text}")

    # A cluster manager that dies and comes back is nothing to the node.
    manager.kill()
    def bursts():
        return sandbox.ask_manager("learned")["learned"]["gangs"][0]["bursts"]["weight"]
    before = bursts()
    wait_until(lambda: bursts() > before + 2, "the job goes on without a cluster manager", beside=(job, sandbox.manager))
    wait_until(lambda: "trying again" in sandbox.errors("node"), "the loss is in the node's log", beside=job)
    manager.start()
    wait_until(lambda: manager.has_metric('plexrl_cluster_requests_total{code="OK",method="ReportNode"}'),
               "the node reports to the new cluster manager", beside=(job, sandbox.manager))

    # A silent node is lost, and its jobs are after the grace time; both are back when it is.
    sandbox.manager.send_signal(signal.SIGSTOP)
    wait_until(lambda: seen()["state"] == "lost", "the node is lost", beside=job)
    wait_until(lambda: seen()["jobs"][0]["state"] == "lost", "its job is lost", beside=job)
    sandbox.manager.send_signal(signal.SIGCONT)
    wait_until(lambda: seen()["state"] == "joined", "the node is back", beside=job, seen=lambda: str(seen()))
    if seen()["jobs"][0]["state"] in ("lost", "gone"):
        raise Failure(f"the job of a node that is back: {seen()}")

    # A node manager that is killed takes its agent with it; the next one joins in its place, the job with it.
    sandbox.manager.kill()
    sandbox.manager.wait()
    wait_until(lambda: seen().get("generation") == 2 and [its["name"] for its in seen()["jobs"]] == ["worker"],
               "the next node manager has joined", beside=job, seen=lambda: str(seen()))
    sandbox.stop_antagonist()
    expect("the job's result", sandbox.wait(job).splitlines()[0], b"memory: as computed")
    return "deaths on either side are seen and survived"


def refused_node(sandbox):
    """A node with a user's certificate works as without a cluster, and its log says what to do."""
    manager = ClusterManager(sandbox)
    manager.make("--user", "a1")
    sandbox.start_manager("node", **joining(manager, "user-a1"))
    wait_until(lambda: "this needs the role node" in sandbox.errors("node"), "the refusal is in the node's log",
               beside=sandbox.manager)
    expect("jobs", sandbox.ask_manager("jobs")["jobs"], [])
    return "said, and going on"


def leaving(sandbox):
    """A node manager that ends and leaves no job behind has left; the next one has joined again."""
    manager = ClusterManager(sandbox, options=["--nodes-report-every", "50ms"])
    manager.make("--user", "ann", "--node", "a1")

    def state():
        return [node["state"] for node in manager.ask("cluster", "nodes")["nodes"]]

    for _ in range(2):
        node = sandbox.start_manager("node", **joining(manager))
        wait_until(lambda: state() == ["joined"], "the node has joined", beside=node)
        sandbox.stop_manager()
        wait_until(lambda: state() == ["left"], "the node has left", beside=manager.process)
    return "left, and back, and left"


def loads_grpc(sandbox):
    """Which programs load gRPC's libraries."""
    def loads(file):
        libraries = subprocess.run(["ldd", sandbox.prefix / file], stdout=subprocess.PIPE, text=True, check=True).stdout
        return "libgrpc" in libraries
    expect("cluster manager and client load gRPC",
           [loads("bin/plexrl-clustermgr"), loads("lib/plexrl/plexrl-cluster-client")], [True, True])
    for file in ("bin/plexrl-ctl", "bin/plexrl-run", "bin/plexrl-nodemgr", "bin/plexrl-sim", "lib/plexrl/libplexrl.so"):
        expect(f"{file} loads gRPC", loads(file), False)
    return "nobody else does"


CASES = {case.__name__: case for case in (status, certificates, insecure, settings, nodes, refused_node, leaving, loads_grpc)}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
