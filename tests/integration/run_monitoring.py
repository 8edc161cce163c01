#!/usr/bin/env python3
"""The Grafana board and the alerts of tools/monitoring.

files: the board holds together, and promtool finds the rules good: each alert comes when it should, and not before. live: Debian's
Prometheus reads a real node manager on which two jobs share a GPU and a real cluster manager that has placed one of them; every expression
of board and alerts finds something there. Both need Prometheus (`tools/dev test` brings it).
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

from run_cluster import expect, joining
import debian_program
from run_placement import Cluster
from sandbox import Failure, run_case, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tools/monitoring"


def program(name):
    return debian_program.find(name, "prometheus")


def promtool(*words):
    done = subprocess.run([program("promtool"), *words], cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"promtool {words}: {done.stdout}")


def alerts():
    """Name and expression of each."""
    text = (FOLDER / "plexrl-rules.yml").read_text()
    found = re.findall(r"^ +- alert: (\w+)\n +expr: (.*)$", text, re.M)
    expect("alerts with an expression on a line", len(found), text.count("alert:"))
    return dict(found)


def board():
    return json.loads((FOLDER / "plexrl-board.json").read_text())


def in_the_docs(pattern):
    return set(re.findall(pattern, (ROOT / "docs/monitoring.md").read_text()))


def files(_):
    promtool("check", "rules", "plexrl-rules.yml")
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "plexrl-rules-test.yml")
    tested = (FOLDER / "plexrl-rules-test.yml").read_text()
    expect("alerts that no test lets come", [name for name in alerts() if name not in tested], [])
    expect("alerts and docs/monitoring.md", set(alerts()) ^ in_the_docs(r"`(Plexrl\w+)`"), set())

    panels = board()["panels"]
    expect("ids of panels", sorted(panel["id"] for panel in panels), [*range(1, len(panels) + 1)])
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        expect(f"panel '{panel['title']}' is in the grid and on no other", (at["x"] + at["w"] <= 24, taken & cells), (True, set()))
        taken |= cells
        for target in panel.get("targets", []):
            expect(f"data source of '{panel['title']}'", target["datasource"]["uid"], "${datasource}")
    return f"{len(alerts())} alerts, {len(panels)} panels"


def board_expressions():
    for variable in board()["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
            yield f'{metric}{{{label}!=""}}'
    for panel in board()["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$node", ".*").replace("$__rate_interval", "1m")


def without_condition(expression):
    """With a value, 0 or 1, wherever it has one or none; what is in braces are conditions on labels."""
    parts = re.split(r"(\{[^}]*\})", expression)
    return "".join(part if part.startswith("{") else re.sub(r"(==|!=|<=|>=|<|>)", r"\1 bool", part) for part in parts)


class Prometheus:
    def __init__(self, sandbox, node_port, cluster_port):
        text = (FOLDER / "prometheus.yml").read_text()
        for old, new in ((":7462", f":{node_port}"), (":7461", f":{cluster_port}"), ("interval: 15s", "interval: 2s"),
                         ("[plexrl-rules.yml]", f"[{FOLDER}/plexrl-rules.yml]")):
            expect(f"{old} in prometheus.yml", old in text, True)
            text = text.replace(old, new)
        config = sandbox.folder / "prometheus.yml"
        config.write_text(text)
        self.process = sandbox.start([program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={sandbox.folder}/tsdb",
                                      "--web.listen-address=127.0.0.1:0"], sandbox.environment(), "prometheus")
        listens = re.compile(r'msg="Listening on" address=127\.0\.0\.1:(\d+)')
        wait_until(lambda: listens.search(sandbox.errors("prometheus")), "Prometheus listens", beside=self.process)
        self.port = int(listens.search(sandbox.errors("prometheus"))[1])
        wait_until(lambda: "ready to receive web requests" in sandbox.errors("prometheus"), "Prometheus is ready", beside=self.process)

    def ask(self, what, **parameters):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:
            raise Failure(f"{parameters}: {refusal.read().decode()}") from None

    def finds(self, expression):
        """The values that are numbers, of all series; None where there is no series."""
        result = self.ask("query", query=expression)["result"]
        return [float(series["value"][1]) for series in result] if result else None


def live(sandbox):
    program("prometheus")
    cluster = Cluster(sandbox, node=False)
    node = sandbox.start_manager("node", PLEXRL_METRICS_LISTEN="127.0.0.1:0", **joining(cluster.manager))
    served = re.compile(r"served port=(\d+)")
    wait_until(lambda: served.search(sandbox.errors("node")), "metrics are served", beside=node)
    wait_until(lambda: cluster.manager.ask("cluster", "nodes", who=cluster.me)["nodes"], "the node has joined", beside=node)
    metrics = Prometheus(sandbox, served.search(sandbox.errors("node"))[1], cluster.manager.metrics)

    # Two jobs, each as big as most of the GPU; the cluster manager has placed the first.
    work = [sandbox.build / "tests/integration/programs/antagonist"]
    peers = [sandbox.make_peer(name) for name in ("first", "second")]
    its = {"PLEXRL_TEST_ANTAGONIST": 96 << 20}
    first = cluster.run(work, "first", PLEXRL_TEST_PEER=peers[0], **its)
    cluster.wait_for("first", "running", beside=first)
    second = sandbox.shared(work, "second", PLEXRL_TEST_PEER=peers[1], **its)
    jobs = (first, second, metrics.process)

    def holds(expression):
        return bool(metrics.finds(expression))

    wait_until(lambda: holds("count(plexrl_job_share_ratio > 0) == 2"), "both jobs have had the GPU", beside=jobs)
    wait_until(lambda: holds('sum(plexrl_gpu_moved_bytes_total{direction="in"}) > 0'), "memory has moved", beside=jobs)
    wait_until(lambda: holds('plexrl_cluster_placements{state="running"} == 1'), "one is placed", beside=jobs)
    wait_until(lambda: holds("sum(plexrl_cluster_jobs) == 2"), "the cluster manager knows both", beside=jobs)
    wait_until(lambda: holds('plexrl_cluster_decisions_total{result="placed"} == on(instance) plexrl_cluster_decision_seconds_count'),
               "one decision, and its time", beside=jobs)

    waited_for = [*board_expressions(), *(without_condition(expression) for expression in alerts().values())]
    count = len(waited_for)

    def all_found():
        waited_for[:] = [expression for expression in waited_for if metrics.finds(expression) is None]
        return not waited_for

    wait_until(all_found, "every expression finds a series", beside=jobs, seen=lambda: str(waited_for))
    rules = lambda: [rule for group in metrics.ask("rules")["groups"] for rule in group["rules"]]  # noqa: E731
    wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), "all rules have been looked at", beside=jobs)
    expect("rules that failed", [rule["name"] for rule in rules() if rule["health"] != "ok"], [])
    expect("rules", sorted(rule["name"] for rule in rules()), sorted(alerts()))
    expect("series of the node that are not called simulated", metrics.finds('count({__name__=~"plexrl_(gpu|job).*", simulated!="true"})'), None)

    names = {re.sub("_(bucket|sum|count)$", "", name) for name in metrics.ask("label/__name__/values") if name.startswith("plexrl_")}
    expect("metrics and docs/monitoring.md", names ^ in_the_docs(r"\bplexrl_\w+"), set())

    for peer in peers:
        sandbox.stop_antagonist(peer)
    for job in (first, second):
        sandbox.wait(job)
    return f"{count} expressions"


CASES = {case.__name__: case for case in (files, live)}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
