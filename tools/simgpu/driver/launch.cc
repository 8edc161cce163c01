#include "tools/simgpu/driver/launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/occupancy.h"
#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint32_t kMaxBlock[3] = {1024, 1024, 64};
constexpr std::uint32_t kMaxGrid[3] = {0x7fffffff, 65535, 65535};

CUresult copy_from_pointers(const ptx::KernelInfo& kernel, void** pointers,
                            std::vector<std::byte>* arguments) {
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    if (pointers[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const ptx::Parameter& parameter = kernel.parameters[i];
    std::memcpy(arguments->data() + parameter.offset, pointers[i], parameter.bytes);
  }
  return CUDA_SUCCESS;
}

CUresult copy_from_extra(const ptx::KernelInfo& kernel, void** extra,
                         std::vector<std::byte>* arguments) {
  const void* buffer = nullptr;
  const std::size_t* bytes = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const std::size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const std::size_t given = bytes != nullptr ? *bytes : 0;
  if (given < kernel.parameter_bytes || (given > 0 && buffer == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A caller may have rounded the size up; what lies behind the last parameter is not ours.
  if (kernel.parameter_bytes > 0) std::memcpy(arguments->data(), buffer, kernel.parameter_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult collect_arguments(const Function& function, void** pointers, void** extra,
                           std::vector<std::byte>* arguments) {
  const ptx::KernelInfo& kernel = ptx::info(*function.kernel);
  if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  arguments->assign(kernel.parameter_bytes, std::byte{0});
  if (extra != nullptr) return copy_from_extra(kernel, extra, arguments);
  if (kernel.parameters.empty()) return CUDA_SUCCESS;
  if (pointers == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_from_pointers(kernel, pointers, arguments);
}

/// CUDA_LAUNCH_BLOCKING: a launch returns when its kernel has ended (CUDA programming guide, "CUDA
/// Environment Variables").
bool launches_block() {
  static const bool blocks = [] {
    const char* const text = std::getenv("CUDA_LAUNCH_BLOCKING");
    return text != nullptr && std::atoi(text) != 0;
  }();
  return blocks;
}

CUresult check_shape(const Function& function, const LaunchShape& shape) {
  const ptx::KernelInfo& kernel = ptx::info(*function.kernel);
  const Spec& spec = driver()->machine->spec();
  std::uint64_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const bool is_possible = shape.grid[axis] >= 1 && shape.grid[axis] <= kMaxGrid[axis] &&
                             shape.block[axis] >= 1 && shape.block[axis] <= kMaxBlock[axis];
    if (!is_possible) return CUDA_ERROR_INVALID_VALUE;
    threads *= shape.block[axis];
  }
  if (threads > static_cast<std::uint64_t>(std::min(kernel.max_threads, kMaxThreadsPerBlock))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto most_dynamic = static_cast<std::uint32_t>(function.settings.max_dynamic_shared.load());
  const Architecture& device = architecture(spec.sm);
  const std::size_t shared = kernel.static_shared_bytes + shape.dynamic_shared;
  if (shape.dynamic_shared > most_dynamic || shared > device.shared_per_block_opt_in ||
      (shared > device.shared_per_block && most_dynamic <= device.shared_per_block)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!shape.is_cooperative) return CUDA_SUCCESS;
  const int per_sm = blocks_per_sm(kernel, device, static_cast<int>(threads), shape.dynamic_shared);
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  const bool fits = blocks <= static_cast<std::uint64_t>(per_sm) * static_cast<unsigned>(spec.sms);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult make_launch(const Function& function, const LaunchShape& shape, void** pointers,
                     void** extra, std::unique_ptr<Operation>* operation) {
  if (const CUresult result = check_shape(function, shape); result != CUDA_SUCCESS) return result;
  ptx::LaunchConfig config;
  for (int axis = 0; axis < 3; ++axis) {
    config.grid[axis] = shape.grid[axis];
    config.block[axis] = shape.block[axis];
  }
  config.dynamic_shared_bytes = shape.dynamic_shared;
  config.cooperative = shape.is_cooperative;
  const CUresult result = collect_arguments(function, pointers, extra, &config.parameters);
  if (result != CUDA_SUCCESS) return result;
  *operation = std::make_unique<KernelOperation>(function.kernel, function.native, function.image,
                                                 std::move(config));
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, const LaunchShape& shape, CUstream stream_handle,
                bool per_thread, void** pointers, void** extra) {
  Stream* stream = nullptr;
  if (const CUresult result = find_stream(stream_handle, per_thread, &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  Function* function = nullptr;
  CUresult result = find_function(handle, stream->context(), &function);
  if (result != CUDA_SUCCESS) return result;
  // A function belongs to the context that its module was loaded in.
  if (function->image->context() != stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  std::unique_ptr<Operation> operation;
  result = make_launch(*function, shape, pointers, extra, &operation);
  if (result != CUDA_SUCCESS) return result;
  CompletionPtr done;
  result = submit(stream_handle, per_thread, std::move(operation), &done);
  if (done != nullptr && launches_block()) done->wait();
  return result;
}

}  // namespace plexrl::simgpu
