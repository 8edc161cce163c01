// Memory of the program's own that it registers (cuMemHostRegister): with each flag, what is told
// of it, what it refuses, and copies and kernels that use it while device memory comes and goes.
#include <sys/mman.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 1 << 20, kWords = kBytes / 4;

unsigned char* own_pages() {
  void* const pages =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) std::exit(1);
  return static_cast<unsigned char*>(pages);
}

CUdeviceptr as_pointer(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

void show(const char* what, CUresult result) {
  std::printf("%s: %s\n", what, error_name(result).c_str());
}

void describe(const char* name, unsigned char* host) {
  unsigned flags = 99, type = 99, managed = 0, rdma = 0, legacy = 0;
  const CUresult known = cuMemHostGetFlags(&flags, host);
  std::printf("%s: flags %s %u", name, error_name(known).c_str(), flags);
  const CUdeviceptr inside = as_pointer(host) + 100;
  const CUresult typed = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside);
  std::printf(" type %s %u", error_name(typed).c_str(), type);
  cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside);
  cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside);
  cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside);
  std::printf(" managed %u rdma %u ipc %u", managed & 0xff, rdma & 0xff, legacy & 0xff);
  CUdeviceptr device = 0;
  void* back = nullptr;
  const CUresult mapped =
      cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside);
  std::printf(" device pointer %s %s", error_name(mapped).c_str(),
              device == inside ? "the same" : "another");
  const CUresult host_side =
      cuPointerGetAttribute(&back, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside);
  std::printf(" host pointer %s %s\n", error_name(host_side).c_str(),
              back == host + 100 ? "the same" : "another");
}

void show_flags() {
  constexpr unsigned kFlags[] = {0,
                                 CU_MEMHOSTREGISTER_PORTABLE,
                                 CU_MEMHOSTREGISTER_DEVICEMAP,
                                 CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP,
                                 CU_MEMHOSTREGISTER_READ_ONLY,
                                 CU_MEMHOSTREGISTER_IOMEMORY,
                                 0x100};
  for (const unsigned flags : kFlags) {
    unsigned char* const pages = own_pages();
    const CUresult result = cuMemHostRegister(pages, kBytes, flags);
    std::printf("flags 0x%x: %s\n", flags, error_name(result).c_str());
    describe("  told", pages);
    if (result == CUDA_SUCCESS) {
      show("  registered again", cuMemHostRegister(pages, kBytes, flags));
      show("  a part of it", cuMemHostUnregister(pages + 4096));
      CHECK(cuMemHostUnregister(pages));
    }
    show("  unregistered again", cuMemHostUnregister(pages));
    describe("  told then", pages);
    munmap(pages, kBytes);
  }
}

}  // namespace

int main() {
  Program program;
  show_flags();
  unsigned char* const in = own_pages();
  unsigned char* const out = own_pages();
  const auto start = pattern(kBytes, 7);
  std::copy(start.begin(), start.end(), in);
  CHECK(cuMemHostRegister(in, kBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  CHECK(cuMemHostRegister(out, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr in_device = 0;
  CHECK(cuMemHostGetDevicePointer(&in_device, in, 0));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = allocate(kBytes);
  for (unsigned round = 0; round < 3; ++round) {
    CHECK(cuMemcpyHtoDAsync(data, in, kBytes, stream));
    launch(program.kernel("combine"), kWords, stream, data, data, in_device,
           static_cast<unsigned long long>(kWords), round + 2);
    launch(program.kernel("mix"), kWords, stream, in_device,
           static_cast<unsigned long long>(kWords), round);
    CHECK(cuMemcpyDtoHAsync(out, data, kBytes, stream));
    program.pause();
    CHECK(cuStreamSynchronize(stream));
    describe("in", in);
    print_host("out", out, kBytes);
  }
  print_host("in", in, kBytes);
  CHECK(cuMemFree(data));
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemHostUnregister(in));
  CHECK(cuMemHostUnregister(out));
  munmap(in, kBytes);
  munmap(out, kBytes);
}
