#include <algorithm>
#include <cstring>

#include "interpose/handlers.h"
#include "interpose/nvml.h"
#include "shim/hooks.h"
#include "shim/job_view.h"
#include "shim/process.h"

/// NVML's memory figures, from the same source as cuMemGetInfo. A process that only asks NVML is
/// not started for it: before it has used a GPU the job's promise is free, and nothing of it is
/// used.

namespace plexrl::shim {
namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// "GPU-8-4-4-4-12", the form of nvmlDeviceGetUUID.
bool parse_uuid(const char* text, wire::GpuUuid* uuid) noexcept {
  if (std::strncmp(text, "GPU-", 4) != 0) return false;
  int digits = 0;
  for (const char* at = text + 4; *at != '\0'; ++at) {
    if (*at == '-') continue;
    const int digit = hex_digit(*at);
    if (digit < 0 || digits == 32) return false;
    std::uint8_t& byte = uuid->bytes[digits / 2];
    byte = static_cast<std::uint8_t>(digits % 2 == 0 ? digit << 4 : byte | digit);
    ++digits;
  }
  return digits == 32;
}

std::optional<Devices::Figures> figures_of(nvmlDevice_t device, std::uint64_t real_total) {
  Process* const process = Process::started();
  char text[96] = {};
  wire::GpuUuid uuid{};
  if (process != nullptr && nvml.nvmlDeviceGetUUID(device, text, sizeof text) == NVML_SUCCESS &&
      parse_uuid(text, &uuid)) {
    for (const Devices::Attached& attached : process->devices.all()) {
      if (attached.uuid != uuid) continue;
      // As cuMemGetInfo does; but NVML never waits, and who only looks is not in the driver.
      if (!absence.is_on() && process->pools.has_unused(attached.device)) {
        const DriverCall inside;
        process->pools.make_room(attached.device);
      }
      return process->devices.figures(attached.device);
    }
  }
  const std::uint64_t promise = promise_from_environment();
  if (promise == ~std::uint64_t{0}) return std::nullopt;
  return Devices::Figures{std::min(promise, real_total), 0};
}

template <typename Memory>
nvmlReturn_t answer(nvmlDevice_t device, Memory* memory, nvmlReturn_t result) noexcept {
  if (result != NVML_SUCCESS) return result;
  try {
    if (const auto figures = figures_of(device, memory->total)) {
      memory->total = figures->promised_bytes;
      memory->used = std::min(figures->used_bytes, figures->promised_bytes);
      memory->free = memory->total - memory->used;
      if constexpr (requires { memory->reserved; }) memory->reserved = 0;
    }
  } catch (...) {
    return result;  // no memory: the real figures are better than none
  }
  return result;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) noexcept {
  return answer(device, memory, nvml.nvmlDeviceGetMemoryInfo(device, memory));
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) noexcept {
  return answer(device, memory, nvml.nvmlDeviceGetMemoryInfo_v2(device, memory));
}

// Engines look themselves up by their pid in these lists: the driver's own are right.

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                  nvmlProcessInfo_v1_t* infos) noexcept {
  return nvml.nvmlDeviceGetComputeRunningProcesses(device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v2_t* infos) noexcept {
  return nvml.nvmlDeviceGetComputeRunningProcesses_v2(device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_t* infos) noexcept {
  return nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, infoCount, infos);
}

}  // namespace plexrl::shim
