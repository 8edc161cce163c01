// Devices: how many, which, and what they can.

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

bool is_ordinal(CUdevice device) {
  return device >= 0 && static_cast<std::size_t>(device) < driver()->visible.size();
}

/// The figures of one real architecture (7.5, Turing: "Compute Capabilities", CUDA C++ programming
/// guide), with the number of multiprocessors, the clocks and the memory that the spec gives.
CUresult attribute(CUdevice device, CUdevice_attribute which, int* value) {
  const Spec& spec = driver()->machine->spec();
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *value = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      *value = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *value = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 48 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 64 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = 64 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      *value = 64 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *value = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1'000'000;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 1'000'000;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 4 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH:
      *value = 131072;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH:
      *value = 16384;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT:
      *value = 32768;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS:
      *value = 2048;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH:
      *value = 1 << 28;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT:
      *value = 65000;
      break;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH:
      *value = 2097120;
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      *value = 512;
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      *value = 512;
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
      *value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 2;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = spec.sms;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *value = 16;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = spec.sm / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = spec.sm % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      *value = CU_COMPUTEMODE_DEFAULT;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = driver()->visible[static_cast<std::size_t>(device)] + 1;
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    // Managed memory is device memory that the host reaches too, at the same time (managed.h).
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
      *value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
      *value = spec.sm >= 90 ? 1 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      *value = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
      break;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      *value = 32;
      break;
    default:
      if (which <= 0 || which >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;  // everything that this device lacks
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetCount(int* count) {
  SIMGPU_ENTER(cuDeviceGetCount);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(driver()->visible.size());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  SIMGPU_ENTER(cuDeviceGet);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetName);
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", kDeviceName);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetUuid_v2);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto bytes = driver()->machine->uuid(driver()->visible[static_cast<std::size_t>(device)]);
  std::memcpy(uuid->bytes, bytes.data(), bytes.size());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  SIMGPU_ENTER(cuDeviceTotalMem_v2);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = driver()->machine->total_bytes(driver()->visible[static_cast<std::size_t>(device)]);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute which,
                                                    CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetAttribute);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  return attribute(device, which, value);
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  SIMGPU_ENTER(cuDeviceComputeCapability);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *major = driver()->machine->spec().sm / 10;
  *minor = driver()->machine->spec().sm % 10;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetProperties);
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *properties = {};
  const auto read = [&](CUdevice_attribute which, int* value) { attribute(device, which, value); };
  read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &properties->maxThreadsPerBlock);
  read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &properties->maxThreadsDim[0]);
  read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &properties->maxThreadsDim[1]);
  read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &properties->maxThreadsDim[2]);
  read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &properties->maxGridSize[0]);
  read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &properties->maxGridSize[1]);
  read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &properties->maxGridSize[2]);
  read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &properties->sharedMemPerBlock);
  read(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &properties->totalConstantMemory);
  read(CU_DEVICE_ATTRIBUTE_WARP_SIZE, &properties->SIMDWidth);
  read(CU_DEVICE_ATTRIBUTE_MAX_PITCH, &properties->memPitch);
  read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &properties->regsPerBlock);
  read(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &properties->clockRate);
  read(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &properties->textureAlign);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetPCIBusId);
  if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                driver()->visible[static_cast<std::size_t>(device)] + 1);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  SIMGPU_ENTER(cuDeviceGetByPCIBusId);
  if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0;
  unsigned bus = 0;
  if (std::sscanf(text, "%x:%x", &domain, &bus) != 2 || bus == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto& visible = driver()->visible;
  const auto found = std::find(visible.begin(), visible.end(), static_cast<int>(bus) - 1);
  if (domain != 0 || found == visible.end()) return CUDA_ERROR_INVALID_DEVICE;
  *device = static_cast<CUdevice>(found - visible.begin());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  SIMGPU_ENTER(cuDeviceCanAccessPeer);
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device) || !is_ordinal(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute which,
                                                       CUdevice source, CUdevice target) {
  SIMGPU_ENTER(cuDeviceGetP2PAttribute);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(source) || !is_ordinal(target) || source == target)
    return CUDA_ERROR_INVALID_DEVICE;
  *value = which == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
           which == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  return CUDA_SUCCESS;
}
