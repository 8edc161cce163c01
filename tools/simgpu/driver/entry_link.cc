#include <memory>
#include <unordered_set>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/image.h"

// The linker of "Module Management" of the driver API. What it makes is an image of our own: the
// PTX texts, checked to load together, in a form that cuModuleLoadData takes.

namespace plexrl::simgpu {
namespace {

struct LinkState {
  JitOptions options;
  std::vector<std::string> sources;
  std::string image;
};

struct Links {
  std::mutex mutex;
  std::unordered_set<const void*> living;
};

Links& links() {
  static Links* const instance = new Links;
  return *instance;
}

LinkState* find_link(CUlinkState handle) {
  const std::lock_guard lock(links().mutex);
  return links().living.contains(handle) ? reinterpret_cast<LinkState*>(handle) : nullptr;
}

CUresult create(const JitOptions& options, CUlinkState* handle) {
  if (handle == nullptr || !options.is_valid()) return CUDA_ERROR_INVALID_VALUE;
  auto* const state = new LinkState;
  state->options = options;
  const std::lock_guard lock(links().mutex);
  links().living.insert(state);
  *handle = reinterpret_cast<CUlinkState>(state);
  return CUDA_SUCCESS;
}

// Machine code and LTO-IR are refused by read_image, whatever the caller calls them.
CUresult add(CUlinkState handle, CUjitInputType type, const void* data, std::size_t bytes) {
  LinkState* const state = find_link(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || bytes == 0 || type >= CU_JIT_NUM_INPUT_TYPES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = read_image(data, bytes, driver()->machine->spec().sm, &state->sources);
  if (result == CUDA_ERROR_INVALID_IMAGE && type == CU_JIT_INPUT_PTX) return CUDA_ERROR_INVALID_PTX;
  return result;
}

CUresult add_file(CUlinkState handle, CUjitInputType type, const char* path) {
  if (find_link(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::string bytes;
  const CUresult result = read_file(path, &bytes);
  return result != CUDA_SUCCESS ? result : add(handle, type, bytes.data(), bytes.size());
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuLinkCreate(unsigned int numOptions, CUjit_option* options,
                                            void** optionValues, CUlinkState* stateOut) {
  SIMGPU_ENTER_CONTEXT(cuLinkCreate);
  return create({numOptions, options, optionValues}, stateOut);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options,
                                               void** optionValues, CUlinkState* stateOut) {
  SIMGPU_ENTER_CONTEXT(cuLinkCreate_v2);
  return create({numOptions, options, optionValues}, stateOut);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLinkAddData(CUlinkState state, CUjitInputType type, void* data,
                                             size_t size, const char*, unsigned int, CUjit_option*,
                                             void**) {
  SIMGPU_ENTER(cuLinkAddData);
  return add(state, type, data, size);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data,
                                                size_t size, const char*, unsigned int,
                                                CUjit_option*, void**) {
  SIMGPU_ENTER(cuLinkAddData_v2);
  return add(state, type, data, size);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLinkAddFile(CUlinkState state, CUjitInputType type,
                                             const char* path, unsigned int, CUjit_option*,
                                             void**) {
  SIMGPU_ENTER(cuLinkAddFile);
  return add_file(state, type, path);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLinkAddFile_v2(CUlinkState state, CUjitInputType type,
                                                const char* path, unsigned int, CUjit_option*,
                                                void**) {
  SIMGPU_ENTER(cuLinkAddFile_v2);
  return add_file(state, type, path);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLinkComplete(CUlinkState handle, void** cubinOut,
                                              size_t* sizeOut) {
  SIMGPU_ENTER(cuLinkComplete);
  LinkState* const state = find_link(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (state->sources.empty()) return CUDA_ERROR_UNKNOWN;
  std::unique_ptr<ptx::Module> checked;
  std::string log;
  const CUresult result = load_ptx(state->sources, driver()->machine->spec().sm, &checked, &log);
  state->options.report(log, "", 0);
  if (result != CUDA_SUCCESS) return result;
  state->image = make_container(state->sources);
  *cubinOut = state->image.data();
  if (sizeOut != nullptr) *sizeOut = state->image.size();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuLinkDestroy(CUlinkState handle) {
  SIMGPU_ENTER(cuLinkDestroy);
  LinkState* const state = find_link(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(links().mutex);
  links().living.erase(state);
  delete state;
  return CUDA_SUCCESS;
}
