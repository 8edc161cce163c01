"""A program as frameworks on the plain driver API are: ctypes, NVRTC, launches by `extra`, graphs built by hand.

usage: ctypes_test.py LIBCUDA LIBNVRTC

The calls are those that tinygrad's CUDA device makes: old names by dlsym, no cuGetProcAddress, no streams, arguments of
kernels and of graph nodes as a buffer, two devices with peer copies.
"""

import ctypes
import os
import struct
import sys

COUNT = 1000
SOURCE = b"""
extern "C" __global__ void axpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


def load(path):
    if not os.path.exists(path):
        print(f"skipped: {path} is not there")
        sys.exit(77)
    return ctypes.CDLL(path)


class Driver:
    """Calls that must succeed."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            if result != 0:
                text = ctypes.c_char_p()
                self.library.cuGetErrorString(result, ctypes.byref(text))
                sys.exit(f"{name}: {result} ({text.value})")

        return call


def compile_ptx(nvrtc):
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"axpy.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_75")
    assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
    size = ctypes.c_size_t()
    assert nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetPTX(program, text) == 0
    return text


class KernelNodeParams(ctypes.Structure):
    _fields_ = [("func", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared", ctypes.c_uint), ("params", ctypes.c_void_p), ("extra", ctypes.c_void_p)]


class Arguments:
    """Arguments in the form of `extra`."""

    def __init__(self, y, x, a):
        self.buffer = ctypes.create_string_buffer(struct.pack("<QQfi", y.value, x.value, a, COUNT))
        self.size = ctypes.c_size_t(24)
        self.extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.buffer), 2, ctypes.addressof(self.size), 0)


def out(kind, call, *arguments):
    value = kind()
    call(ctypes.byref(value), *arguments)
    return value


def main(cuda_path, nvrtc_path):
    os.environ["PLEXRL_SIMGPU"] = f"name=ctypes-{os.getpid()},gpus=2,memory=64MiB"
    library = load(cuda_path)
    text = compile_ptx(load(nvrtc_path))
    cu = Driver(library)
    cu.cuInit(0)
    bytes_ = ctypes.c_size_t(4 * COUNT)
    contexts, functions, xs, ys = [], [], [], []
    for ordinal in range(2):
        device = out(ctypes.c_int, cu.cuDeviceGet, ordinal)
        contexts.append(out(ctypes.c_void_p, cu.cuCtxCreate_v2, 0, device))
        module = out(ctypes.c_void_p, cu.cuModuleLoadData, text)
        functions.append(out(ctypes.c_void_p, cu.cuModuleGetFunction, module, b"axpy"))
        xs.append(out(ctypes.c_uint64, cu.cuMemAlloc_v2, bytes_))
        ys.append(out(ctypes.c_uint64, cu.cuMemAlloc_v2, bytes_))

    cu.cuCtxSetCurrent(contexts[0])
    host = out(ctypes.c_void_p, cu.cuMemHostAlloc, bytes_, 0)
    staged = (ctypes.c_float * COUNT).from_address(host.value)
    staged[:] = [float(i) for i in range(COUNT)]
    cu.cuMemcpyHtoDAsync_v2(xs[0], host, bytes_, None)
    cu.cuMemcpyHtoDAsync_v2(ys[0], host, bytes_, None)

    # y = x + 2 x, by a launch.
    arguments = Arguments(ys[0], xs[0], 2.0)
    cu.cuLaunchKernel(functions[0], 8, 1, 1, 128, 1, 1, 0, None, None, arguments.extra)

    # y += 10 x, then 100 x, by a graph whose node is changed between its launches.
    graph = out(ctypes.c_void_p, cu.cuGraphCreate, 0)
    arguments = Arguments(ys[0], xs[0], 10.0)
    params = KernelNodeParams(functions[0], (8, 1, 1), (128, 1, 1), 0, None, ctypes.addressof(arguments.extra))
    node = out(ctypes.c_void_p, cu.cuGraphAddKernelNode, graph, None, ctypes.c_size_t(0), ctypes.byref(params))
    executable = out(ctypes.c_void_p, cu.cuGraphInstantiate_v2, graph, None, None, ctypes.c_size_t(0))
    cu.cuGraphLaunch(executable, None)
    arguments = Arguments(ys[0], xs[0], 100.0)
    params.extra = ctypes.addressof(arguments.extra)
    cu.cuGraphExecKernelNodeSetParams(executable, node, ctypes.byref(params))
    cu.cuGraphLaunch(executable, None)

    # To the other device, behind an event, and back.
    if out(ctypes.c_int, cu.cuDeviceCanAccessPeer, 0, 1).value != 1:
        sys.exit("the devices are no peers")
    cu.cuCtxEnablePeerAccess(contexts[1], 0)
    event = out(ctypes.c_void_p, cu.cuEventCreate, 0)
    cu.cuEventRecord(event, None)
    cu.cuCtxSetCurrent(contexts[1])
    cu.cuStreamWaitEvent(None, event, 0)
    cu.cuMemcpyDtoDAsync_v2(ys[1], ys[0], bytes_, None)
    cu.cuCtxSynchronize()
    result = (ctypes.c_float * COUNT)()
    cu.cuMemcpyDtoH_v2(result, ys[1], bytes_)
    wrong = [i for i in range(COUNT) if result[i] != 113.0 * i]
    if wrong:
        sys.exit(f"{len(wrong)} values are wrong, the first is [{wrong[0]}] = {result[wrong[0]]}")
    cu.cuGraphExecDestroy(executable)
    cu.cuGraphDestroy(graph)
    print("ok")


main(*sys.argv[1:])
