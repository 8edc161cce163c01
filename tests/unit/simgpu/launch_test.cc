#include "tests/unit/simgpu/api_fixture.h"

// The calls before cuLaunchKernel are marked as deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace plexrl::simgpu {
namespace {

class LaunchTest : public DriverTest {
 protected:
  CUresult launch_shaped(CUfunction function, unsigned grid, unsigned block, unsigned shared) {
    unsigned count = kCount;
    unsigned value = 1;
    void* parameters[] = {&words_, &count, &value};
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream_, parameters, nullptr);
  }
};

struct Arguments {
  CUdeviceptr words;
  unsigned count;
  unsigned value;
};

TEST_F(LaunchTest, ArgumentsComeAsPointers) {
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 11, stream_));
  EXPECT_EQ(all(11), words());
}

TEST_F(LaunchTest, ArgumentsComeAsABuffer) {
  Arguments arguments{words_, kCount, 12};
  std::size_t bytes = sizeof(arguments);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernel(fill_, 4, 1, 1, 32, 1, 1, 0, stream_, nullptr, extra));
  arguments.value = 99;
  EXPECT_EQ(all(12), words());
}

TEST_F(LaunchTest, ArgumentsInBothFormsOrTooShortAreRefused) {
  Arguments arguments{words_, kCount, 12};
  std::size_t bytes = 8;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  void* parameters[] = {&arguments.words, &arguments.count, &arguments.value};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(fill_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, extra));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(fill_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, extra));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(fill_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr));
}

TEST_F(LaunchTest, ShapesThatNoDeviceHasAreRefused) {
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_shaped(fill_, 0, 32, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_shaped(fill_, 1, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_shaped(fill_, 1, 1025, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(fill_, 1, 1, 1, 64, 32, 1, 0, stream_, nullptr, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, launch_shaped(nullptr, 1, 1, 0));
}

TEST_F(LaunchTest, ABlockAboveMaxntidIsRefused) {
  CUfunction function = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, module_, "no_parameters"));
  EXPECT_EQ(CUDA_SUCCESS, launch_shaped(function, 1, 64, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_shaped(function, 1, 65, 0));
  int most = 0;
  ASSERT_EQ(CUDA_SUCCESS,
            cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  EXPECT_EQ(64, most);
}

TEST_F(LaunchTest, SharedMemoryAbove48KiBNeedsTheAttribute) {
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_shaped(fill_, 1, 32, 49153));
  ASSERT_EQ(CUDA_SUCCESS,
            cuFuncSetAttribute(fill_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
  EXPECT_EQ(CUDA_SUCCESS, launch_shaped(fill_, 1, 32, 65536));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuFuncSetAttribute(fill_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65537));
}

TEST_F(LaunchTest, TheExtendedFormTakesAttributes) {
  unsigned count = kCount;
  unsigned value = 13;
  void* parameters[] = {&words_, &count, &value};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config{4, 1, 1, 32, 1, 1, 0, stream_, &attribute, 1};
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernelEx(&config, fill_, parameters, nullptr));
  EXPECT_EQ(all(13), words());
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  EXPECT_EQ(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, fill_, parameters, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(nullptr, fill_, parameters, nullptr));
}

TEST_F(LaunchTest, TheOldCallsStillLaunch) {
  ASSERT_EQ(CUDA_SUCCESS, cuFuncSetBlockShape(fill_, 32, 1, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuParamSetv(fill_, 0, &words_, sizeof(words_)));
  ASSERT_EQ(CUDA_SUCCESS, cuParamSeti(fill_, 8, kCount));
  ASSERT_EQ(CUDA_SUCCESS, cuParamSeti(fill_, 12, 21));
  ASSERT_EQ(CUDA_SUCCESS, cuParamSetSize(fill_, 16));
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchGrid(fill_, 4, 1));
  EXPECT_EQ(all(21), words());
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchGrid(fill_, 0, 1));
}

TEST_F(LaunchTest, ACooperativeGridMustFitAtOnce) {
  unsigned count = kCount;
  unsigned value = 1;
  void* parameters[] = {&words_, &count, &value};
  int blocks = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_, 1024, 0));
  int sms = 0;
  ASSERT_EQ(CUDA_SUCCESS,
            cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_));
  const auto most = static_cast<unsigned>(blocks * sms);
  ASSERT_GT(most, 0u);
  EXPECT_EQ(CUDA_SUCCESS,
            cuLaunchCooperativeKernel(fill_, most, 1, 1, 1024, 1, 1, 0, stream_, parameters));
  EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchCooperativeKernel(fill_, most + 1, 1, 1, 1024, 1, 1, 0, stream_, parameters));
}

TEST_F(LaunchTest, ParametersHaveOffsetsAndSizes) {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuFuncGetParamInfo(fill_, 2, &offset, &bytes));
  EXPECT_EQ(12u, offset);
  EXPECT_EQ(4u, bytes);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(fill_, 3, &offset, &bytes));
}

TEST_F(LaunchTest, OccupancyFollowsThreadsAndSharedMemory) {
  int blocks = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_, 256, 0));
  EXPECT_EQ(4, blocks);  // 1024 threads a multiprocessor
  ASSERT_EQ(CUDA_SUCCESS, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_, 32, 0));
  EXPECT_EQ(16, blocks);  // and 16 blocks
  ASSERT_EQ(CUDA_SUCCESS, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_, 32, 30000));
  EXPECT_EQ(2, blocks);  // in 64 KiB
  int grid = 0;
  int block = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuOccupancyMaxPotentialBlockSize(&grid, &block, fill_, nullptr, 0, 0));
  EXPECT_EQ(1024, block);
  std::size_t shared = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuOccupancyAvailableDynamicSMemPerBlock(&shared, fill_, 2, 256));
  EXPECT_EQ(32768u, shared);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, fill_, 256, 0));
}

TEST_F(LaunchTest, AFunctionOfAnotherContextIsRefused) {
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, device_));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, launch(fill_, 1, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
}

}  // namespace
}  // namespace plexrl::simgpu
