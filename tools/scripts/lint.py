#!/usr/bin/env python3
"""tools/dev lint: formatting, clang-tidy, and the rules of this tree that no other tool checks.

The tree's rules are in `INCLUDES` (which folder may include which), `FORBIDDEN` and `check_tree`. Each finding is one line,
`file:line: what`. Exit 0 when there is none, 1 otherwise.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = (".cc", ".h", ".cu", ".c")
MAX_LINES = 600

# folder -> prefixes that its quoted includes may have, longest folder first. A folder may always include itself.
INCLUDES = {
    "tools/simgpu/ptx": [],
    "tools/simgpu/driver": ["tools/simgpu/", "shim/chunk_hash.h"],
    "tools/simgpu": [],
    "tools/sim": ["tools/cli/", "nodemgr/policy/", "nodemgr/settings/", "clustermgr/placement/"],
    "tools/cluster": ["tools/cli/", "tools/ctl/", "tools/slurm/", "clustermgr/", "proto/", "nodemgr/settings/", "nodemgr/ids.h",
                      "nodemgr/log.h"],
    "tools": ["proto/", "shim/wire.h", "nodemgr/", "clustermgr/tls/", "interpose/settings.h"],
    "interpose": [],
    "shim": ["interpose/"],
    "nodemgr/policy": [],
    "nodemgr/spanning": ["nodemgr/policy/"],
    "nodemgr/disk": ["nodemgr/settings/", "nodemgr/scoped_fd.h"],
    "nodemgr/bpf": ["nodemgr/settings/", "nodemgr/clock.h", "nodemgr/daemon_start.h", "nodemgr/log.h", "nodemgr/process_identity.h",
                    "nodemgr/scoped_fd.h"],
    "clustermgr/placement": ["nodemgr/policy/"],
    "clustermgr/tls": ["nodemgr/settings/", "nodemgr/scoped_fd.h"],
    "clustermgr": ["proto/", "nodemgr/policy/", "nodemgr/spanning/", "nodemgr/settings/", "nodemgr/daemon_start.h", "nodemgr/ids.h", "nodemgr/log.h",
                   "nodemgr/service_manager.h"],
    "nodemgr": ["proto/", "shim/wire.h", "interpose/settings.h"],
    "proto": [],
}

# What a source must not say, with the reason. Split strings, so that this file passes.
FORBIDDEN = [
    (re.compile("TO" + "DO|FIX" + "ME"), "finish it, or say in a README what is missing"),
    (re.compile("/wo" + "rk/"), "a path of one machine"),
    (re.compile(r"\.\./sha" + "red"), "a path of one machine"),
]



def git(*args):
    return subprocess.run(["git", "-C", ROOT, *args], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\0")


def tracked():
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [n for n in names if n and (ROOT / n).is_file()]


def changed(files):
    base = subprocess.run(["git", "-C", ROOT, "merge-base", "HEAD", "main"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    since = base.stdout.strip() if base.returncode == 0 else "HEAD"
    names = set(git("diff", "-z", "--name-only", since)) | set(git("ls-files", "-z", "--others", "--exclude-standard"))
    return [f for f in files if f in names]


def folder_rule(name):
    for folder in sorted(INCLUDES, key=len, reverse=True):
        if name.startswith(folder + "/"):
            return folder, INCLUDES[folder]
    return None, []


def check_includes(name, lines):
    folder, allowed = folder_rule(name)
    if folder is None:
        return
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        path = match.group(1)
        if path.startswith("../"):
            yield f"{name}:{number}: include \"{path}\" from the root of the tree"
        elif not (ROOT / path.split("/")[0]).is_dir():
            continue  # a library's
        elif not path.startswith(folder + "/") and not any(path.startswith(prefix) for prefix in allowed):
            yield f"{name}:{number}: {folder} may not include \"{path}\" (docs/architecture.md, Parts)"


def check_words(name, lines):
    for number, line in enumerate(lines, 1):
        for pattern, why in FORBIDDEN:
            if pattern.search(line):
                yield f"{name}:{number}: '{pattern.search(line).group(0)}': {why}"


def check_file(name, lines):
    if len(lines) > MAX_LINES:
        yield f"{name}:{len(lines)}: longer than {MAX_LINES} lines"
    stem = pathlib.Path(name).stem
    if stem in ("utils", "util", "common", "misc", "helpers"):
        yield f"{name}:1: name the thing, not '{stem}'"
    if name.endswith(".h") and not any(line.startswith("#pragma once") for line in lines):
        yield f"{name}:1: no #pragma once"


def check_tree(files):
    folders = {str(pathlib.Path(f).parent) for f in files if f.endswith((".cc", ".h"))}
    for folder in sorted(folders):
        if folder.startswith("tests/unit"):
            continue
        here = pathlib.Path(folder)
        if not any((ROOT / parent / "README.md").is_file() for parent in [here, *here.parents][:2] if str(parent) != "."):
            yield f"{folder}/:1: no README.md in the folder or the one above"


def own_rules(files):
    for name in files:
        if not name.endswith((*SOURCES, ".py", ".def", ".inc", ".txt", ".cmake", ".md", ".proto")):
            continue
        lines = (ROOT / name).read_text(encoding="utf-8", errors="replace").splitlines()
        yield from check_words(name, lines)
        if name.endswith(SOURCES):
            yield from check_file(name, lines)
            yield from check_includes(name, lines)
    yield from check_tree(files)


def check_format(files):
    sources = [f for f in files if f.endswith(SOURCES)]
    if not sources:
        return
    done = subprocess.run(["clang-format", "--dry-run", *sources], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    seen = set()
    for line in done.stderr.splitlines():
        match = re.match(r"([^:]+):(\d+):\d+: warning: code should be clang-formatted", line)
        if match and match.group(1) not in seen:
            seen.add(match.group(1))
            yield f"{match.group(1)}:{match.group(2)}: not as clang-format has it (clang-format -i {match.group(1)})"


def check_tidy(files, build):
    known = (build / "compile_commands.json").read_text(encoding="utf-8")
    sources = [f for f in files if f.endswith(".cc") and str(ROOT / f) in known]
    if not sources:
        return
    done = subprocess.run(["clang-tidy", "-p", build, "--quiet", "--warnings-as-errors=*", *sources], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in dict.fromkeys(done.stdout.splitlines()):
        match = re.match(r"(.*?:\d+):\d+: (?:error|warning): (.*)", line)
        if match:
            yield f"{match.group(1).removeprefix(str(ROOT) + '/')}: {match.group(2)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--scope", choices=["changed", "all"], default="changed")
    args = parser.parse_args()
    files = tracked()
    findings = [*own_rules(files), *check_format(files),
                *check_tidy(files if args.scope == "all" else changed(files), args.build)]
    for finding in findings:
        print(finding)
    print(f"lint: {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main())
