"""usage: ray_workers.py ADDRESS WORKERS PIDS GO: actors that each hold some device memory, until the file GO is there. ADDRESS: of a Ray
cluster, or `local` to start one. Writes the actors' pids to the file PIDS."""
import ctypes
import json
import os
import sys
import time

import ray

BYTES = 1 << 20


class Worker:
    """Uses the driver API, as the CUDA runtime would."""

    def __init__(self, value):
        self.value = value
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context, self.memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.context = context
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(BYTES))
        self.call("cuMemsetD8_v2", self.memory, ctypes.c_ubyte(value), ctypes.c_size_t(BYTES))

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def pid(self):
        return os.getpid()

    def is_right(self):
        self.call("cuCtxSetCurrent", self.context)
        host = (ctypes.c_ubyte * BYTES)()
        self.call("cuMemcpyDtoH_v2", host, self.memory, ctypes.c_size_t(BYTES))
        return bytes(host) == bytes([self.value]) * BYTES


def main():
    address, workers, pids, go = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    # The job that plexrl-run has made of this process; LD_LIBRARY_PATH is where the simulated GPU's driver is.
    job = {name: value for name, value in os.environ.items() if name.startswith("PLEXRL_") or name in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    if address == "local":
        ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address=address, runtime_env={"env_vars": job}, log_to_driver=False)
    actors = [ray.remote(num_cpus=1)(Worker).remote(number + 1) for number in range(workers)]
    found = ray.get([actor.pid.remote() for actor in actors])
    with open(pids + ".tmp", "w", encoding="utf-8") as out:
        json.dump(found, out)
    os.rename(out.name, pids)
    while not os.path.exists(go):
        time.sleep(0.05)
    print("the bytes are right" if all(ray.get([actor.is_right.remote() for actor in actors])) else "the bytes are WRONG")


if __name__ == "__main__":
    main()
