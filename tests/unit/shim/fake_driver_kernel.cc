#include <algorithm>
#include <cstring>
#include <vector>

#include "shim/chunk_hash.h"
#include "tests/unit/shim/fake_driver.h"

/// The one kernel that the fake driver knows: that of chunk_hash.h.

namespace plexrl::shim::testing {
namespace {

FakeDriver* fake = nullptr;

#define COUNT(name)                        \
  const std::lock_guard lock(fake->mutex); \
  if (const CUresult failed = fake->count(#name); failed != CUDA_SUCCESS) return failed

template <typename T>
T new_object() {
  return reinterpret_cast<T>(fake->next_object += 0x100);
}

CUresult module_load(CUmodule* module, const void* image) {
  COUNT(cuModuleLoadData);
  if (std::strcmp(static_cast<const char*>(image), chunk_hash::kPtx) != 0) {
    return CUDA_ERROR_INVALID_PTX;
  }
  *module = new_object<CUmodule>();
  return CUDA_SUCCESS;
}

CUresult module_unload(CUmodule) {
  COUNT(cuModuleUnload);
  return CUDA_SUCCESS;
}

CUresult module_get_function(CUfunction* function, CUmodule, const char* name) {
  COUNT(cuModuleGetFunction);
  if (std::strcmp(name, chunk_hash::kName) != 0) return CUDA_ERROR_NOT_FOUND;
  *function = new_object<CUfunction>();
  return CUDA_SUCCESS;
}

/// What the kernel is given.
struct HashArguments {
  std::uint64_t in, bytes, key, out, differs;
};

CUresult run_hash(const HashArguments& its) {
  std::vector<std::byte> in(its.bytes);
  std::vector<std::byte> key(chunk_hash::kKeyBytes);
  if (!fake->read(its.in, &in) || !fake->read(its.key, &key)) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t first = 0;
  std::memcpy(&first, in.data(), sizeof first);
  const std::size_t blocks = chunk_hash::blocks(in.size());
  std::vector<std::byte> out(blocks * chunk_hash::kOutBytes);
  bool differs = false;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t at = block * chunk_hash::kBlockBytes;
    std::uint64_t sums[chunk_hash::kStreams];
    differs |= chunk_hash::hash_block(&in[at], std::min(chunk_hash::kBlockBytes, in.size() - at),
                                      key.data(), first, sums);
    std::memcpy(&out[block * chunk_hash::kOutBytes], sums, sizeof sums);
  }
  if (!fake->write(its.out, out)) return CUDA_ERROR_INVALID_VALUE;
  if (its.differs == 0) return CUDA_SUCCESS;
  std::vector<std::byte> repeat(sizeof(chunk_hash::Repeat));
  if (!fake->read(its.differs, &repeat)) return CUDA_ERROR_INVALID_VALUE;
  if (differs) repeat[0] = std::byte{1};
  std::memcpy(&repeat[offsetof(chunk_hash::Repeat, first)], &first, sizeof first);
  return fake->write(its.differs, repeat) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_kernel(CUfunction, unsigned int grid, unsigned int, unsigned int, unsigned int,
                       unsigned int, unsigned int, unsigned int, CUstream stream, void** arguments,
                       void**) {
  COUNT(cuLaunchKernel);
  HashArguments its{};
  std::uint64_t* const values[] = {&its.in, &its.bytes, &its.key, &its.out, &its.differs};
  for (int i = 0; i < 5; ++i) std::memcpy(values[i], arguments[i], sizeof *values[i]);
  const std::size_t blocks = chunk_hash::blocks(its.bytes);
  if (grid * chunk_hash::kWarpsPerGridBlock < blocks) return CUDA_ERROR_INVALID_VALUE;
  return fake->submit(stream, its.in, its.bytes, [its] { return run_hash(its); });
}

}  // namespace

void FakeDriver::have_kernel() {
  fake = this;
  driver.cuModuleLoadData = &module_load;
  driver.cuModuleUnload = &module_unload;
  driver.cuModuleGetFunction = &module_get_function;
  driver.cuLaunchKernel = &launch_kernel;
}

}  // namespace plexrl::shim::testing
