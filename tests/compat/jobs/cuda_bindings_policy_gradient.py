"""Trains a policy by cuda.bindings, the driver API as Python functions: NVRTC, a module, a context of its own, plain and stream-ordered
memory, events, kernel launches and a graph built node by node. Ends well only if it has learned to answer."""
import ctypes
import os

import numpy as np
from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

import policy_kernels as policy
from service import ANSWERS, Service, digest

INT, UNSIGNED, POINTER = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p


def check(result):
    """What a call answered, without its status; which must be success."""
    status, *values = result
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else values


def compile_ptx(source, arch):
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"policy.cu", 0, [], []))
    options = [f"--gpu-architecture=compute_{arch}".encode(), b"--std=c++17"]
    if int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]) != 0:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx


class Kernel:
    def __init__(self, module, name, shape, *kinds):
        self.function, self.kinds = check(cu.cuModuleGetFunction(module, name.encode())), kinds
        self.grid, self.block = shape["grid"], shape["block"]

    def arguments(self, values):
        return tuple(int(value) for value in values), self.kinds

    def launch(self, stream, *values):
        check(cu.cuLaunchKernel(self.function, self.grid, 1, 1, self.block, 1, 1, 0, stream, self.arguments(values), 0))

    def node(self, *values):
        node = cu.CUDA_KERNEL_NODE_PARAMS()
        node.func = self.function
        node.gridDimX, node.gridDimY, node.gridDimZ = self.grid, 1, 1
        node.blockDimX, node.blockDimY, node.blockDimZ = self.block, 1, 1
        node.kernelParams = self.arguments(values)
        return node


def read(pointer, count, kind, stream):
    array = np.empty(count, kind)
    check(cu.cuMemcpyDtoHAsync(array.ctypes.data, pointer, array.nbytes, stream))
    check(cu.cuStreamSynchronize(stream))
    return array


def main():
    seed = int(os.environ["JOB_SEED"])
    service = Service(f"seed{seed}")
    check(cu.cuInit(0))
    device = check(cu.cuDeviceGet(0))
    context = check(cu.cuCtxCreate(None, 0, device))
    capability = cu.CUdevice_attribute
    arch = (10 * check(cu.cuDeviceGetAttribute(capability.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
            + check(cu.cuDeviceGetAttribute(capability.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)))
    module = check(cu.cuModuleLoadData(compile_ptx(policy.SOURCE, arch)))
    judge = Kernel(module, "judge", policy.JUDGE, POINTER, POINTER, POINTER, POINTER)
    sample = Kernel(module, "sample", policy.SAMPLE, POINTER, POINTER, UNSIGNED, POINTER)
    learn = Kernel(module, "learn", policy.LEARN, *[POINTER] * 6)
    advance = Kernel(module, "advance", {"grid": 1, "block": 1}, POINTER)

    stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    copies = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    loaded = policy.make_prompts(seed)
    prompts = check(cu.cuMemAlloc(loaded.nbytes))
    check(cu.cuMemcpyHtoDAsync(prompts, loaded.ctypes.data, loaded.nbytes, copies))
    copied = check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    check(cu.cuEventRecord(copied, copies))
    check(cu.cuStreamWaitEvent(stream, copied, 0))
    members = policy.BATCH * policy.GROUP
    weights, likely, answers, step_number = (check(cu.cuMemAlloc(4 * count)) for count in
                                             (policy.FEATURES * ANSWERS, policy.BATCH * ANSWERS, members, 1))
    check(cu.cuMemsetD32Async(weights, 0, policy.FEATURES * ANSWERS, stream))
    check(cu.cuMemsetD32Async(step_number, 0, 1, stream))

    graph = check(cu.cuGraphCreate(0))
    first = check(cu.cuGraphAddKernelNode(graph, [], 0, judge.node(prompts, step_number, weights, likely)))
    check(cu.cuGraphAddKernelNode(graph, [first], 1, sample.node(likely, step_number, seed, answers)))
    answering = check(cu.cuGraphInstantiate(graph, 0))

    for step in range(policy.STEPS):
        check(cu.cuGraphLaunch(answering, stream))
        rewards = policy.verified(service, step, read(answers, members, np.int32, stream))
        got = check(cu.cuMemAllocAsync(rewards.nbytes, stream))
        check(cu.cuMemcpyHtoDAsync(got, rewards.ctypes.data, rewards.nbytes, stream))
        learn.launch(stream, prompts, step_number, weights, likely, answers, got)
        advance.launch(stream, step_number)
        check(cu.cuMemFreeAsync(got, stream))
        now = read(weights, policy.FEATURES * ANSWERS, np.float32, stream)
        service.log(step, weights=np.abs(now).sum(), reward=rewards.mean())
    print("weights", digest(now), "prompts", digest(read(prompts, loaded.size, np.float32, stream)))
    for pointer in (prompts, weights, likely, answers, step_number):
        check(cu.cuMemFree(pointer))
    check(cu.cuGraphExecDestroy(answering))
    check(cu.cuCtxDestroy(context))
    assert rewards.mean() > 0.9, f"it has not learned: the mean reward is {rewards.mean()}"


main()
