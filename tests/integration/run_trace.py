#!/usr/bin/env python3
"""plexrl-trace and what real node managers write.

live: with --follow each line is a whole summary, and tells of a job while it runs and of its end, also of the next manager's run. nodes: two
nodes' traces, read as one. long, longest: a trace of some hundred thousand records, and of ten million, in memory that does not grow
with it.
"""
import json
import os
import subprocess
import sys

from sandbox import Failure, run_case, wait_until


class Followed:
    """What `plexrl-trace VERB --follow --json` says."""

    def __init__(self, sandbox, verb):
        self.sandbox, self.name = sandbox, verb
        self.process = sandbox.start([sandbox.prefix / "bin/plexrl-trace", verb, "--follow", "--json", sandbox.state / "trace"],
                                     sandbox.environment(), verb)

    def objects(self):
        """Of all lines that are whole."""
        return [json.loads(line) for line in self.sandbox.output(self.name).read_text().splitlines(keepends=True) if line.endswith("\n")]

    def last(self):
        return (self.objects() or [None])[-1]


def live(sandbox):
    followed = Followed(sandbox, "summary")
    wait_until(lambda: "waiting for one" in sandbox.errors("summary"), "it waits for a run", beside=followed.process)
    sandbox.start_manager()
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    work = f"{sandbox.build}/tests/bin/rlvr --name a --steps 1 --state-bytes {1 << 20}"
    job = sandbox.shared(["/bin/sh", "-c", f"{work} && read line < {fifo} && {work}"], "job")

    def held_s():
        last = followed.last()
        jobs = last["summary"]["jobs"] if last else []
        return jobs[0]["held_s"] if jobs else 0

    wait_until(lambda: held_s() > 0, "the job is told of while it runs", beside=(job, followed.process))
    before = held_s()
    fifo.write_text("\n")
    sandbox.wait(job)
    wait_until(lambda: held_s() > before, "and what came of it", beside=followed.process)
    sandbox.stop_manager()
    lines = len(followed.objects())
    sandbox.start_manager("next")
    other = sandbox.shared(["/bin/sh", "-c", work], "other")
    sandbox.wait(other)
    wait_until(lambda: [its["name"] for its in followed.last()["summary"]["jobs"]] == ["other"], "the next run is followed",
               beside=followed.process)
    for told in followed.objects():
        if (told["schema"], told["simulated"]) != (1, True) and told["summary"]["jobs"]:
            raise Failure(f"head of a line: {told}")
    if len(followed.objects()) <= lines:
        raise Failure("the next run has no line of its own")

    text = subprocess.run([sandbox.prefix / "bin/plexrl-trace", "summary", "--follow", sandbox.output("summary")], env=sandbox.environment(),
                          stderr=subprocess.PIPE, text=True, check=False)
    if text.returncode != 2 or "is no folder" not in text.stderr:
        raise Failure(f"a file that is followed: {text.returncode} {text.stderr}")
    return f"{len(followed.objects())} lines"


def nodes(sandbox):
    runs, node_jobs = [], {"a1": "first", "a2": "second"}
    for node, job in node_jobs.items():
        sandbox.state = sandbox.folder / f"state-{node}"
        sandbox.state.mkdir()
        sandbox.start_manager(node, PLEXRL_NODE=node)
        sandbox.wait(sandbox.shared([sandbox.build / "tests/bin/rlvr", "--name", "a", "--steps", "1", "--state-bytes", str(1 << 20)], job))
        sandbox.stop_manager()
        runs.append(sandbox.state / "trace")
    alone = [sandbox.tool("plexrl-trace", "summary", "--json", run)["summary"]["jobs"] for run in runs]
    both = sandbox.tool("plexrl-trace", "summary", "--json", *runs)
    if both["node"] != "a1, a2" or [(gpu["index"], gpu["name"][:4]) for gpu in both["summary"]["gpus"]] != [(0, "a1: "), (1, "a2: ")]:
        raise Failure(f"nodes and GPUs: {both}")
    if both["summary"]["jobs"] != alone[0] + alone[1]:
        raise Failure(f"jobs are as each node's own trace has them: {both['summary']['jobs']}, not {alone}")
    swaps = sandbox.tool("plexrl-trace", "swaps", "--json", *runs)["swaps"]
    order = [swap["gpu"] for swap in swaps]
    if set(order) != {0, 1} or order != sorted(order):
        raise Failure(f"the first node's switches came first: {swaps}")
    return "one time line"


def peak_bytes(sandbox, *words):
    """Of plexrl-trace, and what it printed."""
    with open(sandbox.folder / "shown", "w+", encoding="utf-8") as shown:
        process = subprocess.Popen([sandbox.prefix / "bin/plexrl-trace", *words], stdout=shown, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 or errors:
            raise Failure(f"{words} ended with {process.returncode}: {errors.decode()}")
        shown.seek(0)
        return used.ru_maxrss * 1024, json.loads(shown.read())


def long_trace(sandbox, records):
    """The memory that is used for a trace of so many records is what is used for a quarter of it."""
    most_bytes, found = 256 << 20, []
    for name, count in (("quarter", records // 4), ("all", records)):
        subprocess.run([sandbox.build / "tests/bench/make_trace", sandbox.folder / name, str(count)], check=True)
    for verb in ("summary", "gaps"):
        (quarter, before), (whole, shown) = (peak_bytes(sandbox, verb, "--json", sandbox.folder / name) for name in ("quarter", "all"))
        if whole > most_bytes or whole > 1.3 * quarter:
            raise Failure(f"{verb}: {whole >> 20} MiB for {records} records, {quarter >> 20} MiB for a quarter of them")
        if verb == "summary" and not 3 < sum(gpu["swaps"] for gpu in shown["summary"]["gpus"]) / sum(
                gpu["swaps"] for gpu in before["summary"]["gpus"]) < 5:
            raise Failure("the whole trace has not four times the switches of its quarter")
        found.append(f"{verb} {whole >> 20} MiB, of a quarter {quarter >> 20} MiB")
    return ", ".join(found)


CASES = {case.__name__: case for case in (live, nodes)}
CASES["long"] = lambda sandbox: long_trace(sandbox, 1_200_000)
CASES["longest"] = lambda sandbox: long_trace(sandbox, 10_000_000)

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
