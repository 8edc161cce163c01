#!/usr/bin/env python3
"""A preload that can't be loaded breaks no process: the loader says so, and the program runs as without. usage: load_check.py PRELOAD

Tried: no such file, an empty one, text, one cut short in its header, one of another word size, one of another machine, and a folder. A second program
shows that the same preload, whole, loads without a word.
"""
import pathlib
import subprocess
import sys
import tempfile

CLASS, MACHINE = 4, 18  # offsets in an ELF header
PROGRAM = ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"]


def run(preload):
    done = subprocess.run(PROGRAM, env={"LD_PRELOAD": str(preload)}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def main():
    whole = pathlib.Path(sys.argv[1])
    image = bytearray(whole.read_bytes())
    other_class, other_machine = image.copy(), image.copy()
    other_class[CLASS] = 1  # ELFCLASS32
    other_machine[MACHINE] = 183  # EM_AARCH64
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = {"missing": None, "empty": b"", "text": b"not a library\n", "cut": image[:40], "class": other_class,
                 "machine": other_machine}
        (pathlib.Path(folder) / "folder").mkdir()
        for name, content in cases.items():
            if content is not None:
                (pathlib.Path(folder) / name).write_bytes(content)
        for name in [*cases, "folder"]:
            status, out, err = run(pathlib.Path(folder) / name)
            if (status, out) != (7, "out\n") or "err\n" not in err or "cannot be preloaded" not in err:
                print(f"{name}: ended with {status}, printed {out!r} and {err!r}")
                failed += 1
    if run(whole) != (7, "out\n", "err\n"):
        print(f"whole: {run(whole)}")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
