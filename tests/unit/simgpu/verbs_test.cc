#include "tools/simgpu/verbs/verbs_api.h"

#include <cerrno>
#include <cstring>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

using Bytes = std::vector<unsigned char>;
constexpr std::size_t kMiB = 1 << 20;

class VerbsTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);  // ordinal 0 is the machine's device 1
    use_own_device("verbs", ",free_delay=0,gpus=2");
    ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  }
  void SetUp() override {
    DriverTest::SetUp();
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    ASSERT_EQ(count, 1);
    EXPECT_STREQ(ibv_get_device_name(list[0]), "simgpu_nic0");
    nic_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    pd_ = ibv_alloc_pd(nic_);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(nic_), 0);
    DriverTest::TearDown();
  }
  ibv_mr* reg(CUdeviceptr address, std::size_t bytes) {
    return ibv_reg_mr(pd_, reinterpret_cast<void*>(address), bytes, 0);
  }
  static int write(const ibv_mr* region, CUdeviceptr address, const Bytes& bytes) {
    return simgpu_nic_write(region->rkey, address, bytes.data(), bytes.size());
  }
  static Bytes on_device(CUdeviceptr address, std::size_t bytes) {
    Bytes back(bytes);
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(back.data(), address, bytes));
    return back;
  }
  CUmemGenericAllocationHandle create() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemCreate(&handle, 2 * kMiB, &prop, 0));
    return handle;
  }
  void map(CUdeviceptr address, CUmemGenericAllocationHandle handle) {
    ASSERT_EQ(CUDA_SUCCESS, cuMemMap(address, 2 * kMiB, 0, handle, 0));
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {device_}},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ASSERT_EQ(CUDA_SUCCESS, cuMemSetAccess(address, 2 * kMiB, &access, 1));
  }

  ibv_context* nic_ = nullptr;
  ibv_pd* pd_ = nullptr;
};

TEST_F(VerbsTest, APeerReadsAndWritesRegisteredDeviceMemoryAcrossFrames) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 6 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(memory, 1, 6 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());  // the NIC waits for nobody
  ibv_mr* const region = reg(memory + 10, 5 * kMiB);
  ASSERT_NE(region, nullptr);
  const Bytes sent(3 * kMiB, 7);
  EXPECT_EQ(write(region, memory + kMiB, sent), 0);
  EXPECT_EQ(on_device(memory + kMiB, sent.size()), sent);
  EXPECT_EQ(on_device(memory, kMiB), Bytes(kMiB, 1));
  EXPECT_EQ(on_device(memory + 4 * kMiB, 2 * kMiB), Bytes(2 * kMiB, 1));
  Bytes seen(kMiB + 1);
  EXPECT_EQ(simgpu_nic_read(region->rkey, memory + kMiB - 1, seen.data(), seen.size()), 0);
  EXPECT_EQ(seen.front(), 1);
  EXPECT_EQ(Bytes(seen.begin() + 1, seen.end()), Bytes(kMiB, 7));
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(CUDA_SUCCESS, cuMemFree(memory));
}

TEST_F(VerbsTest, APageThatMovesIsNotFollowedAndTheWriteIsLost) {
  CUdeviceptr address = 0, before_at = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&address, 2 * kMiB, 0, 0, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&before_at, 2 * kMiB, 0, 0, 0));
  const CUmemGenericAllocationHandle before = create(), after = create();
  map(address, before);
  ibv_mr* const region = reg(address, 2 * kMiB);
  ASSERT_NE(region, nullptr);
  ASSERT_EQ(write(region, address, Bytes(100, 1)), 0);
  EXPECT_EQ(on_device(address, 100), Bytes(100, 1));

  ASSERT_EQ(CUDA_SUCCESS, cuMemUnmap(address, 2 * kMiB));
  map(address, after);
  map(before_at, before);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoD(address, before_at, 2 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  ASSERT_EQ(write(region, address, Bytes(100, 2)), 0);
  EXPECT_EQ(on_device(address, 100), Bytes(100, 1)) << "the NIC does not know of the move";
  EXPECT_EQ(on_device(before_at, 100), Bytes(100, 2)) << "and writes where the page was";

  ASSERT_EQ(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr,
                         reinterpret_cast<void*>(address), 2 * kMiB, 0),
            0);
  ASSERT_EQ(write(region, address, Bytes(100, 3)), 0);
  EXPECT_EQ(on_device(address, 100), Bytes(100, 3));
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  for (const CUdeviceptr one : {address, before_at}) {
    EXPECT_EQ(CUDA_SUCCESS, cuMemUnmap(one, 2 * kMiB));
    EXPECT_EQ(CUDA_SUCCESS, cuMemAddressFree(one, 2 * kMiB));
  }
  for (const CUmemGenericAllocationHandle one : {before, after}) {
    EXPECT_EQ(CUDA_SUCCESS, cuMemRelease(one));
  }
}

TEST_F(VerbsTest, WhatIsNotRegisteredIsNotReached) {
  ibv_mr* const region = reg(words_, 40);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(write(region, words_ + 36, Bytes(4)), 0);
  EXPECT_EQ(write(region, words_ + 36, Bytes(5)), EINVAL);
  EXPECT_EQ(write(region, words_ - 1, Bytes(1)), EINVAL);
  EXPECT_EQ(simgpu_nic_write(region->rkey + 1, words_, "x", 1), EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  const std::uint32_t key = region->rkey;
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(simgpu_nic_write(key, words_, "x", 1), EINVAL);
}

TEST_F(VerbsTest, AnAddressWithNothingBehindItIsNotRegistered) {
  CUdeviceptr empty = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&empty, 2 * kMiB, 0, 0, 0));
  errno = 0;
  EXPECT_EQ(reg(empty, 100), nullptr);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(CUDA_SUCCESS, cuMemAddressFree(empty, 2 * kMiB));
}

TEST_F(VerbsTest, HostMemoryIsRegisteredToo) {
  char host[] = "0123456789";
  ibv_mr* const region = ibv_reg_mr_iova2(pd_, host, sizeof host, 1000, 0);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(simgpu_nic_write(region->lkey, 1003, "abc", 3), 0);
  EXPECT_STREQ(host, "012abc6789");
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

}  // namespace
}  // namespace plexrl::simgpu
