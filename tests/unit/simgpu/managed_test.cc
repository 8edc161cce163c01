#include <atomic>
#include <cstring>
#include <thread>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;

/// What nvcc makes of `__managed__ int counter = 5;` and a kernel that adds to it.
constexpr char kManagedVariable[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 counter = 5;
.visible .entry bump(.param .u32 n) {
  .reg .b32 %r<3>;
  .reg .b64 %a<2>;
  ld.param.u32 %r1, [n];
  mov.u64 %a1, counter;
  atom.global.add.u32 %r2, [%a1], %r1;
  ret;
}
)";

class ManagedTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    use_own_device("managed", ",free_delay=0,gpus=2");
    ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  }
  unsigned* allocate(std::size_t bytes, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemAllocManaged(&pointer, bytes, flags));
    return reinterpret_cast<unsigned*>(pointer);
  }
  static CUdeviceptr device(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }
  static int range_attribute(CUmem_range_attribute which, const void* from, std::size_t bytes) {
    int value = -77;
    EXPECT_EQ(CUDA_SUCCESS, cuMemRangeGetAttribute(&value, 4, which, device(from), bytes));
    return value;
  }
  std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free, &total));
    return free;
  }
};

TEST_F(ManagedTest, HostAndKernelsSeeEachOthersWrites) {
  unsigned* const memory = allocate(5 * kMiB);
  for (unsigned i = 0; i < kCount; ++i) memory[i] = i;
  CUdeviceptr pointer = device(memory);
  unsigned count = kCount;
  unsigned value = 1000;
  void* parameters[] = {&pointer, &count, &value};
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernel(add_, 4, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(1000 + i, memory[i]);
  EXPECT_EQ(0u, memory[kCount]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
}

TEST_F(ManagedTest, TheHostMayWriteWhileAKernelWaitsForIt) {
  auto* const flag = allocate(4);
  CUdeviceptr pointer = device(flag);
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitValue32(stream_, pointer, 7, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(words_, 3, kCount, stream_));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  std::atomic_ref<unsigned>(*flag).store(7);
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(all(3), words());
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
}

TEST_F(ManagedTest, CopiesTakeItAsEitherSide) {
  auto* const memory = allocate(kCount * 4);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(words_, 11, kCount));
  // As a host pointer and as a device pointer.
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(memory, words_, kCount * 4));
  EXPECT_EQ(11u, memory[kCount - 1]);
  memory[1] = 12;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpy(words_, device(memory), kCount * 4));
  EXPECT_EQ(12u, words()[1]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(device(memory), 0xff, 4));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_EQ(0xffffffffu, memory[0]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(device(memory)));
}

TEST_F(ManagedTest, PointerAttributesTellIt) {
  auto* const memory = allocate(64, CU_MEM_ATTACH_HOST);
  const CUdeviceptr inside = device(memory) + 8;
  unsigned is_managed = 0;
  unsigned type = 0;
  void* host = nullptr;
  CUdeviceptr start = 0;
  EXPECT_EQ(CUDA_SUCCESS,
            cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
  EXPECT_EQ(CUDA_SUCCESS, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  EXPECT_EQ(CUDA_SUCCESS, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
  EXPECT_EQ(CUDA_SUCCESS,
            cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  EXPECT_EQ(1u, is_managed);
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, type);
  EXPECT_EQ(memory + 2, host);
  EXPECT_EQ(device(memory), start);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(device(memory)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(device(memory)));
}

TEST_F(ManagedTest, ItIsDeviceMemoryAndFreeingOrTheContextsEndGivesItBack) {
  const std::size_t before = free_bytes();
  auto* const memory = allocate(3 * kMiB);
  EXPECT_EQ(before - 4 * kMiB, free_bytes());  // whole frames
  allocate(kMiB);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(device(memory)));
  EXPECT_EQ(before - 2 * kMiB, free_bytes());
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, device_));
  const std::size_t with_two = free_bytes();
  allocate(2 * kMiB);
  EXPECT_EQ(with_two - 2 * kMiB, free_bytes());
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
  EXPECT_EQ(before - 2 * kMiB, free_bytes());
}

TEST_F(ManagedTest, WhatADeviceHasNoRoomForLiesInTheHost) {
  const std::size_t before = free_bytes();
  constexpr std::size_t kBytes = 200 * kMiB;  // of a device of 64 MiB
  auto* const memory = allocate(kBytes);
  EXPECT_EQ(before, free_bytes());
  const CUdeviceptr pointer = device(memory);
  const CUdeviceptr end = pointer + kBytes - kCount * 4;
  memory[kBytes / 4 - 1] = 5;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoD(words_, end, kCount * 4));
  EXPECT_EQ(5u, words()[kCount - 1]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoD(pointer, words_, kCount * 4));
  CUdeviceptr target = pointer;
  unsigned count = kCount;
  unsigned value = 6;
  void* parameters[] = {&target, &count, &value};
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernel(add_, 4, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_EQ(6u, memory[0]);
  EXPECT_EQ(11u, memory[kCount - 1]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
  EXPECT_EQ(before, free_bytes());
}

TEST_F(ManagedTest, RefusesWhatItCantMean) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&pointer, 64, CU_MEM_ATTACH_SINGLE));
  auto* const memory = allocate(64);
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, {3}};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(words_, 64, here, 0, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(device(memory), 65, here, 0, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(device(memory), 64, nowhere, 0, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuStreamAttachMemAsync(stream_, device(memory), 32, CU_MEM_ATTACH_SINGLE));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuStreamAttachMemAsync(nullptr, device(memory), 0, CU_MEM_ATTACH_SINGLE));
  EXPECT_EQ(CUDA_SUCCESS,
            cuStreamAttachMemAsync(stream_, device(memory), 64, CU_MEM_ATTACH_SINGLE));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            cuMemPrefetchAsync(device(memory), 64, here, 0, stream_));
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream_, &graph));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(device(memory)));
}

TEST_F(ManagedTest, AdviceHoldsForThePagesItWasGivenFor) {
  constexpr std::size_t kBytes = 4 * 4096;
  auto* const memory = allocate(kBytes);
  auto* const bytes = reinterpret_cast<char*>(memory);
  const CUmemLocation gpu = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, {0}};
  EXPECT_EQ(CU_DEVICE_INVALID,
            range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, kBytes));
  // One byte of the second page and one of the third: both pages whole.
  ASSERT_EQ(CUDA_SUCCESS, cuMemAdvise(device(bytes + 8191), 2, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  ASSERT_EQ(CUDA_SUCCESS,
            cuMemAdvise(device(memory), 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu));
  ASSERT_EQ(CUDA_SUCCESS,
            cuMemAdvise(device(bytes + 4096), 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
  EXPECT_EQ(1, range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, bytes + 4096, 8192));
  EXPECT_EQ(0, range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, bytes + 4095, 2));
  EXPECT_EQ(0, range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, kBytes));
  EXPECT_EQ(0, range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 4096));
  EXPECT_EQ(CU_DEVICE_CPU,
            range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, bytes + 4096, 4096));
  EXPECT_EQ(CU_DEVICE_INVALID,
            range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 8192));
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_HOST,
            range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, bytes + 4096, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAdvise(device(memory), kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAdvise(device(memory), 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
  int accessed_by[3] = {};
  ASSERT_EQ(CUDA_SUCCESS,
            cuMemRangeGetAttribute(accessed_by, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                                   device(memory), 4096));
  EXPECT_EQ(0, accessed_by[0]);
  EXPECT_EQ(CU_DEVICE_CPU, accessed_by[1]);
  EXPECT_EQ(CU_DEVICE_INVALID, accessed_by[2]);
  ASSERT_EQ(CUDA_SUCCESS,
            cuMemAdvise(device(memory), kBytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY, gpu));
  ASSERT_EQ(CUDA_SUCCESS,
            cuMemRangeGetAttribute(accessed_by, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                                   device(memory), kBytes));
  EXPECT_EQ(CU_DEVICE_INVALID, accessed_by[0]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(device(memory)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuMemAdvise(device(memory), kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
}

TEST_F(ManagedTest, PrefetchesKeepTheLastLocationAndTheBytes) {
  auto* const memory = allocate(2 * 4096);
  auto* const bytes = reinterpret_cast<char*>(memory);
  memory[0] = 41;
  const CUmemLocation gpu = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, {9}};
  ASSERT_EQ(CUDA_SUCCESS, cuMemPrefetchAsync(device(memory), 2 * 4096, gpu, 0, stream_));
  EXPECT_EQ(0, range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, 8192));
  CUdeviceptr pointers[] = {device(memory), device(bytes + 4096)};
  std::size_t sizes[] = {4096, 4096};
  CUmemLocation locations[] = {host, gpu};
  std::size_t starts[] = {0, 1};
  ASSERT_EQ(CUDA_SUCCESS,
            cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, starts, 2, 0, stream_));
  EXPECT_EQ(CU_DEVICE_CPU,
            range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, 4096));
  EXPECT_EQ(0, range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, bytes + 4096, 4096));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(41u, memory[0]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(device(memory)));
}

TEST_F(ManagedTest, AModulesManagedVariableIsTheHostsToo) {
  CUmodule module = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, kManagedVariable));
  CUdeviceptr pointer = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetGlobal(&pointer, &bytes, module, "counter"));
  ASSERT_EQ(4u, bytes);
  auto* const counter = reinterpret_cast<unsigned*>(pointer);
  EXPECT_EQ(5u, *counter);
  *counter = 100;
  CUfunction bump = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&bump, module, "bump"));
  unsigned n = 2;
  void* parameters[] = {&n};
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernel(bump, 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(164u, *counter);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(pointer));  // the module's, not the program's
  const std::size_t before = free_bytes();
  ASSERT_EQ(CUDA_SUCCESS, cuModuleUnload(module));
  EXPECT_GT(free_bytes(), before);
}

TEST_F(ManagedTest, ALibrarysManagedVariableIsOneForAllContexts) {
  CUlibrary library = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryLoadData(&library, kManagedVariable, nullptr, nullptr, 0,
                                            nullptr, nullptr, 0));
  CUdeviceptr managed = 0;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&managed, nullptr, library, "counter"));
  CUmodule module = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryGetModule(&module, library));
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, device_));
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryGetModule(&module, library));
  CUdeviceptr in_other = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetGlobal(&in_other, nullptr, module, "counter"));
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryGetManaged(&managed, &bytes, library, "counter"));
  EXPECT_EQ(managed, in_other);
  EXPECT_EQ(4u, bytes);
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
  EXPECT_EQ(5u, *reinterpret_cast<unsigned*>(managed));  // outlives a context
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&managed, nullptr, library, "absent"));
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryUnload(library));
}

TEST_F(ManagedTest, EveryDeviceReachesIt) {
  CUdeviceptr pointer = device(allocate(64));
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, 1));
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, kKernels));
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&fill, module, "fill"));
  unsigned count = 16;
  unsigned value = 77;
  void* parameters[] = {&pointer, &count, &value};
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_EQ(77u, reinterpret_cast<unsigned*>(pointer)[15]);
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
}

}  // namespace
}  // namespace plexrl::simgpu
