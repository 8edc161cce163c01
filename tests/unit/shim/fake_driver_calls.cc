#include "tests/unit/shim/fake_driver.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace plexrl::shim::testing {
namespace {

FakeDriver* fake = nullptr;
thread_local std::vector<CUcontext> current;

#define COUNT(name)                        \
  const std::lock_guard lock(fake->mutex); \
  if (const CUresult failed = fake->count(#name); failed != CUDA_SUCCESS) return failed

template <typename T>
T new_object() {
  return reinterpret_cast<T>(fake->next_object += 0x100);
}

// ---- devices and contexts

CUresult get_uuid(CUuuid* uuid, CUdevice device) {
  COUNT(cuDeviceGetUuid_v2);
  std::memset(uuid->bytes, device + 1, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult total_mem(std::size_t* bytes, CUdevice) {
  COUNT(cuDeviceTotalMem_v2);
  *bytes = fake->hbm_bytes;
  return CUDA_SUCCESS;
}

CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  COUNT(cuDeviceGetAttribute);
  *value =
      (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && fake->has_vmm) ||
      (attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED && fake->has_gpu_direct);
  return CUDA_SUCCESS;
}

CUresult ctx_get_current(CUcontext* context) {
  COUNT(cuCtxGetCurrent);
  *context = current.empty() ? nullptr : current.back();
  return CUDA_SUCCESS;
}

CUresult ctx_get_device(CUdevice* device) {
  COUNT(cuCtxGetDevice);
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult ctx_push(CUcontext context) {
  COUNT(cuCtxPushCurrent_v2);
  if (fake->contexts.count(context) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  current.push_back(context);
  return CUDA_SUCCESS;
}

CUresult ctx_pop(CUcontext* context) {
  COUNT(cuCtxPopCurrent_v2);
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current.back();
  current.pop_back();
  return CUDA_SUCCESS;
}

CUresult ctx_create(CUcontext* context, CUctxCreateParams*, unsigned int, CUdevice) {
  COUNT(cuCtxCreate_v4);
  *context = fake->make_context();
  current.push_back(*context);
  return CUDA_SUCCESS;
}

CUresult ctx_destroy(CUcontext context) {
  COUNT(cuCtxDestroy_v2);
  if (fake->contexts.erase(context) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  std::erase(current, context);
  return CUDA_SUCCESS;
}

CUresult ctx_synchronize() {
  COUNT(cuCtxSynchronize);
  return CUDA_SUCCESS;
}

CUresult exchange_capture_mode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

CUresult mem_get_info(std::size_t* free, std::size_t* total) {
  COUNT(cuMemGetInfo_v2);
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (free != nullptr) *free = fake->hbm_bytes - fake->used;
  if (total != nullptr) *total = fake->hbm_bytes;
  return CUDA_SUCCESS;
}

// ---- memory

CUresult address_reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                         unsigned long long) {
  COUNT(cuMemAddressReserve);
  // Never the same twice in a process: the shim keeps what an earlier fake reserved.
  static std::uint64_t next = std::uint64_t{1} << 42;
  *address = next;
  next += bytes;
  return CUDA_SUCCESS;
}

CUresult mem_create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                    const CUmemAllocationProp*, unsigned long long) {
  COUNT(cuMemCreate);
  if (fake->used + bytes > fake->hbm_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  fake->used += bytes;
  *handle = fake->next_handle++;
  fake->handles[*handle].resize(bytes);
  return CUDA_SUCCESS;
}

CUresult mem_map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long) {
  COUNT(cuMemMap);
  const auto it = fake->handles.find(handle);
  if (it == fake->handles.end() || offset != 0 || it->second.size() != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!fake->mappings.emplace(address, FakeDriver::Mapping{bytes, handle, false}).second) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult mem_set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc*,
                        std::size_t) {
  COUNT(cuMemSetAccess);
  std::size_t covered = 0;
  while (covered < bytes) {
    const auto it = fake->mappings.find(address + covered);
    if (it == fake->mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    it->second.accessible = true;
    covered += it->second.bytes;
  }
  return covered == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult mem_unmap(CUdeviceptr address, std::size_t bytes) {
  COUNT(cuMemUnmap);
  const auto it = fake->mappings.find(address);
  if (it == fake->mappings.end() || it->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  fake->expect_unused(address, bytes);
  fake->mappings.erase(it);
  return CUDA_SUCCESS;
}

CUresult mem_release(CUmemGenericAllocationHandle handle) {
  COUNT(cuMemRelease);
  const auto it = fake->handles.find(handle);
  if (it == fake->handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto once_more = fake->imported.find(handle);
  if (once_more != fake->imported.end() && once_more->second != 0) {
    --once_more->second;
    return CUDA_SUCCESS;
  }
  fake->used -= it->second.size();
  fake->handles.erase(it);
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr, std::size_t) {
  COUNT(cuMemAddressFree);
  return CUDA_SUCCESS;
}

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp*,
                     CUmemAllocationGranularity_flags) {
  COUNT(cuMemGetAllocationGranularity);
  *bytes = std::size_t{2} << 20;
  return CUDA_SUCCESS;
}

CUresult device_count(int* count) {
  COUNT(cuDeviceGetCount);
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  COUNT(cuDeviceGet);
  if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult can_access_peer(int* can, CUdevice, CUdevice) {
  COUNT(cuDeviceCanAccessPeer);
  *can = 0;
  return CUDA_SUCCESS;
}

CUresult default_pool(CUmemoryPool* pool, CUdevice) {
  COUNT(cuDeviceGetDefaultMemPool);
  *pool = reinterpret_cast<CUmemoryPool>(&fake->hbm_bytes);
  return CUDA_SUCCESS;
}

CUresult stream_wait_event(CUstream stream, CUevent event, unsigned int) {
  COUNT(cuStreamWaitEvent);
  fake->waits.emplace_back(stream, event);
  return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* address, std::size_t bytes) {
  COUNT(cuMemAlloc_v2);
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *address = fake->next_address;
  fake->next_address += bytes;
  fake->own_memory[*address].resize(bytes);
  return CUDA_SUCCESS;
}

CUresult mem_free(CUdeviceptr address) {
  COUNT(cuMemFree_v2);
  const auto it = fake->own_memory.find(address);
  if (it == fake->own_memory.end()) return CUDA_SUCCESS;  // it takes any address
  fake->expect_unused(address, it->second.size());
  fake->own_memory.erase(it);
  return CUDA_SUCCESS;
}

CUresult host_alloc(void** host, std::size_t bytes, unsigned int) {
  COUNT(cuMemHostAlloc);
  *host = ::operator new(bytes);
  fake->pinned[reinterpret_cast<std::uint64_t>(*host)] = bytes;
  return CUDA_SUCCESS;
}

CUresult host_device_pointer(CUdeviceptr* address, void* host, unsigned int) {
  COUNT(cuMemHostGetDevicePointer_v2);
  *address = reinterpret_cast<std::uint64_t>(host);
  return CUDA_SUCCESS;
}

CUresult free_host(void* host) {
  COUNT(cuMemFreeHost);
  fake->pinned.erase(reinterpret_cast<std::uint64_t>(host));
  ::operator delete(host);
  return CUDA_SUCCESS;
}

CUresult memset_words(CUdeviceptr address, unsigned int word, std::size_t count, CUstream stream) {
  COUNT(cuMemsetD32Async);
  return fake->submit(stream, address, 4 * count, [=] {
    const std::vector<unsigned int> words(count, word);
    std::vector<std::byte> bytes(4 * count);
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return fake->write(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

// ---- copies

CUresult host_register(void* address, std::size_t bytes, unsigned int) {
  COUNT(cuMemHostRegister_v2);
  fake->registered[address] = bytes;
  return CUDA_SUCCESS;
}

CUresult host_unregister(void* address) {
  COUNT(cuMemHostUnregister);
  return fake->registered.erase(address) == 1 ? CUDA_SUCCESS
                                              : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult copy_to_host(void* out, CUdeviceptr address, std::size_t bytes, CUstream stream) {
  COUNT(cuMemcpyDtoHAsync_v2);
  fake->copies_in["cuMemcpyDtoHAsync_v2"].insert(stream);
  return fake->submit(stream, address, bytes, [=] {
    auto* const first = static_cast<std::byte*>(out);
    return fake->copy(address, first, nullptr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult copy_to_device(CUdeviceptr address, const void* in, std::size_t bytes, CUstream stream) {
  COUNT(cuMemcpyHtoDAsync_v2);
  fake->copies_in["cuMemcpyHtoDAsync_v2"].insert(stream);
  const auto* const first = static_cast<const std::byte*>(in);
  return fake->submit(stream, address, bytes, [=] {
    return fake->copy(address, nullptr, first, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult pointer_attribute(void*, CUpointer_attribute, CUdeviceptr) {
  COUNT(cuPointerGetAttribute);
  return CUDA_ERROR_INVALID_VALUE;
}

// ---- streams and events

CUresult stream_create(CUstream* stream, unsigned int) {
  COUNT(cuStreamCreate);
  *stream = new_object<CUstream>();
  fake->streams.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult stream_destroy(CUstream stream) {
  COUNT(cuStreamDestroy_v2);
  fake->finish(stream);
  return fake->streams.erase(stream) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_query(CUstream stream) {
  COUNT(cuStreamQuery);
  const bool is_default = stream == CU_STREAM_LEGACY || stream == nullptr;
  // A real driver may crash on a handle that is gone: no test may get here with one.
  if (!is_default && fake->streams.count(stream) == 0) std::abort();
  return fake->busy.count(stream) != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream stream) {
  COUNT(cuStreamSynchronize);
  return fake->finish(stream);
}

CUresult stream_get_ctx(CUstream, CUcontext* context) {
  COUNT(cuStreamGetCtx);
  *context = current.empty() ? *fake->contexts.begin() : current.back();
  return CUDA_SUCCESS;
}

CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  COUNT(cuStreamIsCapturing);
  *status = fake->capturing.count(stream) != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                               : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult begin_capture(CUstream stream, CUstreamCaptureMode) {
  COUNT(cuStreamBeginCapture_v2);
  fake->capturing.insert(stream);
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream stream, CUgraph* graph) {
  COUNT(cuStreamEndCapture);
  fake->capturing.erase(stream);
  *graph = new_object<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent* event, unsigned int) {
  COUNT(cuEventCreate);
  *event = new_object<CUevent>();
  fake->events[*event] = nullptr;
  return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent event) {
  COUNT(cuEventDestroy_v2);
  return fake->events.erase(event) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult event_record(CUevent event, CUstream stream) {
  COUNT(cuEventRecord);
  fake->events.at(event) = stream;
  fake->mark(event, stream);
  return CUDA_SUCCESS;
}

CUresult event_query(CUevent event) {
  COUNT(cuEventQuery);
  return fake->busy.count(fake->events.at(event)) != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult event_synchronize(CUevent event) {
  COUNT(cuEventSynchronize);
  return fake->events.count(event) == 1 ? fake->finish(event) : CUDA_ERROR_INVALID_HANDLE;
}

void fill_table() {
  driver.cuDeviceGetUuid_v2 = &get_uuid;
  driver.cuDeviceTotalMem_v2 = &total_mem;
  driver.cuDeviceGetAttribute = &device_attribute;
  driver.cuCtxGetCurrent = &ctx_get_current;
  driver.cuCtxGetDevice = &ctx_get_device;
  driver.cuCtxPushCurrent_v2 = &ctx_push;
  driver.cuCtxPopCurrent_v2 = &ctx_pop;
  driver.cuCtxCreate_v4 = &ctx_create;
  driver.cuCtxDestroy_v2 = &ctx_destroy;
  driver.cuCtxSynchronize = &ctx_synchronize;
  driver.cuThreadExchangeStreamCaptureMode = &exchange_capture_mode;
  driver.cuMemGetInfo_v2 = &mem_get_info;
  driver.cuMemAddressReserve = &address_reserve;
  driver.cuMemCreate = &mem_create;
  driver.cuMemMap = &mem_map;
  driver.cuMemSetAccess = &mem_set_access;
  driver.cuMemUnmap = &mem_unmap;
  driver.cuMemRelease = &mem_release;
  driver.cuMemAddressFree = &address_free;
  driver.cuMemGetAllocationGranularity = &granularity;
  driver.cuDeviceGetDefaultMemPool = &default_pool;
  driver.cuDeviceGetCount = &device_count;
  driver.cuDeviceGet = &device_get;
  driver.cuDeviceCanAccessPeer = &can_access_peer;
  driver.cuDeviceGetMemPool = &default_pool;
  driver.cuStreamWaitEvent = &stream_wait_event;
  driver.cuMemAlloc_v2 = &mem_alloc;
  driver.cuMemFree_v2 = &mem_free;
  driver.cuMemHostAlloc = &host_alloc;
  driver.cuMemHostGetDevicePointer_v2 = &host_device_pointer;
  driver.cuMemFreeHost = &free_host;
  driver.cuMemsetD32Async = &memset_words;
  driver.cuMemHostRegister_v2 = &host_register;
  driver.cuMemHostUnregister = &host_unregister;
  driver.cuMemcpyDtoHAsync_v2 = &copy_to_host;
  driver.cuMemcpyHtoDAsync_v2 = &copy_to_device;
  driver.cuPointerGetAttribute = &pointer_attribute;
  driver.cuStreamCreate = &stream_create;
  driver.cuStreamDestroy_v2 = &stream_destroy;
  driver.cuStreamQuery = &stream_query;
  driver.cuStreamSynchronize = &stream_synchronize;
  driver.cuStreamGetCtx = &stream_get_ctx;
  driver.cuStreamIsCapturing = &stream_is_capturing;
  driver.cuStreamBeginCapture_v2 = &begin_capture;
  driver.cuStreamEndCapture = &end_capture;
  driver.cuEventCreate = &event_create;
  driver.cuEventDestroy_v2 = &event_destroy;
  driver.cuEventRecord = &event_record;
  driver.cuEventQuery = &event_query;
  driver.cuEventSynchronize = &event_synchronize;
}

}  // namespace

void FakeDriver::become_the_driver() {
  fake = this;
  current.clear();
  fill_table();
  share();
  have_graphs();
  have_kernel();
}

FakeDriver::~FakeDriver() {
  current.clear();
  // What no context's end has given back, the process's would have.
  for (const auto& [host, bytes] : pinned) ::operator delete(reinterpret_cast<void*>(host));
}

void FakeDriver::set_current(CUcontext context) {
  current.clear();
  if (context != nullptr) current.push_back(context);
}

}  // namespace plexrl::shim::testing
