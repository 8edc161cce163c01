"""The machine that a pack is run on: its GPU, how much of it to use, until when, and where its libraries are."""
import ctypes
import functools
import glob
import os
import pathlib
import re
import subprocess
import sys
import time

PACK = pathlib.Path(__file__).resolve().parents[1]


@functools.cache
def nvml():
    """(the library, its handle of the GPU that CUDA programs get first), or None. No context is made."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle = ctypes.c_void_p()
    if library.nvmlInit_v2() != 0:
        return None
    # As CUDA numbers them with CUDA_DEVICE_ORDER=PCI_BUS_ID, which run.py sets.
    first = visible_gpus()[0] if visible_gpus() else "0"
    if first.isdigit():
        found = library.nvmlDeviceGetHandleByIndex_v2(int(first), ctypes.byref(handle))
    else:
        found = library.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(handle))
    return (library, handle) if found == 0 else None


def visible_gpus():
    """The words of CUDA_VISIBLE_DEVICES, or none where it is not set: all are visible."""
    return [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]


def memory():
    """(total, free, used) bytes of that GPU, by all processes."""
    library, handle = nvml()
    told = (ctypes.c_ulonglong * 3)()
    library.nvmlDeviceGetMemoryInfo(handle, told)
    return tuple(told)


def used_bytes():
    return memory()[2]


def find_gpu():
    """(name, total bytes, driver version, how many are visible) of that GPU, or None."""
    if nvml() is None:
        return None
    library, handle = nvml()
    name, version, count = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96), ctypes.c_uint()
    library.nvmlDeviceGetName(handle, name, 96)
    library.nvmlSystemGetDriverVersion(version, 96)
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return name.value.decode(), memory()[0], version.value.decode(), len(visible_gpus()) or count.value


LONGEST_COMMAND_S = 150  # on a real GPU: what takes longer hangs


class Machine:
    """`mib` is what programs take for a MiB: less on a small GPU. No command runs on when the time is up."""

    def __init__(self, gpu, out, small=False, python=sys.executable, time_limit_s=540):
        self.gpu, self.devices = gpu[0], gpu[3]
        self.simulated = self.gpu.startswith("PlexRL Simulated")
        self.mib = (1 << 20) // (16 if small else 1)
        self.sessions = out / "sessions"
        self.programs = PACK / "programs"
        self.python = python
        self.deadline = time.monotonic() + time_limit_s

    def left_s(self):
        return self.deadline - time.monotonic()

    def command_s(self):
        """How long a command may run that is started now."""
        return max(1.0, self.left_s() if self.simulated else min(self.left_s(), LONGEST_COMMAND_S))


TORCH_PROBE = """
import sys
try:
    import torch
except ImportError as error:
    sys.exit(f"no PyTorch in {sys.executable}: {error}")
if not torch.cuda.is_available():
    sys.exit(f"PyTorch {torch.__version__} in {sys.executable} finds no GPU that it can use")
"""


def why_no_torch(python):
    """None where this interpreter's PyTorch can use the GPU, else the reason in a line."""
    try:
        asked = subprocess.run([python, "-c", TORCH_PROBE], capture_output=True, text=True, check=False, timeout=LONGEST_COMMAND_S)
    except subprocess.TimeoutExpired:
        return f"PyTorch in {python} does not tell within {LONGEST_COMMAND_S} s whether it can use the GPU"
    return None if asked.returncode == 0 else (asked.stderr.strip().splitlines() or ["PyTorch ended without a word"])[-1]


def find_library(stem, python):
    """The path of the newest `lib<stem>.so.N` here, or None: among what the loader knows, CUDA toolkits, and the wheels of `python`."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.findall(rf"lib{stem}\.so\.\d+ .*=> (/\S+)", listed)
    asked = subprocess.run([python, "-c", "import sys; print(*sys.path, sep='\\n')"], capture_output=True, text=True, check=False)
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), "/usr/local/cuda/lib64", "/usr/local/cuda*/lib64"]
    folders += [f"{entry}/nvidia/*/lib" for entry in asked.stdout.splitlines() if entry]
    for folder in filter(None, folders):
        found += glob.glob(f"{folder}/lib{stem}.so.*")
    numbered = [(int(match[1]), path) for path in found if (match := re.search(r"\.so\.(\d+)$", path))]
    return max(numbered)[1] if numbered else None
