"""The commands of README.md and docs/*.md: fenced blocks whose info string begins with `sh`.

    ```sh                 runs in a test (run_docs.py)
    ```sh needs=REASON    does not, because it needs something that the test has not; REASON is one of NEEDS
"""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS = {
    "root": "changes the machine",
    "service": "needs packages installed and systemd; package.* tests units and packages",
    "GPU": "needs an NVIDIA GPU",
    "Docker": "needs Docker; containers.* tests what it is told",
    "Podman": "needs Podman; containers.* tests what it is told",
    "terminal": "needs a terminal and somebody who ends it; top.* and trace.* run it",
    "long": "builds or tests all of the repository",
    "ray": "needs Ray; compat.ray_* runs it",
}
# Pages whose commands another test runs, by a rule of its own.
ELSEWHERE = {"slurm.md": "slurm.documented"}
PROGRAMS = re.compile(r"^(?:\$ |sudo |~/plexrl/bin/|build/release/bin/)*"
                      r"(?:plexrl-\w+|tools/\S+|cmake|docker|podman|systemctl|journalctl|apt|adduser|srun|sbatch|promtool|torchrun|ray|python3?)\s")


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int
    needs: str  # empty: it runs
    script: str

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    found, inside = [], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if inside is not None:
            if line.startswith("```"):
                found.append(inside)
                inside = None
            else:
                inside.script += line + "\n"
        elif line.startswith("```sh"):
            needs = re.fullmatch(r"```sh(?: needs=(\w+))?", line)
            if not needs or (needs.group(1) or "root") not in NEEDS:
                raise ValueError(f"{page.name}:{number}: '{line}': write ```sh, or ```sh needs= and one of {', '.join(NEEDS)}")
            inside = Block(page, number, needs.group(1) or "", "")
    return found


def unmarked(page):
    """Commands that stand in no such block, so that no test would see them; a synopsis ([--option]) is none."""
    is_inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            is_inside = not is_inside
        elif not is_inside and line.startswith("    ") and PROGRAMS.match(line.strip() + " ") and " [-" not in line:
            yield f"{page.name}:{number}: '{line.strip()}'"
