#include <fstream>

#include "tests/unit/own_folder.h"
#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

using ModuleTest = DriverTest;

constexpr char kNonsense[] =
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".visible .entry k() {\n  no.such.instruction %r1, %r2;\n}\n";
constexpr char kTooNew[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry k() {\n  ret;\n}\n";
constexpr char kCaller[] = R"(
.version 7.5
.target sm_75
.address_size 64
.extern .func (.param .b32 result) twice(.param .b32 value);
.visible .entry doubled(.param .u64 p) {
  .reg .b32 %r<3>;
  .reg .b64 %a<2>;
  .param .b32 in;
  .param .b32 out;
  ld.param.u64 %a0, [p];
  ld.global.u32 %r0, [%a0];
  st.param.b32 [in], %r0;
  call.uni (out), twice, (in);
  ld.param.b32 %r1, [out];
  st.global.u32 [%a0], %r1;
  ret;
}
)";
constexpr char kCallee[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .func (.param .b32 result) twice(.param .b32 value) {
  .reg .b32 %r<2>;
  ld.param.b32 %r0, [value];
  add.u32 %r1, %r0, %r0;
  st.param.b32 [result], %r1;
  ret;
}
)";

TEST_F(ModuleTest, FunctionsAreFoundByName) {
  CUfunction function = nullptr;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module_, "none"));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleGetFunction(&function, module_, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&function, nullptr, "fill"));
  unsigned count = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunctionCount(&count, module_));
  EXPECT_EQ(4u, count);
  std::vector<CUfunction> functions(count);
  ASSERT_EQ(CUDA_SUCCESS, cuModuleEnumerateFunctions(functions.data(), count, module_));
  const char* name = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuFuncGetName(&name, fill_));
  EXPECT_STREQ("fill", name);
  CUmodule owner = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuFuncGetModule(&owner, fill_));
  EXPECT_EQ(module_, owner);
}

TEST_F(ModuleTest, VariablesHaveAddressesAndInitialValues) {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetGlobal(&address, &bytes, module_, "bias"));
  EXPECT_EQ(4u, bytes);
  unsigned value = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&value, address, 4));
  EXPECT_EQ(7u, value);
  EXPECT_EQ(CUDA_SUCCESS, cuModuleGetGlobal(nullptr, &bytes, module_, "bias"));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&address, &bytes, module_, "fill"));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleGetGlobal(nullptr, nullptr, module_, "bias"));
}

TEST_F(ModuleTest, AKernelSeesWhatTheHostWroteIntoAVariable) {
  CUdeviceptr bias = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetGlobal(&bias, nullptr, module_, "bias"));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(bias, 30, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  CUfunction add_bias = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&add_bias, module_, "add_bias"));
  void* parameters[] = {&words_};
  ASSERT_EQ(CUDA_SUCCESS,
            cuLaunchKernel(add_bias, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr));
  EXPECT_EQ(30u, words()[0]);
}

TEST_F(ModuleTest, AnUnloadedModuleIsAStaleHandleButItsLaunchesEnd) {
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 3, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuModuleUnload(module_));
  EXPECT_EQ(all(3), words());
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module_));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, launch(fill_, 4, stream_));
}

TEST_F(ModuleTest, AnUnknownInstructionIsNamedWithItsLine) {
  char log[512] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule module = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, kNonsense, 2, options, values));
  EXPECT_EQ(nullptr, module);
  EXPECT_NE(std::string(log).find("no.such.instruction"), std::string::npos) << log;
  EXPECT_NE(std::string(log).find("line 5"), std::string::npos) << log;
  EXPECT_EQ(std::string(log).size(), reinterpret_cast<std::size_t>(values[1]));
}

TEST_F(ModuleTest, ATargetAboveTheDevicesIsRefused) {
  CUmodule module = nullptr;
  EXPECT_EQ(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, kTooNew));
}

TEST_F(ModuleTest, MachineCodeIsRefusedAndTheRouteIsNamed) {
  testing::internal::CaptureStderr();
  CUmodule module = nullptr;
  EXPECT_EQ(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, "\177ELF..."));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("real GPU"), std::string::npos) << said;
}

TEST_F(ModuleTest, BadImagesAndArgumentsAreRefused) {
  CUmodule module = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "\1\2\3\4\5"));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(nullptr, kKernels));
  EXPECT_EQ(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/no/such/file.ptx"));
  CUcontext popped = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxPopCurrent(&popped));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuModuleLoadData(&module, kKernels));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxPushCurrent(popped));
}

TEST_F(ModuleTest, LoadsFromAFile) {
  const OwnFolder folder;
  const std::string path = folder.file("kernels.ptx");
  std::ofstream(path) << kKernels;
  CUmodule module = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cuModuleLoad(&module, path.c_str()));
  EXPECT_EQ(CUDA_SUCCESS, cuModuleUnload(module));
}

TEST_F(ModuleTest, LinksSeveralTextsIntoALoadableImage) {
  CUlinkState link = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuLinkCreate(0, nullptr, nullptr, &link));
  ASSERT_EQ(CUDA_SUCCESS, cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCaller),
                                        sizeof(kCaller), "caller", 0, nullptr, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee),
                                        sizeof(kCallee), "callee", 0, nullptr, nullptr));
  void* image = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuLinkComplete(link, &image, &bytes));
  EXPECT_GT(bytes, sizeof(kCaller));
  CUmodule module = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, image));
  ASSERT_EQ(CUDA_SUCCESS, cuLinkDestroy(link));
  CUfunction doubled = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&doubled, module, "doubled"));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(words_, 21, 1));
  void* parameters[] = {&words_};
  ASSERT_EQ(CUDA_SUCCESS,
            cuLaunchKernel(doubled, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  EXPECT_EQ(42u, words()[0]);
}

TEST_F(ModuleTest, AMissingFunctionIsAnErrorOfTheLinkerWithALog) {
  char log[512] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUlinkState link = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuLinkCreate(2, options, values, &link));
  ASSERT_EQ(CUDA_SUCCESS, cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCaller),
                                        sizeof(kCaller), "caller", 0, nullptr, nullptr));
  void* image = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_PTX, cuLinkComplete(link, &image, nullptr));
  EXPECT_NE(std::string(log).find("twice"), std::string::npos) << log;
  EXPECT_EQ(CUDA_SUCCESS, cuLinkDestroy(link));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));
}

TEST_F(ModuleTest, ALibraryServesEveryContext) {
  CUlibrary library = nullptr;
  ASSERT_EQ(CUDA_SUCCESS,
            cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryGetKernel(&kernel, library, "fill"));
  ASSERT_EQ(CUDA_SUCCESS, launch(reinterpret_cast<CUfunction>(kernel), 5, stream_));
  EXPECT_EQ(all(5), words());
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, device_));
  CUfunction function = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuKernelGetFunction(&function, kernel));
  ASSERT_EQ(CUDA_SUCCESS, launch(function, 6, nullptr));
  EXPECT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  CUdeviceptr here = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryGetGlobal(&here, nullptr, library, "bias"));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
  CUdeviceptr there = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
  ASSERT_EQ(CUDA_SUCCESS, cuLibraryGetGlobal(&there, nullptr, library, "bias"));
  EXPECT_NE(here, there);
  EXPECT_EQ(CUDA_SUCCESS, cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, launch(reinterpret_cast<CUfunction>(kernel), 5, stream_));
}

}  // namespace
}  // namespace plexrl::simgpu
