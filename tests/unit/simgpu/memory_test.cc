#include <array>
#include <numeric>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;
using MemoryTest = DriverTest;
using Bytes = std::vector<unsigned char>;

Bytes counted(std::size_t bytes) {
  Bytes result(bytes);
  std::iota(result.begin(), result.end(), static_cast<unsigned char>(3));
  return result;
}

TEST_F(MemoryTest, ACopyCrossesFramesAndKeepsEveryByte) {
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&first, 5 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&second, 5 * kMiB));
  const Bytes sent = counted(5 * kMiB - 9);
  Bytes back(sent.size());
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoD(first + 5, sent.data(), sent.size()));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoD(second + 2, first + 5, sent.size()));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(back.data(), second + 2, back.size()));
  EXPECT_EQ(sent, back);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(first));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(second));
}

TEST_F(MemoryTest, ARectangleIsCopiedFromAPlaceToAPlace) {
  CUdeviceptr pitched = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocPitch(&pitched, &pitch, 30, 8, 4));
  EXPECT_EQ(0u, pitch % 512);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(pitched, 0, pitch * 8));
  const Bytes sent = counted(10 * 4);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = sent.data();
  copy.srcPitch = 10;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = pitched;
  copy.dstPitch = pitch;
  copy.dstXInBytes = 3;
  copy.dstY = 2;
  copy.WidthInBytes = 10;
  copy.Height = 4;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpy2D(&copy));
  Bytes all_rows(pitch * 8);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(all_rows.data(), pitched, all_rows.size()));
  for (std::size_t y = 0; y < 8; ++y) {
    for (std::size_t x = 0; x < 30; ++x) {
      const bool inside = y >= 2 && y < 6 && x >= 3 && x < 13;
      EXPECT_EQ(inside ? sent[(y - 2) * 10 + x - 3] : 0, all_rows[y * pitch + x]) << x << "," << y;
    }
  }
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(pitched));
}

TEST_F(MemoryTest, ABoxIsCopiedSliceBySlice) {
  CUdeviceptr box = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&box, 16 * 4 * 3));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(box, 0, 16 * 4 * 3));
  const Bytes sent = counted(5 * 2 * 3);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = sent.data();
  copy.srcPitch = 5;
  copy.srcHeight = 2;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = box;
  copy.dstPitch = 16;
  copy.dstHeight = 4;
  copy.dstY = 1;
  copy.WidthInBytes = 5;
  copy.Height = 2;
  copy.Depth = 3;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpy3D(&copy));
  Bytes back(16 * 4 * 3);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(back.data(), box, back.size()));
  for (std::size_t z = 0; z < 3; ++z) {
    for (std::size_t y = 0; y < 2; ++y) {
      for (std::size_t x = 0; x < 5; ++x)
        EXPECT_EQ(sent[(z * 2 + y) * 5 + x], back[(z * 4 + y + 1) * 16 + x]);
    }
  }
  EXPECT_EQ(0, back[0]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(box));
}

TEST_F(MemoryTest, FillsHaveThreeWidthsAndRows) {
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD16(words_, 0xbeef, 2));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(words_ + 4, 0x11, 3));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD2D32(words_ + 8, 16, 9, 2, 3));
  const std::vector<unsigned> seen = words();
  EXPECT_EQ(0xbeefbeefu, seen[0]);
  EXPECT_EQ(0x00111111u, seen[1]);
  EXPECT_EQ((std::vector<unsigned>{9, 9, 0, 0, 9, 9, 0, 0, 9, 9, 0}),
            std::vector<unsigned>(seen.begin() + 2, seen.begin() + 13));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(words_ + 1, 0, 1)) << "misaligned";
}

TEST_F(MemoryTest, WhatIsNoMemoryIsRefusedAtTheCall) {
  unsigned value = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(words_, &value, kCount * 4 + 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(words_ + 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(nullptr, 4));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&pointer, 0));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pointer, 100 * kMiB));
  EXPECT_EQ(CUDA_SUCCESS, cuMemFree(0));
}

TEST_F(MemoryTest, ADescriptorForOtherDriversIsGivenOfWholePagesThatAreMapped) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 2 * kMiB));
  constexpr auto kDmaBuf = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
  int fd = -1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuMemGetHandleForAddressRange(&fd, memory + 1, kMiB, kDmaBuf, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, memory, 100, kDmaBuf, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuMemGetHandleForAddressRange(&fd, memory, 4 * kMiB, kDmaBuf, 0));
  EXPECT_EQ(-1, fd);
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetHandleForAddressRange(&fd, memory + kMiB, kMiB, kDmaBuf, 0));
  EXPECT_EQ(0, close(fd));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(memory));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, memory, kMiB, kDmaBuf, 0));
}

TEST_F(MemoryTest, AnAsynchronousCopyHasASmallPageableSourceBeforeItReturns) {
  unsigned value = 5;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoDAsync(words_, &value, 4, stream_));
  value = 6;
  EXPECT_EQ(5u, words()[0]);
}

TEST_F(MemoryTest, AKernelThatLeavesItsMemoryBreaksTheContextForGood) {
  unsigned count = 1, value = 1;
  CUdeviceptr nowhere = words_ + (1ull << 33);
  void* parameters[] = {&nowhere, &count, &value};
  testing::internal::CaptureStderr();
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernel(fill_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream_));
  EXPECT_NE(std::string::npos, testing::internal::GetCapturedStderr().find("fill"));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&pointer, 4));
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, device_)) << "other contexts are well";
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&pointer, 4));
  EXPECT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
}

class VmmTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    ASSERT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&base_, 4 * kMiB, 0, 0, 0));
    ASSERT_EQ(CUDA_SUCCESS, cuMemCreate(&handle_, 2 * kMiB, &properties_, 0));
  }
  CUresult give_access(CUdeviceptr address, CUmemAccess_flags flags) {
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device_}}, flags};
    return cuMemSetAccess(address, 2 * kMiB, &access, 1);
  }
  CUmemAllocationProp properties_{};
  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
};

TEST_F(VmmTest, MemoryMovesBetweenAddressesWithItsBytes) {
  ASSERT_EQ(CUDA_SUCCESS, cuMemMap(base_, 2 * kMiB, 0, handle_, 0));
  ASSERT_EQ(CUDA_SUCCESS, give_access(base_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(base_, 77, 10));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  ASSERT_EQ(CUDA_SUCCESS, cuMemUnmap(base_, 2 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemMap(base_ + 2 * kMiB, 2 * kMiB, 0, handle_, 0));
  ASSERT_EQ(CUDA_SUCCESS, give_access(base_ + 2 * kMiB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  unsigned value = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&value, base_ + 2 * kMiB + 36, 4));
  EXPECT_EQ(77u, value);
  unsigned long long flags = 0;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetAccess(&flags, &location, base_ + 2 * kMiB));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
  ASSERT_EQ(CUDA_SUCCESS, cuMemUnmap(base_ + 2 * kMiB, 2 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(handle_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressFree(base_, 4 * kMiB));
}

TEST_F(VmmTest, AMappingKeepsReleasedMemory) {
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemMap(base_, 2 * kMiB, 0, handle_, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&before, &total));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(handle_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(base_)));
  EXPECT_EQ(handle_, again);
  ASSERT_EQ(CUDA_SUCCESS, cuMemUnmap(base_, 2 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(again));
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&after, &total));
  EXPECT_EQ(before + 2 * kMiB, after);
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressFree(base_, 4 * kMiB));
}

TEST_F(VmmTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemMap(base_ + 3 * kMiB, 2 * kMiB, 0, handle_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemMap(base_ + 4 * kMiB, 2 * kMiB, 0, handle_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base_, 2 * kMiB));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, give_access(base_, CU_MEM_ACCESS_FLAGS_PROT_READ));
  ASSERT_EQ(CUDA_SUCCESS, cuMemMap(base_, 2 * kMiB, 0, handle_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemMap(base_, 2 * kMiB, 0, handle_, 0)) << "taken";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base_, 4 * kMiB)) << "still mapped";
  ASSERT_EQ(CUDA_SUCCESS, cuMemUnmap(base_, 2 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(handle_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressFree(base_, 4 * kMiB));
  CUmemGenericAllocationHandle large = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&large, 80 * kMiB, &properties_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&large, 1000, &properties_, 0));
}

}  // namespace
}  // namespace plexrl::simgpu
