// The other process of process_test: does one thing with the simulated machine of PLEXRL_SIMGPU and
// says on stdout how it went. Its exit status is the number of what failed.

#include <cuda.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kBytes = 2 << 20;

void check(CUresult result, int step) {
  if (result == CUDA_SUCCESS) return;
  std::printf("step %d: error %d\n", step, result);
  exit(step);
}

/// Adds one to every byte at `pointer`, whose bytes must all be `expected`.
void add_one(CUdeviceptr pointer, std::size_t bytes, unsigned char expected) {
  std::vector<unsigned char> host(bytes);
  check(cuMemcpyDtoH(host.data(), pointer, bytes), 10);
  for (unsigned char& byte : host) {
    if (byte != expected) {
      std::printf("saw %d instead of %d\n", byte, expected);
      exit(11);
    }
    ++byte;
  }
  check(cuMemcpyHtoD(pointer, host.data(), bytes), 12);
}

/// peer descriptor FD BYTE: imports, maps, adds one.
void use_descriptor(char** arguments) {
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr base = 0;
  check(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::atol(arguments[0])),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        20);
  check(cuMemAddressReserve(&base, kBytes, 0, 0, 0), 21);
  check(cuMemMap(base, kBytes, 0, handle, 0), 22);
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(cuMemSetAccess(base, kBytes, &access, 1), 23);
  add_one(base, kBytes, static_cast<unsigned char>(std::atoi(arguments[1])));
}

/// peer ipc HEX BYTES BYTE: opens the handle twice, adds one, closes it twice.
void use_ipc(char** arguments) {
  CUipcMemHandle handle{};
  for (std::size_t i = 0; i < sizeof handle; ++i) {
    unsigned byte = 0;
    std::sscanf(arguments[0] + 2 * i, "%2x", &byte);
    reinterpret_cast<unsigned char*>(&handle)[i] = static_cast<unsigned char>(byte);
  }
  CUdeviceptr first = 0, second = 0;
  check(cuIpcOpenMemHandle(&first, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), 30);
  check(cuIpcOpenMemHandle(&second, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), 31);
  if (first != second) exit(32);
  check(cuIpcCloseMemHandle(first), 33);
  add_one(first, static_cast<std::size_t>(std::atol(arguments[1])),
          static_cast<unsigned char>(std::atoi(arguments[2])));
  check(cuIpcCloseMemHandle(first), 34);
  if (cuIpcCloseMemHandle(first) == CUDA_SUCCESS) exit(35);
}

/// peer hold BYTES: says "held" and stays.
void hold(char** arguments) {
  CUdeviceptr pointer = 0;
  check(cuMemAlloc(&pointer, static_cast<std::size_t>(std::atol(arguments[0]))), 40);
  std::printf("held\n");
  std::fflush(stdout);
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  CUcontext context = nullptr;
  check(cuInit(0), 1);
  check(cuCtxCreate(&context, nullptr, 0, 0), 2);
  if (what == "descriptor") {
    use_descriptor(argv + 2);
  } else if (what == "ipc") {
    use_ipc(argv + 2);
  } else if (what == "hold") {
    hold(argv + 2);
  } else if (what == "leave") {
    CUdeviceptr pointer = 0;  // exits with work in flight and nothing freed
    check(cuMemAlloc(&pointer, kBytes), 50);
    check(cuMemsetD8Async(pointer, 1, kBytes, nullptr), 51);
  } else {
    return 3;
  }
  return 0;
}
