// NVML: what the devices' memory and time go to.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tools/simgpu/nvml/answers.h"
#include "tools/simgpu/nvml/session.h"

namespace plexrl::simgpu::nvml {
namespace {

constexpr unsigned kNoInstance = 0xffffffffu;  // MIG is off

void fill(nvmlProcessInfo_v1_t* entry, const Machine::Usage& use) {
  *entry = {static_cast<unsigned>(use.pid), use.bytes};
}
void fill(nvmlProcessInfo_v2_t* entry, const Machine::Usage& use) {
  *entry = {static_cast<unsigned>(use.pid), use.bytes, kNoInstance, kNoInstance};
}
void fill(nvmlProcessDetail_v1_t* entry, const Machine::Usage& use) {
  *entry = {static_cast<unsigned>(use.pid), use.bytes, kNoInstance, kNoInstance, 0};
}

/// The documented protocol of lists: with too little room, INSUFFICIENT_SIZE and the size needed.
template <typename Entry>
nvmlReturn_t list(const std::vector<Machine::Usage>& usage, unsigned* count, Entry* entries) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto size = static_cast<unsigned>(usage.size());
  const bool fits = size <= *count;
  *count = size;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (size > 0 && entries == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < size; ++i) fill(&entries[i], usage[i]);
  return NVML_SUCCESS;
}

template <typename Entry>
nvmlReturn_t compute_processes(nvmlDevice_t handle, unsigned* count, Entry* entries) {
  NVML_ENTER_DEVICE(handle);
  return list(session().usage(device), count, entries);
}

/// There are neither graphics nor MPS processes on this device.
nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned* count) {
  NVML_ENTER_DEVICE(handle);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace plexrl::simgpu::nvml

using namespace plexrl::simgpu::nvml;

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  NVML_ENTER_DEVICE(handle);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::uint64_t total = session().spec().memory_bytes;
  const std::uint64_t free = session().free_bytes(device);
  *memory = {total, free, total - free};
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  NVML_ENTER_DEVICE(handle);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned version = nvml_struct_version(sizeof *memory, 2);
  if (memory->version != version) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const std::uint64_t total = session().spec().memory_bytes;
  const std::uint64_t free = session().free_bytes(device);
  *memory = {version, total, 0, free, total - free};
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t* bar) {
  NVML_ENTER_DEVICE(handle);
  if (bar == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  constexpr std::uint64_t kBarBytes = 256ull << 20;
  *bar = {kBarBytes, kBarBytes, 0};
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle,
                                                       nvmlUtilization_t* utilization) {
  NVML_ENTER_DEVICE(handle);
  if (utilization == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned percent = session().busy_percent(device);
  *utilization = {percent, percent};  // the model doesn't tell memory's time from that of kernels
  return NVML_SUCCESS;
}

// Each list has three versions; the second brought another entry.
#define NVML_PROCESSES(symbol, Entry, call)                             \
  NVML_EXPORT nvmlReturn_t symbol(nvmlDevice_t handle, unsigned* count, \
                                  [[maybe_unused]] Entry* entries) {    \
    return call;                                                        \
  }
#define NVML_PROCESS_LISTS(base, call)                  \
  NVML_PROCESSES(base, nvmlProcessInfo_v1_t, call)      \
  NVML_PROCESSES(base##_v2, nvmlProcessInfo_v2_t, call) \
  NVML_PROCESSES(base##_v3, nvmlProcessInfo_v2_t, call)
NVML_PROCESS_LISTS(nvmlDeviceGetComputeRunningProcesses, compute_processes(handle, count, entries))
NVML_PROCESS_LISTS(nvmlDeviceGetGraphicsRunningProcesses, no_processes(handle, count))
NVML_PROCESS_LISTS(nvmlDeviceGetMPSComputeRunningProcesses, no_processes(handle, count))
#undef NVML_PROCESS_LISTS
#undef NVML_PROCESSES

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle,
                                                               nvmlProcessDetailList_v1_t* answer) {
  NVML_ENTER_DEVICE(handle);
  if (answer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (answer->version != nvml_struct_version(sizeof *answer, 1))
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  constexpr unsigned kCompute = 0;
  constexpr unsigned kAll = 3;
  if (answer->mode > kAll) return NVML_ERROR_INVALID_ARGUMENT;
  const bool wants_compute = answer->mode == kCompute || answer->mode == kAll;
  const std::vector<plexrl::simgpu::Machine::Usage> none;
  return list(wants_compute ? session().usage(device) : none, &answer->numProcArrayEntries,
              answer->procArray);
}
