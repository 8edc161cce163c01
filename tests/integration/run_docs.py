#!/usr/bin/env python3
"""The commands that README.md and docs/*.md show, as a reader would type them.

marked: each stands in a block that says whether it can be run (doc_blocks.py), and programs and options of those that can't are there.
PAGE: those of one page, one block after the other, in a sandbox with a simulated GPU, a node manager, and a job `train` that runs all the time;
those of docs/cluster.md on a machine that has joined a cluster manager.
"""
import os
import pathlib
import re
import subprocess
import sys

import doc_blocks
import run_cluster
import run_placement
from sandbox import Failure, run_case, wait_until

# A job that ends by itself: it computes on the simulated GPU.
PROGRAM = """import os, sys
os.execv({rlvr!r}, ["rlvr", "--name", "a", "--steps", "2", "--state-bytes", str(1 << 20)])
"""


def marked(sandbox):
    wrong, seen = [], 0
    for page in doc_blocks.pages():
        if page.name not in doc_blocks.ELSEWHERE:
            wrong += [f"{line} is in no block of commands" for line in doc_blocks.unmarked(page)]
        for block in doc_blocks.blocks(page):
            seen += 1
            wrong += [f"{block}: {what}" for what in unknown_words(sandbox, block)]
    if wrong:
        raise Failure("\n".join(wrong))
    return f"{seen} blocks"


def help_of(sandbox, *words):
    done = subprocess.run([sandbox.prefix / "bin" / words[0], *words[1:], "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    return done.stdout if done.returncode == 0 else ""


def unknown_words(sandbox, block):
    """Programs of ours and their long options that are not there."""
    script = re.sub(r"\\\n\s*", " ", block.script)
    for command in re.split(r"\n|&&|\|\||;", re.sub(r"\s#\s.*", "", script)):
        for program, rest in re.findall(r"(?:^|\s|/)(plexrl-(?:run|ctl|trace|top|sim|nodemgr|clustermgr|observer))(?![.\w/-])((?:\s[^&|]*)?)", command)[:1]:
            if not (sandbox.prefix / "bin" / program).exists():
                yield f"there is no {program}"
                continue
            own = rest.split(" -- ")[0]
            verb = own.split()[:1] if own.split() and re.fullmatch(r"[a-z]+", own.split()[0]) else []
            known = help_of(sandbox, program) + help_of(sandbox, program, *verb)
            if len(own.split()) > 1 and re.fullmatch(r"[a-z]+", own.split()[1]):
                known += help_of(sandbox, program, *own.split()[:2])
            if verb in (["cluster"], ["placement"]):  # plexrl-ctl becomes this one
                known += help_of(sandbox, "../lib/plexrl/plexrl-cluster-client")
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", own):
                if not re.search(rf"{option}\b", known):
                    yield f"{program} has no {option}"


def stage(sandbox):
    """What a reader has: PlexRL in the path and in ~/plexrl, programs to run, and a folder of their own."""
    here = sandbox.folder / "here"
    (here / "build").mkdir(parents=True)
    (here / "build/release").symlink_to(sandbox.build)
    (here / "tools").symlink_to(doc_blocks.ROOT / "tools")
    for name in ("train.py", "train_a.py", "train_b.py"):
        (here / name).write_text(PROGRAM.format(rlvr=str(sandbox.build / "tests/bin/rlvr")))
    programs = sandbox.folder / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "torchrun").write_text(f"#!/bin/sh\nexec {sys.executable} {doc_blocks.ROOT}/tests/integration/torchrun_stand_in.py \"$@\"\n")
    (programs / "torchrun").chmod(0o755)
    environment = sandbox.environment()
    environment["PATH"] = f"{programs}:{sandbox.prefix}/bin:{environment['PATH']}"
    environment["PLEXRL_CONFIG"] = str(here / "nodemgr.toml")
    (here / "nodemgr.toml").write_text("")
    return here, environment


def cluster_stage(sandbox):
    """Of docs/cluster.md: a cluster manager, and this machine as its node. Returns what has another name there, and the environment."""
    sandbox.gpus = 2
    cluster = run_placement.Cluster(sandbox)
    return ({"head.cluster:7460": f"127.0.0.1:{cluster.manager.port}", "60GiB": "64MiB"},
            dict(run_cluster.joining(cluster.manager), PLEXRL_TLS_DIR=str(cluster.manager.authority / cluster.me), PLEXRL_SLURM="no"))


def run_blocks(sandbox, todo, here, environment, names=()):
    for number, block in enumerate(todo):
        script = block.script
        for name in names:
            script = script.replace(name, names[name])
        # Each line as typed: one that fails ends it, and so does one in the background, which is waited for.
        done = sandbox.start(["bash", "-c", f"set -eu\n{script}\nfor job in $(jobs -p); do wait $job; done\n"], environment, f"block-{number}",
                             cwd=here)
        try:
            sandbox.wait(done)
        except Failure as failure:
            raise Failure(f"{block}: {failure}\n{sandbox.output(f'block-{number}').read_text()[-2000:]}") from None
    return f"{len(todo)} blocks"


def cluster_page(sandbox):
    here, environment = stage(sandbox)
    names, more = cluster_stage(sandbox)
    environment.update({name: str(value) for name, value in more.items()}, PLEXRL_SIMGPU=sandbox.spec())
    return run_blocks(sandbox, [block for block in doc_blocks.blocks(doc_blocks.ROOT / "docs/cluster.md") if not block.needs], here, environment, names)


def page_case(page):
    def case(sandbox):
        todo = [block for block in doc_blocks.blocks(page) if not block.needs]
        here, environment = stage(sandbox)
        sandbox.start_manager(PLEXRL_CONFIG=here / "nodemgr.toml")
        train = sandbox.shared([sandbox.build / "tests/bin/rlvr", "--name", "train", "--steps", "1000000", "--tool-ms", "20",
                                "--state-bytes", str(1 << 20)], "train",
                               options=("--memory", "16MiB"))
        wait_until(lambda: any(gang["state"] == "running" for job in sandbox.ask_manager("jobs")["jobs"] for gang in job["gangs"]),
                   "the job of the stage runs", beside=train)
        # The manager writes its trace a second at a time; a reader has had one for long.
        wait_until(lambda: "train" in subprocess.run(["plexrl-trace", "summary"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                                     text=True, check=False).stdout,
                   "the trace tells of the job", beside=train)
        found = run_blocks(sandbox, todo, here, environment)
        if train.poll() is not None:
            raise Failure(f"the job of the stage ended with {train.returncode}: {sandbox.errors('train')}")
        return found

    return case


CASES = {"marked": marked, "cluster": cluster_page}
for one in doc_blocks.pages():
    if one.name not in (*doc_blocks.ELSEWHERE, "cluster.md") and any(not block.needs for block in doc_blocks.blocks(one)):
        CASES[one.stem.lower()] = page_case(one)

if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CASES))
        sys.exit(0)
    sys.exit(run_case(__doc__, CASES, spec="", memory="512MiB"))
