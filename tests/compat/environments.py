"""The Python environments that `tools/dev venv NAME` makes of requirements-NAME.txt."""
import hashlib
import os
import pathlib
import sys

SKIPPED = 77


def python(name):
    """The interpreter of the environment, a path. Ends this test as skipped, with the reason, if there is none as pinned now."""
    requirements = pathlib.Path(__file__).resolve().parent / f"requirements-{name}.txt"
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "plexrl" / f"venv-{name}"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    try:
        made_of = (folder / "made_of").read_text().split()
    except FileNotFoundError:
        made_of = []
    if wanted not in made_of:
        print(f"skipped: no environment as {requirements.name} pins it in {folder}: run tools/dev venv {name}")
        sys.exit(SKIPPED)
    return folder / "bin/python"
