"""A tree as `cmake --install` makes it, in which a test build takes the place of a part."""
import pathlib
import shutil


def make(folder, build, preload=None, nodemgr=None):
    """Fills `folder`. Programs are copied, not linked: plexrl-run finds its preload beside its own file."""
    folder, build = pathlib.Path(folder), pathlib.Path(build).resolve()
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/plexrl").mkdir(parents=True)
    for program in ("plexrl-run", "plexrl-nodemgr", "plexrl-ctl", "plexrl-trace"):
        shutil.copy2(build / "bin" / program, folder / "bin" / program)
    if nodemgr:
        shutil.copy2(nodemgr, folder / "bin/plexrl-nodemgr")
    shutil.copy2(preload or build / "lib/plexrl/libplexrl.so", folder / "lib/plexrl/libplexrl.so")
    (folder / "lib/plexrl/simgpu").symlink_to(build / "lib/plexrl/simgpu")
    return folder
