#include "interpose/driver.h"

#include <gtest/gtest.h>

#include "interpose/nvml.h"

namespace plexrl {
namespace {

TEST(Driver, SaysNotSupportedWhereTheProcessHasNoLibcuda) {
  int count = 7;
  EXPECT_EQ(driver.cuDeviceGetCount(&count), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(count, 7);
}

TEST(Driver, NvmlSaysFunctionNotFoundWhereTheProcessHasNone) {
  nvmlMemory_t memory{};
  EXPECT_EQ(nvml.nvmlDeviceGetMemoryInfo(nullptr, &memory), NVML_ERROR_FUNCTION_NOT_FOUND);
}

TEST(Driver, CallsTheFunctionThatATestPutsIn) {
  const auto before = driver.cuCtxSynchronize.get();
  driver.cuCtxSynchronize = +[]() -> CUresult { return CUDA_ERROR_LAUNCH_FAILED; };
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  driver.cuCtxSynchronize = before;
}

}  // namespace
}  // namespace plexrl
