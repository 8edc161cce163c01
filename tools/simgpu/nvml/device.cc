// NVML: which devices there are, and what does not change while they run.

#include <cstdio>
#include <string>

#include "tools/simgpu/nvml/answers.h"
#include "tools/simgpu/nvml/session.h"

namespace plexrl::simgpu::nvml {
namespace {

constexpr unsigned kBrandUnknown = 0;
constexpr unsigned kArchitectureTuring = 6;
constexpr unsigned kArchitectureAmpere = 7;
constexpr unsigned kArchitectureHopper = 9;
constexpr unsigned kCoresPerMultiprocessor = 64;
constexpr unsigned kBusTypePcie = 2;
constexpr unsigned kTopologySystem = 50;
constexpr unsigned kTopologyInternal = 0;

/// The places that cuDeviceGetPCIBusId names: one bus a device.
unsigned bus_of(int device) { return static_cast<unsigned>(device) + 1; }

template <typename T>
nvmlReturn_t answer(T* target, T value) {
  if (target == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *target = value;
  return NVML_SUCCESS;
}

nvmlReturn_t handle_by_bus(const char* text, nvmlDevice_t* handle) {
  NVML_ENTER();
  if (text == nullptr || handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return NVML_ERROR_INVALID_ARGUMENT;
  const auto count = static_cast<unsigned>(session().spec().gpus);
  if (domain != 0 || slot != 0 || bus == 0 || bus > count) return NVML_ERROR_NOT_FOUND;
  *handle = handle_of(static_cast<int>(bus) - 1);
  return NVML_SUCCESS;
}

nvmlReturn_t pci_info(nvmlDevice_t handle, nvmlPciInfo_t* pci) {
  NVML_ENTER_DEVICE(handle);
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *pci = {};
  pci->bus = bus_of(device);  // no vendor and no device id: this is no NVIDIA device
  std::snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:00.0", 0u, pci->bus);
  std::snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:00.0", 0u, pci->bus);
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace plexrl::simgpu::nvml

using namespace plexrl::simgpu::nvml;

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  NVML_ENTER();
  return answer(count, static_cast<unsigned>(session().spec().gpus));
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned* count) {
  return nvmlDeviceGetCount_v2(count);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* handle) {
  NVML_ENTER();
  if (handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (index >= static_cast<unsigned>(session().spec().gpus)) return NVML_ERROR_INVALID_ARGUMENT;
  *handle = handle_of(static_cast<int>(index));
  return NVML_SUCCESS;
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* handle) {
  NVML_ENTER();
  if (uuid == nullptr || handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < session().spec().gpus; ++i) {
    if (plexrl::simgpu::uuid_text(session().uuid(i)) != uuid) continue;
    *handle = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* text, nvmlDevice_t* handle) {
  return handle_by_bus(text, handle);
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* text, nvmlDevice_t* handle) {
  return handle_by_bus(text, handle);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned length) {
  NVML_ENTER_DEVICE(handle);
  return answer_text("PlexRL Simulated GPU", name, length);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned length) {
  NVML_ENTER_DEVICE(handle);
  return answer_text(plexrl::simgpu::uuid_text(session().uuid(device)), uuid, length);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
  NVML_ENTER_DEVICE(handle);
  return answer(index, static_cast<unsigned>(device));
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned* minor) {
  return nvmlDeviceGetIndex(handle, minor);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* pci) {
  return pci_info(handle, pci);
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_t* pci) {
  nvmlPciInfo_t full;
  const nvmlReturn_t result =
      pci == nullptr ? NVML_ERROR_INVALID_ARGUMENT : pci_info(handle, &full);
  // The second form ends before the long name of the bus.
  if (result == NVML_SUCCESS) __builtin_memcpy(pci, &full, offsetof(nvmlPciInfo_t, busId));
  return result;
}
NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_v1_t* pci) {
  nvmlPciInfo_t full;
  const nvmlReturn_t result =
      pci == nullptr ? NVML_ERROR_INVALID_ARGUMENT : pci_info(handle, &full);
  if (result == NVML_SUCCESS) __builtin_memcpy(pci, &full, sizeof *pci);
  return result;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t handle, unsigned* brand) {
  NVML_ENTER_DEVICE(handle);
  return answer(brand, kBrandUnknown);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, unsigned* architecture) {
  NVML_ENTER_DEVICE(handle);
  const int sm = session().spec().sm;
  return answer(architecture, sm >= 90   ? kArchitectureHopper
                              : sm >= 80 ? kArchitectureAmpere
                                         : kArchitectureTuring);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major,
                                                            int* minor) {
  NVML_ENTER_DEVICE(handle);
  if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *major = session().spec().sm / 10;
  *minor = session().spec().sm % 10;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t handle, unsigned* cores) {
  NVML_ENTER_DEVICE(handle);
  return answer(cores, static_cast<unsigned>(session().spec().sms) * kCoresPerMultiprocessor);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t handle, unsigned* type) {
  NVML_ENTER_DEVICE(handle);
  return answer(type, kBusTypePcie);
}

// Modes that are off, and counts that are zero, on this device.
#define NVML_ZERO(symbol)                                                 \
  NVML_EXPORT nvmlReturn_t symbol(nvmlDevice_t handle, unsigned* value) { \
    NVML_ENTER_DEVICE(handle);                                            \
    return answer(value, 0u);                                             \
  }
NVML_ZERO(nvmlDeviceGetComputeMode)
NVML_ZERO(nvmlDeviceGetPersistenceMode)
NVML_ZERO(nvmlDeviceGetDisplayMode)
NVML_ZERO(nvmlDeviceGetDisplayActive)
NVML_ZERO(nvmlDeviceGetMultiGpuBoard)
NVML_ZERO(nvmlDeviceIsMigDeviceHandle)
NVML_ZERO(nvmlDeviceGetMaxMigDeviceCount)
#undef NVML_ZERO

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t handle, unsigned* board) {
  NVML_ENTER_DEVICE(handle);
  return answer(board, bus_of(device) << 8);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int* same) {
  NVML_ENTER();
  if (!device_of(one) || !device_of(other)) return NVML_ERROR_INVALID_ARGUMENT;
  return answer(same, one == other ? 1 : 0);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                             unsigned* level) {
  NVML_ENTER();
  if (!device_of(one) || !device_of(other)) return NVML_ERROR_INVALID_ARGUMENT;
  return answer(level, one == other ? kTopologyInternal : kTopologySystem);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other,
                                                unsigned capability, unsigned* status) {
  NVML_ENTER();
  if (!device_of(one) || !device_of(other)) return NVML_ERROR_INVALID_ARGUMENT;
  constexpr unsigned kNvlink = 2;
  constexpr unsigned kLastCapability = 4;
  constexpr unsigned kOk = 0;
  constexpr unsigned kNotSupported = 5;
  if (capability > kLastCapability) return NVML_ERROR_INVALID_ARGUMENT;
  return answer(status, capability == kNvlink ? kNotSupported : kOk);
}
