// One address for the memory of two devices: kernels on either store to both, change both and read
// what both have together. What is bound stays where it is while the rest of the program's memory
// goes, and goes as well when it is unbound. Runner: gpus=2, sm=90
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 6 << 20, kWords = kBytes / 4;

// One word a thread, blocks of 128: what its multicast address means on both devices.
constexpr char kKernels[] = R"(
.version 8.1
.target sm_90
.address_size 64
.visible .entry broadcast(.param .u64 object, .param .u64 words, .param .u32 seed) {
  .reg .b32 %r<8>;
  .reg .b64 %a<4>;
  ld.param.u64 %a1, [object];
  ld.param.u32 %r1, [seed];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r2, 128, %r3;
  mul.wide.u32 %a2, %r4, 4;
  add.u64 %a3, %a1, %a2;
  mad.lo.u32 %r5, %r4, 2654435761, %r1;
  multimem.st.relaxed.sys.global.u32 [%a3], %r5;
  ret;
}
.visible .entry add_to_all(.param .u64 object, .param .u64 words, .param .u32 value) {
  .reg .b32 %r<8>;
  .reg .b64 %a<4>;
  ld.param.u64 %a1, [object];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r2, 128, %r3;
  mul.wide.u32 %a2, %r4, 4;
  add.u64 %a3, %a1, %a2;
  xor.b32 %r5, %r4, %r1;
  multimem.red.relaxed.sys.global.add.u32 [%a3], %r5;
  ret;
}
.visible .entry sum_of_all(.param .u64 object, .param .u64 out) {
  .reg .b32 %r<8>;
  .reg .b64 %a<6>;
  ld.param.u64 %a1, [object];
  ld.param.u64 %a4, [out];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r2, 128, %r3;
  mul.wide.u32 %a2, %r4, 4;
  add.u64 %a3, %a1, %a2;
  add.u64 %a5, %a4, %a2;
  multimem.ld_reduce.relaxed.sys.global.add.u32 %r5, [%a3];
  st.global.u32 [%a5], %r5;
  ret;
}
)";

/// What the program has on one device.
struct Side {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr memory;

  CUfunction kernel(const char* name) const {
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
  }
  void print(const char* name) const {
    CHECK(cuCtxSetCurrent(context));
    print_device(name, memory, kBytes);
  }
};

Side make_side(CUdevice device, CUcontext context) {
  Side side{device, context, nullptr, 0, 0};
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&side.module, kKernels));
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CHECK(cuMemCreate(&side.handle, kBytes, &prop, 0));
  side.memory = map_handle(device, side.handle, kBytes);
  CHECK(cuMemsetD32(side.memory, 7, kWords));
  CHECK(cuCtxSynchronize());
  return side;
}

/// An object for the two sides, with their memory bound to it.
CUmemGenericAllocationHandle make_object(const Side& near, const Side& far) {
  CUmulticastObjectProp prop = {};
  prop.numDevices = 2;
  prop.size = kBytes;
  std::size_t unit = 0;
  CHECK(cuMulticastGetGranularity(&unit, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
  std::printf("a multiple of the granularity: %d\n", kBytes % unit == 0);
  CUmemGenericAllocationHandle object;
  CHECK(cuMulticastCreate(&object, &prop));
  CHECK(cuMulticastAddDevice(object, near.device));
  CHECK(cuMulticastAddDevice(object, far.device));
  CHECK(cuMulticastBindMem(object, 0, near.handle, 0, kBytes, 0));
  CHECK(cuMulticastBindAddr(object, 0, far.memory, kBytes, 0));
  std::printf("bound twice: %s\n",
              error_name(cuMulticastBindMem(object, 0, near.handle, 0, kBytes, 0)).c_str());
  return object;
}

}  // namespace

int main() {
  Program program;
  CUcontext first, second;
  CHECK(cuCtxGetCurrent(&first));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 1));
  CHECK(cuDevicePrimaryCtxRetain(&second, device));
  const Side near = make_side(program.device(), first), far = make_side(device, second);
  const CUmemGenericAllocationHandle object = make_object(near, far);
  const CUdeviceptr address = map_handle(near.device, object, kBytes);
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {far.device}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(address, kBytes, &access, 1));

  CHECK(cuCtxSetCurrent(first));
  const CUdeviceptr sum = allocate(kBytes);
  const unsigned long long words = kWords;
  for (unsigned round = 0; round < 3; ++round) {
    CHECK(cuCtxSetCurrent(first));
    if (round != 1) launch(near.kernel("broadcast"), kWords, nullptr, address, words, round);
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(second));
    launch(far.kernel("add_to_all"), kWords, nullptr, address, words, round + 11);
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(first));
    program.pause();
    near.print("near");
    far.print("far");
    // Each device's own, by its ordinary address.
    CHECK(cuCtxSetCurrent(first));
    launch(program.kernel("mix"), kWords, nullptr, near.memory, words, round);
    launch(near.kernel("sum_of_all"), kWords, nullptr, address, sum);
    CHECK(cuCtxSynchronize());
    print_device("sum", sum, kBytes);
  }
  CHECK(cuMemUnmap(address, kBytes));
  CHECK(cuMemAddressFree(address, kBytes));
  CHECK(cuMulticastUnbind(object, near.device, 0, kBytes));
  CHECK(cuMulticastUnbind(object, far.device, 0, kBytes));
  CHECK(cuMemRelease(object));
  program.pause();
  near.print("near, unbound");
  far.print("far, unbound");
  for (const Side& side : {far, near}) {
    CHECK(cuCtxSetCurrent(side.context));
    CHECK(cuMemUnmap(side.memory, kBytes));
    CHECK(cuMemRelease(side.handle));
    CHECK(cuMemAddressFree(side.memory, kBytes));
    CHECK(cuModuleUnload(side.module));
  }
  CHECK(cuDevicePrimaryCtxRelease(device));
  CHECK(cuMemFree(sum));
}
