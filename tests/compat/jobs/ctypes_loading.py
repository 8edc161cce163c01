"""Reaches the driver as frameworks do that use neither headers nor libcudart, with Python's own library only: ctypes (RTLD_LOCAL) on the
absolute path, cuGetProcAddress before cuInit and asked for itself, every other call through it."""
import array
import ctypes
import os
import pathlib

from service import Service, digest

WORDS, STEPS, VERSION = 12 << 20, 8, 12000  # 48 MiB stay on the GPU
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry advance(.param .u64 data, .param .u32 words, .param .u32 step) {
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [data];
  ld.param.u32 %r1, [words];
  ld.param.u32 %r2, [step];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p, %r6, %r1;
  @%p bra end;
  mul.wide.u32 %d2, %r6, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.u32 %r7, [%d3];
  mad.lo.u32 %r7, %r7, 1664525, %r6;
  add.u32 %r7, %r7, %r2;
  st.global.u32 [%d3], %r7;
end:
  ret;
}
"""


def load():
    """The driver's path, as tinygrad and others look for it."""
    for folder in os.environ["LD_LIBRARY_PATH"].split(":"):
        path = pathlib.Path(folder).resolve() / "libcuda.so.1"
        if path.is_file():
            return ctypes.CDLL(str(path))
    raise FileNotFoundError("libcuda.so.1")


class Driver:
    """Every call by cuGetProcAddress; none may fail."""

    def __init__(self, library):
        self.lookup = library.cuGetProcAddress_v2
        self.lookup = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64,
                                       ctypes.POINTER(ctypes.c_int))(self.find(b"cuGetProcAddress"))

    def find(self, name):
        function, found = ctypes.c_void_p(), ctypes.c_int(-1)
        assert self.lookup(name, ctypes.byref(function), VERSION, ctypes.c_uint64(0), ctypes.byref(found)) == 0, name
        assert function.value and found.value == 0, name
        return function.value

    def __getattr__(self, name):
        function = ctypes.CFUNCTYPE(ctypes.c_int)(self.find(name.encode()))

        def call(*arguments):
            result = function(*arguments)
            assert result == 0, f"{name}: {result}"
        return call


def out(kind, call, *arguments):
    value = kind()
    call(ctypes.byref(value), *arguments)
    return value


def main():
    seed = int(os.environ["JOB_SEED"])
    service = Service(f"seed{seed}")
    cu = Driver(load())
    cu.cuInit(0)
    context = out(ctypes.c_void_p, cu.cuDevicePrimaryCtxRetain, 0)
    cu.cuCtxSetCurrent(context)
    module = out(ctypes.c_void_p, cu.cuModuleLoadData, PTX)
    advance = out(ctypes.c_void_p, cu.cuModuleGetFunction, module, b"advance")
    data = out(ctypes.c_uint64, cu.cuMemAlloc, ctypes.c_size_t(4 * WORDS))
    cu.cuMemsetD32(data, seed, ctypes.c_size_t(WORDS))
    host = array.array("I", bytes(4 * WORDS))
    address, _ = host.buffer_info()
    first = ctypes.c_uint32()
    for step in range(STEPS):
        words, number = ctypes.c_uint32(WORDS), ctypes.c_uint32(step)
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in (data, words, number)))
        cu.cuLaunchKernel(advance, WORDS // 256, 1, 1, 256, 1, 1, 0, None, arguments, None)
        cu.cuMemcpyDtoH(ctypes.byref(first), data, ctypes.c_size_t(4))
        service.log(step, first=first.value)
    cu.cuMemcpyDtoH(ctypes.c_void_p(address), data, ctypes.c_size_t(4 * WORDS))
    print("data", digest(host))


main()
