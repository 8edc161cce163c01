#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

/// What tests of the simulated driver share: a device of their own without modelled costs, a
/// context, and small kernels in PTX.
namespace plexrl::simgpu {

/// fill(p, n, value): p[i] = value. add(p, n, value): p[i] += value. Any grid.
inline constexpr char kKernels[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 bias = 7;
.visible .global .align 8 .u64 bias_address = bias;
.visible .entry fill(.param .u64 p, .param .u32 n, .param .u32 value) {
  .reg .pred %out;
  .reg .b32 %r<8>;
  .reg .b64 %a<4>;
  ld.param.u64 %a0, [p];
  ld.param.u32 %r0, [n];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %out, %r5, %r0;
  @%out bra END;
  mul.wide.u32 %a1, %r5, 4;
  add.u64 %a2, %a0, %a1;
  st.global.u32 [%a2], %r1;
END:
  ret;
}
.visible .entry add(.param .u64 p, .param .u32 n, .param .u32 value) {
  .reg .pred %out;
  .reg .b32 %r<8>;
  .reg .b64 %a<4>;
  ld.param.u64 %a0, [p];
  ld.param.u32 %r0, [n];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %out, %r5, %r0;
  @%out bra END;
  mul.wide.u32 %a1, %r5, 4;
  add.u64 %a2, %a0, %a1;
  ld.global.u32 %r6, [%a2];
  add.u32 %r6, %r6, %r1;
  st.global.u32 [%a2], %r6;
END:
  ret;
}
.visible .entry add_bias(.param .u64 p) {
  .reg .b32 %r<4>;
  .reg .b64 %a<4>;
  ld.param.u64 %a0, [p];
  ld.global.u64 %a1, [bias_address];
  ld.global.u32 %r0, [%a1];
  ld.global.u32 %r1, [%a0];
  add.u32 %r1, %r1, %r0;
  st.global.u32 [%a0], %r1;
  ret;
}
.visible .entry no_parameters() .maxntid 64, 1, 1 {
  ret;
}
)";

inline constexpr unsigned kCount = 100;

/// `name` makes the process's simulated machine unique.
inline void use_own_device(const char* name, const char* more = "") {
  const std::string spec = "name=" + std::string(name) + "-" + std::to_string(getpid()) +
                           ",memory=64MiB,ctx=2MiB,vmm=0,link=0,hbm=0" + more;
  setenv("PLEXRL_SIMGPU", spec.c_str(), 1);
}

/// A context, the kernels above, and an array of kCount words that starts as zeros.
class DriverTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    use_own_device("api", ",free_delay=0");
    ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  }
  void SetUp() override {
    ASSERT_EQ(CUDA_SUCCESS, cuDeviceGet(&device_, 0));
    ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&context_, nullptr, 0, device_));
    ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module_, kKernels));
    ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&fill_, module_, "fill"));
    ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&add_, module_, "add"));
    ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&words_, kCount * 4));
    ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(words_, 0, kCount));
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
    ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override { EXPECT_EQ(CUDA_SUCCESS, cuCtxDestroy(context_)); }

  CUresult launch(CUfunction function, unsigned value, CUstream stream) {
    unsigned count = kCount;
    void* parameters[] = {&words_, &count, &value};
    return cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }

  /// The words, after everything in flight.
  std::vector<unsigned> words() {
    std::vector<unsigned> host(kCount);
    EXPECT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(host.data(), words_, kCount * 4));
    return host;
  }
  static std::vector<unsigned> all(unsigned value) { return std::vector<unsigned>(kCount, value); }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction fill_ = nullptr;
  CUfunction add_ = nullptr;
  CUdeviceptr words_ = 0;
  CUstream stream_ = nullptr;
};

}  // namespace plexrl::simgpu
