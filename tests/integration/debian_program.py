"""Programs of Debian packages that start a daemon when they are installed, so that tools/dev only unpacks them."""
import os
import pathlib
import shutil
import sys

from sandbox import SKIPPED


def find(name, package):
    """Where it is: installed, or where tools/dev has unpacked it. Ends the test as skipped without it."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    unpacked = cache / "plexrl" / package / "usr/bin" / name
    found = shutil.which(name) or (str(unpacked) if unpacked.exists() else None)
    if found is None:
        print(f"skipped: {name} is neither installed nor in {unpacked.parent} (tools/dev test brings it)")
        sys.exit(SKIPPED)
    return found
