"""Trains a policy by cuda.core: programs compiled by NVRTC, streams and events, a graph captured once and launched each step, a memory
pool of its own, pinned memory, and prompts in memory that it maps itself (VMM). Ends well only if it has learned to answer."""
import os

import numpy as np
from cuda.core import (Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LaunchConfig, LegacyPinnedMemoryResource, Program,
                       ProgramOptions, VirtualMemoryResource, launch)

import policy_kernels as policy
from service import ANSWERS, Service, digest


def main():
    seed = int(os.environ["JOB_SEED"])
    service = Service(f"seed{seed}")
    device = Device()
    device.set_current()
    stream, copies = device.create_stream(), device.create_stream()
    program = Program(policy.SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    code = program.compile("ptx")
    judge, sample, learn, advance = (code.get_kernel(name) for name in ("judge", "sample", "learn", "advance"))

    host = LegacyPinnedMemoryResource()
    def pinned(count, kind):
        return np.from_dlpack(host.allocate(4 * count)).view(kind)

    loaded = pinned(policy.PROMPTS * policy.FEATURES, np.float32)
    loaded[:] = policy.make_prompts(seed).reshape(-1)
    prompts = VirtualMemoryResource(device).allocate(loaded.nbytes)
    device_memory = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    answers, rewards = pinned(policy.BATCH * policy.GROUP, np.int32), pinned(policy.BATCH * policy.GROUP, np.float32)
    weights = device_memory.allocate(4 * policy.FEATURES * ANSWERS, stream=stream)
    likely = device_memory.allocate(4 * policy.BATCH * ANSWERS, stream=stream)
    said = device_memory.allocate(answers.nbytes, stream=stream)
    got = device_memory.allocate(rewards.nbytes, stream=stream)
    step_number = device_memory.allocate(4, stream=stream)
    for buffer in (weights, step_number):
        buffer.fill(0, stream=stream)
    copy(prompts, loaded, copies)
    stream.wait(copies.record())

    answering = stream.create_graph_builder().begin_building()
    launch(answering, LaunchConfig(**policy.JUDGE), judge, prompts, step_number, weights, likely)
    launch(answering, LaunchConfig(**policy.SAMPLE), sample, likely, step_number, np.uint32(seed), said)
    answering = answering.end_building().complete()

    for step in range(policy.STEPS):
        answering.launch(stream)
        copy(answers, said, stream)
        stream.sync()
        rewards[:] = policy.verified(service, step, answers)
        copy(got, rewards, stream)
        launch(stream, LaunchConfig(**policy.LEARN), learn, prompts, step_number, weights, likely, said, got)
        launch(stream, LaunchConfig(grid=1, block=1), advance, step_number)
        service.log(step, weights=np.abs(read(weights, stream)).sum(), reward=rewards.mean())
    print("weights", digest(read(weights, stream)), "prompts", digest(read(prompts, stream)))
    assert rewards.mean() > 0.9, f"it has not learned: the mean reward is {rewards.mean()}"


def copy(to, source, stream):
    """Between a buffer of the device and an array of the host, either way."""
    from cuda.bindings import driver
    if isinstance(to, np.ndarray):
        result, = driver.cuMemcpyDtoHAsync(to.ctypes.data, int(source.handle), to.nbytes, int(stream.handle))
    else:
        result, = driver.cuMemcpyHtoDAsync(int(to.handle), source.ctypes.data, source.nbytes, int(stream.handle))
    assert result == driver.CUresult.CUDA_SUCCESS, result


def read(buffer, stream):
    array = np.empty(buffer.size // 4, np.float32)
    copy(array, buffer, stream)
    stream.sync()
    return array


main()
