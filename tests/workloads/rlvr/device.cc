#include "tests/workloads/rlvr/device.h"

#include <algorithm>
#include <cstring>

#include "tests/workloads/rlvr/digest.h"
#include "tests/workloads/rlvr/kernels.ptx.h"

namespace plexrl::workloads::rlvr {
namespace {

constexpr std::size_t kStagingBytes = 8 << 20;
constexpr std::uint64_t kHoldNs = 10'000'000;

}  // namespace

Device::Device(int ordinal) : ordinal_(ordinal) {
  check(driver().cuInit(0), "cuInit");
  CUdevice device;
  check(driver().cuDeviceGet(&device, ordinal), "cuDeviceGet");
  CUcontext context;
  check(driver().cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(driver().cuModuleLoadData(&module_, kernels_ptx), "cuModuleLoadData");
  check(driver().cuMemHostAlloc(&staging_, kStagingBytes, 0), "cuMemHostAlloc");
}

Device::~Device() {
  for (const Buffer& buffer : buffers_) driver().cuMemFree(buffer.address);
  driver().cuMemFreeHost(staging_);
  driver().cuModuleUnload(module_);
  driver().cuStreamDestroy(stream_);
  CUdevice device;
  if (driver().cuDeviceGet(&device, ordinal_) == CUDA_SUCCESS)
    driver().cuDevicePrimaryCtxRelease(device);
}

Buffer Device::allocate(std::size_t bytes) {
  Buffer buffer{0, bytes};
  check(driver().cuMemAlloc(&buffer.address, bytes), "cuMemAlloc");
  buffers_.push_back(buffer);
  check(driver().cuMemsetD8Async(buffer.address, 0, bytes, stream_), "cuMemsetD8Async");
  return buffer;
}

void Device::launch_with(const char* kernel, unsigned grid, unsigned block, unsigned shared_bytes,
                         void** args) {
  CUfunction function;
  check(driver().cuModuleGetFunction(&function, module_, kernel), kernel);
  check(driver().cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared_bytes, stream_, args,
                                nullptr),
        kernel);
}

void Device::write(const Buffer& to, const void* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kStagingBytes) {
    const std::size_t part = std::min(kStagingBytes, bytes - at);
    std::memcpy(staging_, static_cast<const char*>(from) + at, part);
    check(driver().cuMemcpyHtoDAsync(to.address + at, staging_, part, stream_),
          "cuMemcpyHtoDAsync");
    synchronize();
  }
}

void Device::read(void* to, const Buffer& from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kStagingBytes) {
    const std::size_t part = std::min(kStagingBytes, bytes - at);
    check(driver().cuMemcpyDtoHAsync(staging_, from.address + at, part, stream_),
          "cuMemcpyDtoHAsync");
    synchronize();
    std::memcpy(static_cast<char*>(to) + at, staging_, part);
  }
}

void Device::synchronize() { check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

void Device::hold(std::uint64_t ns) {
  while (ns > 0) {
    const std::uint64_t part = std::min(ns, kHoldNs);
    launch("hold", 1, 1, 0, part);
    synchronize();
    ns -= part;
  }
}

std::string Device::digest() {
  Digest digest;
  std::vector<std::byte> part(kStagingBytes);
  for (const Buffer& buffer : buffers_) {
    for (std::size_t at = 0; at < buffer.bytes; at += kStagingBytes) {
      const std::size_t bytes = std::min(kStagingBytes, buffer.bytes - at);
      read(part.data(), Buffer{buffer.address + at, bytes}, bytes);
      digest.add(part.data(), bytes);
    }
  }
  return digest.hex();
}

std::string Device::digest(const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes);
  read(bytes.data(), buffer, buffer.bytes);
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hex();
}

std::size_t Device::allocated_bytes() const {
  std::size_t sum = 0;
  for (const Buffer& buffer : buffers_) sum += buffer.bytes;
  return sum;
}

}  // namespace plexrl::workloads::rlvr
