#include "tests/unit/simgpu/api_fixture.h"
#include "tests/unit/simgpu/peer.h"

/// Multicast objects, alone and between processes. The executor's tests have the rest of what
/// kernels may do with their addresses (tests/unit/ptx/multicast_test.cc).
namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20, kFrame = 2 * kMiB;

/// One thread: adds `value` to the first word everywhere, then out[0] = the sum of those words.
constexpr char kAddAndSum[] = R"(
.version 8.1
.target sm_90
.address_size 64
.visible .entry add_and_sum(.param .u64 object, .param .u32 value, .param .u64 out) {
  .reg .b32 %r<4>;
  .reg .b64 %a<4>;
  ld.param.u64 %a1, [object];
  ld.param.u32 %r1, [value];
  ld.param.u64 %a2, [out];
  multimem.red.relaxed.sys.global.add.u32 [%a1], %r1;
  multimem.ld_reduce.relaxed.sys.global.add.u32 %r2, [%a1];
  st.global.u32 [%a2], %r2;
  ret;
}
)";

class MulticastTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    use_own_device("multicast", ",free_delay=0,gpus=2,sm=90");
    ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  }
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&kernels_, kAddAndSum));
    free_at_start_ = free_bytes();
  }
  static CUmemGenericAllocationHandle create(int device, std::size_t bytes, bool is_shareable) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    if (is_shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
  }
  static CUmemGenericAllocationHandle create_object(std::size_t bytes, bool is_shareable = false) {
    CUmulticastObjectProp properties{};
    properties.numDevices = 2;
    properties.size = bytes;
    if (is_shareable) properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMulticastCreate(&handle, &properties));
    return handle;
  }
  /// Of both devices.
  static CUmemGenericAllocationHandle create_whole_object(std::size_t bytes) {
    const auto object = create_object(bytes);
    EXPECT_EQ(CUDA_SUCCESS, cuMulticastAddDevice(object, 0));
    EXPECT_EQ(CUDA_SUCCESS, cuMulticastAddDevice(object, 1));
    return object;
  }
  static CUdeviceptr map(int device, CUmemGenericAllocationHandle handle, std::size_t bytes) {
    CUdeviceptr base = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&base, bytes, 0, 0, 0));
    EXPECT_EQ(CUDA_SUCCESS, cuMemMap(base, bytes, 0, handle, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(CUDA_SUCCESS, cuMemSetAccess(base, bytes, &access, 1));
    return base;
  }
  static void unmap(CUdeviceptr base, std::size_t bytes) {
    EXPECT_EQ(CUDA_SUCCESS, cuMemUnmap(base, bytes));
    EXPECT_EQ(CUDA_SUCCESS, cuMemAddressFree(base, bytes));
  }
  CUresult add_and_sum(CUdeviceptr object, unsigned value, unsigned* sum) {
    CUfunction function = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, kernels_, "add_and_sum"));
    void* parameters[] = {&object, &value, &words_};
    EXPECT_EQ(CUDA_SUCCESS,
              cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    return cuMemcpyDtoH(sum, words_, 4);
  }
  static std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free, &total));
    return free;
  }

  CUmodule kernels_ = nullptr;
  std::size_t free_at_start_ = 0;
};

TEST_F(MulticastTest, ItsAddressReachesWhatIsBoundOnEachDevice) {
  const auto object = create_whole_object(2 * kFrame);
  const auto near = create(0, 2 * kFrame, false), far = create(1, 2 * kFrame, false);
  const CUdeviceptr near_base = map(0, near, 2 * kFrame), far_base = map(1, far, 2 * kFrame);
  // The halves change places on one of them.
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastBindMem(object, 0, near, 0, 2 * kFrame, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastBindMem(object, 0, far, kFrame, kFrame, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastBindAddr(object, kFrame, far_base, kFrame, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(near_base, 1, kFrame / 2));
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(far_base, 10, kFrame / 4));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(far_base + kFrame, 100, kFrame / 4));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
  const CUdeviceptr all = map(0, object, 2 * kFrame);
  unsigned sum = 0;
  ASSERT_EQ(CUDA_SUCCESS, add_and_sum(all, 2, &sum));
  EXPECT_EQ(1 + 2 + 100 + 2, sum);
  ASSERT_EQ(CUDA_SUCCESS, add_and_sum(all + kFrame, 3, &sum));
  EXPECT_EQ(1 + 3 + 10 + 3, sum);
  unsigned word = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&word, near_base + kFrame, 4));
  EXPECT_EQ(4u, word) << "the memory itself has it";

  // Nothing of it is left when all have let go, in whatever order.
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(object));
  unmap(near_base, 2 * kFrame);
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(near));
  EXPECT_EQ(free_at_start_ - 2 * kFrame, free_bytes()) << "what is bound keeps its memory";
  unmap(all, 2 * kFrame);
  EXPECT_EQ(free_at_start_, free_bytes());
  unmap(far_base, 2 * kFrame);
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(far));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
}

TEST_F(MulticastTest, OnlyWhatFitsAndIsInTheTeamIsBound) {
  const auto object = create_whole_object(2 * kFrame);
  const auto near = create(0, 2 * kFrame, false);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastAddDevice(object, 1)) << "it is there already";
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cuMulticastAddDevice(object, 2));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 0, near, 0, 3 * kFrame, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, kFrame, near, 0, 2 * kFrame, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 4096, near, 0, kFrame, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 0, near, 0, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(near, 0, near, 0, kFrame, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 0, object, 0, kFrame, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindAddr(object, 0, words_, kFrame, 0))
      << "memory of cuMemAlloc has no handle";
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastBindMem(object, 0, near, 0, kFrame, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 0, near, kFrame, kFrame, 0))
      << "memory of the device is there";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastUnbind(object, 0, kFrame, kFrame));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastUnbind(object, 1, 0, kFrame));
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastUnbind(object, 0, 0, kFrame));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastUnbind(object, 0, 0, kFrame));

  const auto shared = create_object(kFrame, true);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(shared, 0, near, 0, kFrame, 0))
      << "others could not have the memory";
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(shared));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(object));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(near));
  EXPECT_EQ(free_at_start_, free_bytes());
}

TEST_F(MulticastTest, ObjectsThatWereExportedAndGivenUpMakeRoomForOthers) {
  for (int i = 0; i < 40; ++i) {
    const auto object = create_object(kFrame, true);
    int descriptor = -1;
    ASSERT_EQ(CUDA_SUCCESS, cuMemExportToShareableHandle(
                                &descriptor, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
        << "object " << i;
    ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(object));
    close(descriptor);
  }
}

TEST_F(MulticastTest, OrdinaryAccessToItsAddressFaults) {
  const auto object = create_whole_object(kFrame);
  const auto near = create(0, kFrame, false);
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastBindMem(object, 0, near, 0, kFrame, 0));
  const CUdeviceptr all = map(0, object, kFrame);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(all, 1, 16, stream_));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream_));
}

TEST_F(MulticastTest, ATeamOfTwoProcesses) {
  const auto object = create_object(kFrame, true);
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastAddDevice(object, 0));
  const auto near = create(0, kFrame, true);
  const CUdeviceptr near_base = map(0, near, kFrame);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(near_base, 1, kFrame / 4));
  int descriptor = -1;
  ASSERT_EQ(CUDA_SUCCESS, cuMemExportToShareableHandle(
                              &descriptor, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const int inherited = dup(descriptor);  // without close-on-exec
  Peer peer({"multicast", std::to_string(inherited)});
  // Waits for the peer's device.
  ASSERT_EQ(CUDA_SUCCESS, cuMulticastBindMem(object, 0, near, 0, kFrame, 0));
  ASSERT_EQ("bound", peer.said());
  const CUdeviceptr all = map(0, object, kFrame);
  unsigned sum = 0;
  ASSERT_EQ(CUDA_SUCCESS, add_and_sum(all, 20, &sum));
  EXPECT_EQ(1 + 20 + 5 + 20, sum);
  peer.kill_now();
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free, &total));  // the machine finds it dead
  ASSERT_EQ(CUDA_SUCCESS, add_and_sum(all, 0, &sum));
  EXPECT_EQ(21u, sum) << "the dead process's memory is not reached";
  close(descriptor);
  close(inherited);
  unmap(all, kFrame);
  unmap(near_base, kFrame);
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(object));
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(near));
  EXPECT_EQ(free_at_start_, free_bytes());
}

}  // namespace
}  // namespace plexrl::simgpu
