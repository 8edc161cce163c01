// Takes memory of one kind twice, the first time by a driver that fails once (PLEXRL_SIMGPU,
// fail=), and says what each attempt answered and whether what is told as free fell and rose
// again. For run_failures.py; the argument is the kind.
#include <functional>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20;
constexpr std::size_t kSide = 1024;  // of a square of words: kBytes

/// What one attempt has made, and how it is used and given back.
struct Taken {
  CUresult result;
  std::function<void()> use = [] {};
  std::function<void()> give_back = [] {};
  bool stays = true;  ///< taken until it is given back, not only while work runs
};

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

/// Writes words into an array and prints what comes back.
void use_array(CUarray array) {
  const std::vector<unsigned char> data = pattern(kBytes, 5);
  std::vector<unsigned char> back(kBytes);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = data.data();
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = kSide * 4;
  copy.Height = kSide;
  CHECK(cuMemcpy2D(&copy));
  CUDA_MEMCPY2D other = copy;
  other.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  other.srcArray = array;
  other.dstMemoryType = CU_MEMORYTYPE_HOST;
  other.dstHost = back.data();
  CHECK(cuMemcpy2D(&other));
  print_host("  bytes", back.data(), kBytes);
}

CUDA_ARRAY3D_DESCRIPTOR square(std::size_t depth, unsigned flags) {
  return {kSide, kSide, depth, CU_AD_FORMAT_UNSIGNED_INT32, 1, flags};
}

Taken array(const Program&) {
  const CUDA_ARRAY_DESCRIPTOR shape{kSide, kSide, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CUarray made = nullptr;
  return {cuArrayCreate(&made, &shape), [=] { use_array(made); },
          [=] { CHECK(cuArrayDestroy(made)); }};
}

Taken array3d(const Program&) {
  const auto shape = square(4, 0);
  CUarray made = nullptr;
  return {cuArray3DCreate(&made, &shape), [] {}, [=] { CHECK(cuArrayDestroy(made)); }};
}

Taken mipmapped(const Program&) {
  const auto shape = square(0, 0);
  CUmipmappedArray made = nullptr;
  const CUresult result = cuMipmappedArrayCreate(&made, &shape, 4);
  return {result,
          [=] {
            CUarray level;
            CHECK(cuMipmappedArrayGetLevel(&level, made, 0));
            use_array(level);
          },
          [=] { CHECK(cuMipmappedArrayDestroy(made)); }};
}

Taken managed(const Program&) {
  CUdeviceptr made = 0;
  const CUresult result = cuMemAllocManaged(&made, kBytes, CU_MEM_ATTACH_GLOBAL);
  return {result,
          [=] {
            CHECK(cuMemsetD32(made, 9, kBytes / 4));
            CHECK(cuCtxSynchronize());
            print_host("  bytes", reinterpret_cast<const void*>(made), kBytes);
          },
          [=] { CHECK(cuMemFree(made)); }};
}

/// A texture or a surface on an array of its own.
template <typename Object, typename Create, typename Destroy>
Taken object(Create create, Destroy destroy) {
  const auto shape = square(0, CUDA_ARRAY3D_SURFACE_LDST);
  CUarray below;
  CHECK(cuArray3DCreate(&below, &shape));
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = below;
  Object made = 0;
  const CUresult result = create(&made, resource);
  if (result != CUDA_SUCCESS) CHECK(cuArrayDestroy(below));
  return {result, [=] { use_array(below); },
          [=] {
            CHECK(destroy(made));
            CHECK(cuArrayDestroy(below));
          }};
}

Taken texture(const Program&) {
  return object<CUtexObject>(
      [](CUtexObject* made, const CUDA_RESOURCE_DESC& resource) {
        const CUDA_TEXTURE_DESC description{};
        return cuTexObjectCreate(made, &resource, &description, nullptr);
      },
      [](CUtexObject made) { return cuTexObjectDestroy(made); });
}

Taken surface(const Program&) {
  return object<CUsurfObject>(
      [](CUsurfObject* made, const CUDA_RESOURCE_DESC& resource) {
        return cuSurfObjectCreate(made, &resource);
      },
      [](CUsurfObject made) { return cuSurfObjectDestroy(made); });
}

/// A graph that allocates, fills and frees.
CUgraph graph_with_memory(CUdevice device) {
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS memory{};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  memory.bytesize = kBytes;
  CUgraphNode allocating, filling, freeing;
  CHECK(cuGraphAddMemAllocNode(&allocating, graph, nullptr, 0, &memory));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = memory.dptr;
  fill.elementSize = 4;
  fill.width = kBytes / 4;
  fill.height = 1;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  CHECK(cuGraphAddMemsetNode(&filling, graph, &allocating, 1, &fill, context));
  CHECK(cuGraphAddMemFreeNode(&freeing, graph, &filling, 1, memory.dptr));
  return graph;
}

Taken graph(const Program& program) {
  const CUgraph made = graph_with_memory(program.device());
  const CUdevice device = program.device();
  CUgraphExec exec = nullptr;
  CUresult result = cuGraphInstantiate(&exec, made, 0);
  CHECK(cuGraphDestroy(made));
  if (result == CUDA_SUCCESS && (result = cuGraphLaunch(exec, nullptr)) != CUDA_SUCCESS)
    CHECK(cuGraphExecDestroy(exec));
  return {result, [] { CHECK(cuCtxSynchronize()); },
          [=] {
            CHECK(cuGraphExecDestroy(exec));
            CHECK(cuDeviceGraphMemTrim(device));
          },
          false};
}

Taken pool(const Program& program) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  CUmemoryPool made = nullptr;
  CUdeviceptr memory = 0;
  const CUresult result = cuMemPoolCreate(&made, &properties);
  if (result == CUDA_SUCCESS) CHECK(cuMemAllocFromPoolAsync(&memory, kBytes, made, nullptr));
  return {result,
          [=] {
            CHECK(cuMemsetD32(memory, 3, kBytes / 4));
            print_device("  bytes", memory, kBytes);
          },
          [=] {
            CHECK(cuMemFreeAsync(memory, nullptr));
            CHECK(cuCtxSynchronize());
            CHECK(cuMemPoolDestroy(made));
          }};
}

const struct {
  const char* name;
  Taken (*take)(const Program&);
} kKinds[] = {{"array", array},     {"array3d", array3d}, {"mipmapped", mipmapped},
              {"managed", managed}, {"texture", texture}, {"surface", surface},
              {"graph", graph},     {"pool", pool}};

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  for (const auto& known : kKinds) {
    if (known.name != kind) continue;
    Program program;
    for (int attempt = 1; attempt <= 2; ++attempt) {
      const std::size_t before = free_bytes();
      const Taken taken = known.take(program);
      if (taken.result == CUDA_SUCCESS) {
        taken.use();
        if (taken.stays) std::printf("  took some: %d\n", before >= free_bytes() + kBytes);
        taken.give_back();
      }
      std::printf("attempt %d: %s, all free again: %d\n", attempt, error_name(taken.result).c_str(),
                  before == free_bytes());
      std::fflush(stdout);
      program.pause();
    }
    return 0;
  }
  return 2;
}
