"""The shim's objects call the driver through plexrl::driver only.

A bare cuMemMap inside the shim would be the exported wrapper, or another library's. So no object may
need a cu*, nvml*, nccl* or ibv_* symbol of C linkage. Nor does it look into other processes: containers
forbid that.

usage: symbols_check.py NM OBJECT...
"""
import re
import subprocess
import sys

FOREIGN = re.compile(r"^(cu[A-Z]|nvml[A-Z]|p?nccl[A-Z]|ibv_|ptrace$|pidfd_getfd$|process_vm_)")


def main() -> int:
    nm, *objects = sys.argv[1:]
    if not objects:
        print("no objects given", file=sys.stderr)
        return 2
    bad = []
    for path in objects:
        out = subprocess.run([nm, "--undefined-only", "--format=posix", path],
                             check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            if line and FOREIGN.match(line.split()[0]):
                bad.append(f"{path}: needs {line.split()[0]}")
    print("\n".join(bad) if bad else f"{len(objects)} objects need none")
    return 1 if bad else 0


sys.exit(main())
