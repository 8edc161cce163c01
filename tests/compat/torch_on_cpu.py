#!/usr/bin/env python3
"""The programs of tests/gpu/torch on Debian's PyTorch, which knows no GPU: their own logic, before a GPU is at hand.

Each must print the same bytes twice, and others for another seed; the GRPO loop must learn. Nothing here says anything about PlexRL:
that is what tools/gpu-validate does with them on a real GPU. torch.compile is skipped: Debian's version has none. Exit 0 passed, 1 failed, 77 skipped.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/validate"))
import checks  # noqa: E402

SKIPPED = 77
DEBIAN_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch is for
ROUNDS, LEARNING_ROUNDS = 5, 15


def run(python, name, seed, rounds=ROUNDS):
    """(exit status, stdout, stderr). The command is the one of tools/gpu-validate, but for what follows."""
    command = checks.torch_commands(python, ROOT / "tests/gpu/torch", name, ballast_mib=4)[0]
    command += ["--device", "cpu", "--pause-ms", 0, "--rounds", rounds, "--seed", seed]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def has_learned(output):
    rewards = [float(reward) for reward in re.findall(r"^reward \d+: (\S+)$", output, re.M)]
    return sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.2


def problem_of(python, name):
    """None, what is wrong, or why it was skipped."""
    status, output, errors = run(python, name, 1)
    if status == SKIPPED:
        return "skipped: " + errors.strip().splitlines()[-1]
    if status != 0 or not re.search(r"^version: ", errors, re.M):
        return f"ended with {status}: {errors[-800:]}"
    if run(python, name, 1)[:2] != (0, output):
        return "prints something else the second time"
    if run(python, name, 2)[1] == output:
        return "prints the same for another seed"
    if name == "grpo" and not has_learned(learned := run(python, name, 1, LEARNING_ROUNDS)[1]):
        return f"does not learn:\n{learned}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", help="not used")
    parser.add_argument("--python", default=DEBIAN_PYTHON, help="an interpreter with PyTorch (default: %(default)s)")
    parser.add_argument("names", nargs="*", help=f"of: {' '.join(checks.TORCH)} (default: all)")
    options = parser.parse_args()
    if subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print(f"skipped: {options.python} has no PyTorch (Debian's package python3-torch)")
        return SKIPPED
    # The allocators are a GPU's: without one their three rows are the same program.
    programs = {program: name for name, (program, _) in reversed(checks.TORCH.items())}
    failed = False
    for name in options.names or programs.values():
        problem = problem_of(options.python, name)
        failed |= problem is not None and not problem.startswith("skipped: ")
        print(f"{name}: {problem or 'passed'}", flush=True)
    return 1 if failed else 0


sys.exit(main())
