#include <cstring>

#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/driver/entry_points.h"
#include "tools/simgpu/driver/nic_table.h"

// Versions and addresses of functions. All of these may be called before cuInit.

namespace {

using plexrl::simgpu::driver_version;
using plexrl::simgpu::EntryPoint;
using plexrl::simgpu::find_entry_point;
using plexrl::simgpu::Lookup;

// Both forms of cuGetProcAddress but for the answer to a name that isn't there.
CUresult look_up(const char* symbol, void** pfn, int version, cuuint64_t flags, Lookup* outcome) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_known_flag = flags == CU_GET_PROC_ADDRESS_DEFAULT ||
                             flags == CU_GET_PROC_ADDRESS_LEGACY_STREAM ||
                             flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!is_known_flag || version > driver_version()) return CUDA_ERROR_INVALID_VALUE;
  const EntryPoint* found = nullptr;
  *outcome = find_entry_point(symbol, version,
                              flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found);
  *pfn = *outcome == Lookup::kFound ? found->address : nullptr;
  return CUDA_SUCCESS;
}

CUdriverProcAddressQueryResult status_of(Lookup outcome) {
  switch (outcome) {
    case Lookup::kFound:
      return CU_GET_PROC_ADDRESS_SUCCESS;
    case Lookup::kVersionNotSufficient:
      return CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    case Lookup::kNotFound:
      break;
  }
  return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = driver_version();
  return CUDA_SUCCESS;
}

// The form of CUDA 11, whose reference says NOT_FOUND where the present one says a null pointer.
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                  cuuint64_t flags) {
  Lookup outcome = Lookup::kNotFound;
  const CUresult result = look_up(symbol, pfn, cudaVersion, flags, &outcome);
  if (result != CUDA_SUCCESS) return result;
  return outcome == Lookup::kFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                     cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  Lookup outcome = Lookup::kNotFound;
  const CUresult result = look_up(symbol, pfn, cudaVersion, flags, &outcome);
  if (result == CUDA_SUCCESS && symbolStatus != nullptr) *symbolStatus = status_of(outcome);
  return result;
}

// Private tables of NVIDIA's own runtime. There are none here, and none are imitated: NVRTC, which
// asks, is content with that answer. One is for the simulated NIC.
CUresult CUDAAPI cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  if (std::memcmp(pExportTableId, &plexrl::simgpu::kNicTableId, sizeof(CUuuid)) == 0) {
    *ppExportTable = &plexrl::simgpu::nic_table();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
