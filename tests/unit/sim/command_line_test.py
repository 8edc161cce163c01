"""plexrl-sim as users call it: exit codes, one JSON object on stdout, files written, the same for the same seed."""

import json
import os
import subprocess
import sys
import tempfile

SIM = sys.argv[1]

JOB = {
    "name": "grpo", "count": 3, "every_s": 50, "steps": 10, "max_slowdown": 1.3,
    "gangs": [{"name": "rollout", "pool": "h100", "gpus": 8, "hbm_bytes": 60e9},
              {"name": "train", "pool": "h100", "gpus": 8, "hbm_bytes": 60e9}],
    "stages": [{"name": "rollout", "gangs": ["rollout"], "time": {"kind": "lognormal", "mean_s": 100, "cv": 0.1}},
               {"name": "train", "gangs": ["train"], "time": 90}],
}
WORKLOAD = {"schema": 1, "name": "small", "seed": 7,
            "policy": {"min_quantum_s": 1800, "max_wait_s": 470},
            "nodes": [{"pool": "h100", "gpus": 8, "count": 6, "tier_bytes": 2e12}],
            "placement": {"schedulers": ["plexrl", "isolated"]}, "jobs": [JOB]}


def run(*args):
    return subprocess.run([SIM, *args], capture_output=True, text=True)


def without_times(report):
    return {key: value for key, value in report.items() if key not in ("wall_s", "events_per_s")}


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "w.json")
        with open(path, "w") as file:
            json.dump(WORKLOAD, file)
        csv, html = os.path.join(folder, "w.csv"), os.path.join(folder, "w.html")
        done = run("run", path, "--json", "--csv", csv, "--html", html)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["simulated"] is True and report["schema"] == 1
        assert [one["scheduler"] for one in report["runs"]] == ["plexrl", "isolated"]
        hours = {row["name"]: row["value"] for row in report["rows"]}
        assert hours["plexrl: GPU hours"] < hours["isolated: GPU hours"]
        for row in report["rows"]:
            assert row["simulated"] is True and (row["met"] is None) == (row["goal"] is None), row
        page = open(html).read()
        assert "simulated" in page and "http://" not in page and "https://" not in page
        assert open(csv).read().count("\n") == len(report["rows"]) + 1
        again = json.loads(run("run", path, "--json").stdout)
        assert without_times(again) == without_times({**report}), "not deterministic"
        other = json.loads(run("run", path, "--json", "--seed", "8").stdout)
        assert other["rows"] != report["rows"]

        with open(path, "w") as file:
            json.dump({**WORKLOAD, "polic": {}}, file)
        bad = run("run", path)
        assert bad.returncode == 2 and "did you mean" in bad.stderr and not bad.stdout, bad

    assert run("run", "/nonexistent/file").returncode == 2
    assert run("frob").returncode == 2
    assert run().returncode == 2
    assert run("reproduce", "rolmux").returncode == 2
    assert run("reproduce", "plexrl-paper", "--seeds", "0").returncode == 2
    helped = run("--help")
    assert helped.returncode == 0 and "simulated" in helped.stdout


main()
