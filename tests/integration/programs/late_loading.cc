// Libraries of which nothing is loaded before the first call that needs it (CUDA_MODULE_LOADING,
// lazy loading), each with a variable that has no room beside the neighbour's memory: every call
// that may be this first one finds room, instead of failing for lack of memory.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

// A variable of 40 MiB that begins with 1234567, and a kernel that tells its first word.
constexpr const char* kCode = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 late_words[10485760] = {1234567};
.visible .entry first_word(.param .u64 out)
{
  .reg .u64 %address;
  .reg .u32 %word;
  ld.global.u32 %word, [late_words];
  ld.param.u64 %address, [out];
  cvta.to.global.u64 %address, %address;
  st.global.u32 [%address], %word;
  ret;
}
)";

/// What nothing has been loaded of yet.
struct Late {
  CUlibrary library;
  CUkernel kernel;
  CUdeviceptr out;
  CUfunction function() const { return reinterpret_cast<CUfunction>(kernel); }
};

struct Call {
  const char* name;
  CUresult (*make)(const Late&, CUdevice);
};

CUlaunchConfig one_thread() {
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  return config;
}

const Call kCalls[] = {
    {"cuLibraryGetModule",
     [](const Late& late, CUdevice) {
       CUmodule module;
       return cuLibraryGetModule(&module, late.library);
     }},
    {"cuLibraryGetGlobal",
     [](const Late& late, CUdevice) {
       CUdeviceptr address;
       std::size_t bytes;
       return cuLibraryGetGlobal(&address, &bytes, late.library, "late_words");
     }},
    {"cuKernelGetFunction",
     [](const Late& late, CUdevice) {
       CUfunction function;
       return cuKernelGetFunction(&function, late.kernel);
     }},
    {"cuKernelGetAttribute",
     [](const Late& late, CUdevice device) {
       int threads;
       return cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, late.kernel,
                                   device);
     }},
    {"cuKernelSetAttribute",
     [](const Late& late, CUdevice device) {
       return cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024,
                                   late.kernel, device);
     }},
    {"cuKernelGetParamInfo",
     [](const Late& late, CUdevice) {
       std::size_t offset, bytes;
       return cuKernelGetParamInfo(late.kernel, 0, &offset, &bytes);
     }},
    {"cuFuncGetAttribute",
     [](const Late& late, CUdevice) {
       int threads;
       return cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                 late.function());
     }},
    {"cuFuncSetAttribute",
     [](const Late& late, CUdevice) {
       return cuFuncSetAttribute(late.function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 1024);
     }},
    {"cuFuncSetCacheConfig",
     [](const Late& late, CUdevice) {
       return cuFuncSetCacheConfig(late.function(), CU_FUNC_CACHE_PREFER_L1);
     }},
    {"cuFuncGetModule",
     [](const Late& late, CUdevice) {
       CUmodule module;
       return cuFuncGetModule(&module, late.function());
     }},
    {"cuFuncLoad", [](const Late& late, CUdevice) { return cuFuncLoad(late.function()); }},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor",
     [](const Late& late, CUdevice) {
       int blocks;
       return cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, late.function(), 128, 0);
     }},
    {"cuOccupancyMaxPotentialBlockSize",
     [](const Late& late, CUdevice) {
       int grid, block;
       return cuOccupancyMaxPotentialBlockSize(&grid, &block, late.function(), nullptr, 0, 0);
     }},
    {"cuOccupancyAvailableDynamicSMemPerBlock",
     [](const Late& late, CUdevice) {
       std::size_t bytes;
       return cuOccupancyAvailableDynamicSMemPerBlock(&bytes, late.function(), 1, 128);
     }},
    {"cuLaunchKernel",
     [](const Late& late, CUdevice) {
       CUdeviceptr out = late.out;
       void* arguments[] = {&out};
       return cuLaunchKernel(late.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
     }},
    {"cuLaunchKernelEx",
     [](const Late& late, CUdevice) {
       CUdeviceptr out = late.out;
       void* arguments[] = {&out};
       const CUlaunchConfig config = one_thread();
       return cuLaunchKernelEx(&config, late.function(), arguments, nullptr);
     }},
    {"cuGraphAddKernelNode",
     [](const Late& late, CUdevice) {
       CUdeviceptr out = late.out;
       void* arguments[] = {&out};
       CUDA_KERNEL_NODE_PARAMS node{};
       node.func = late.function();
       node.gridDimX = node.gridDimY = node.gridDimZ = 1;
       node.blockDimX = node.blockDimY = node.blockDimZ = 1;
       node.kernelParams = arguments;
       CUgraph graph;
       CUgraphNode added;
       CHECK(cuGraphCreate(&graph, 0));
       const CUresult result = cuGraphAddKernelNode(&added, graph, nullptr, 0, &node);
       CHECK(cuGraphDestroy(graph));
       return result;
     }},
};

}  // namespace

int main() {
  Program program;
  const CUdeviceptr out = allocate(4);
  for (const Call& call : kCalls) {
    Late late{};
    late.out = out;
    CHECK(cuLibraryLoadData(&late.library, kCode, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cuLibraryGetKernel(&late.kernel, late.library, "first_word"));
    program.pause();
    std::printf("%s: %s\n", call.name, error_name(call.make(late, program.device())).c_str());
    CHECK(cuMemsetD32(out, 0, 1));
    launch(late.function(), 1, nullptr, out);
    std::uint32_t word = 0;
    CHECK(cuMemcpyDtoH(&word, out, 4));
    std::printf("  its first word: %u\n", word);
    CHECK(cuLibraryUnload(late.library));
  }
  CHECK(cuMemFree(out));
}
