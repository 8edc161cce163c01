#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;

template <typename T>
T attribute(CUpointer_attribute which, CUdeviceptr pointer) {
  T value{};
  EXPECT_EQ(CUDA_SUCCESS, cuPointerGetAttribute(&value, which, pointer)) << which;
  return value;
}

using PointerTest = DriverTest;

TEST_F(PointerTest, DeviceMemoryKnowsItsContextDeviceAndRange) {
  const CUdeviceptr inside = words_ + 17;
  EXPECT_EQ(context_, attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  EXPECT_EQ(inside, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
  EXPECT_EQ(0u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
  EXPECT_EQ(device_, attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  EXPECT_EQ(words_, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  EXPECT_EQ(kCount * 4, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  EXPECT_EQ(1u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside));
  EXPECT_EQ(nullptr, attribute<void*>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside));
  void* host = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
}

TEST_F(PointerTest, EveryAllocationHasABufferIdOfItsOwn) {
  CUdeviceptr other = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&other, 64));
  const auto first = attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, words_);
  EXPECT_EQ(first, attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, words_ + 40));
  EXPECT_NE(first, attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(other));
}

TEST_F(PointerTest, PinnedMemoryHasOneAddressForBoth) {
  void* host = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocHost(&host, 4096));
  const auto pointer = reinterpret_cast<CUdeviceptr>(host) + 8;
  EXPECT_EQ(CU_MEMORYTYPE_HOST, attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  EXPECT_EQ(pointer, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer));
  EXPECT_EQ(reinterpret_cast<void*>(pointer),
            attribute<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeHost(host));
  unsigned type = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
}

TEST_F(PointerTest, AnUnknownAddressIsAnErrorAloneAndZeroInAList) {
  int here = 0;
  const auto pointer = reinterpret_cast<CUdeviceptr>(&here);
  unsigned type = 77;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  EXPECT_EQ(77u, type);
  int ordinal = 5;
  CUcontext context = context_;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
  void* data[] = {&type, &ordinal, &context};
  ASSERT_EQ(CUDA_SUCCESS, cuPointerGetAttributes(3, which, data, pointer));
  EXPECT_EQ(0u, type);
  EXPECT_EQ(-2, ordinal);
  EXPECT_EQ(nullptr, context);
}

TEST_F(PointerTest, AListGivesWhatTheSingleFormGives) {
  unsigned type = 0;
  std::size_t size = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* data[] = {&type, &size};
  ASSERT_EQ(CUDA_SUCCESS, cuPointerGetAttributes(2, which, data, words_));
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, type);
  EXPECT_EQ(kCount * 4, size);
  data[1] = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(2, which, data, words_));
}

TEST_F(PointerTest, SyncMemopsIsTheOneAttributeThatCanBeSet) {
  unsigned on = 1;
  EXPECT_EQ(CUDA_SUCCESS, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, words_));
  EXPECT_EQ(1u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, words_ + 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_IS_MANAGED, words_));
}

TEST_F(PointerTest, BooleansAreFourBytesWide) {
  for (const CUpointer_attribute which :
       {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE}) {
    unsigned value[] = {~0u, ~0u};
    ASSERT_EQ(CUDA_SUCCESS, cuPointerGetAttribute(value, which, words_));
    EXPECT_LE(value[0], 1u) << which;
    EXPECT_EQ(~0u, value[1]) << which;
    void* const nowhere = &value;  // of no allocation
    value[0] = ~0u;
    void* data[] = {value};
    CUpointer_attribute asked[] = {which};
    ASSERT_EQ(CUDA_SUCCESS,
              cuPointerGetAttributes(1, asked, data, reinterpret_cast<CUdeviceptr>(nowhere)));
    EXPECT_EQ(0u, value[0]) << which;
    EXPECT_EQ(~0u, value[1]) << which;
  }
}

TEST_F(PointerTest, AReservationIsKnownAndItsMappingsAreTold) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&base, 8 * kMiB, 0, 0, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMemCreate(&handle, 2 * kMiB, &properties, 0));
  EXPECT_EQ(0u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, base));
  CUdeviceptr start = 0;
  std::size_t size = 0;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&start, &size, base));
  ASSERT_EQ(CUDA_SUCCESS, cuMemMap(base + 4 * kMiB, 2 * kMiB, 0, handle, 0));
  const CUdeviceptr inside = base + 5 * kMiB;
  EXPECT_EQ(1u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside));
  EXPECT_EQ(base + 4 * kMiB,
            attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
  EXPECT_EQ(2 * kMiB, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
  EXPECT_EQ(base, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  EXPECT_EQ(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetAddressRange(&start, &size, inside));
  EXPECT_EQ(base + 4 * kMiB, start);
  EXPECT_EQ(2 * kMiB, size);
  ASSERT_EQ(CUDA_SUCCESS, cuMemUnmap(base + 4 * kMiB, 2 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(handle));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressFree(base, 8 * kMiB));
}

TEST_F(PointerTest, AnAddressRangeIsThatOfTheAllocation) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetAddressRange(&base, &bytes, words_ + 99));
  EXPECT_EQ(words_, base);
  EXPECT_EQ(kCount * 4, bytes);
  EXPECT_EQ(CUDA_SUCCESS, cuMemGetAddressRange(nullptr, nullptr, words_));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, 4096));
}

}  // namespace
}  // namespace plexrl::simgpu
