// The other process of process_test: does one thing with the simulated machine of PLEXRL_SIMGPU and
// says on stdout how it went. Its exit status is the number of what failed.

#include <cuda.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/simgpu/hex.h"

namespace {

using plexrl::simgpu::from_hex;
using plexrl::simgpu::hex;

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
  const auto handle = from_hex<CUipcMemHandle>(arguments[0]);
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

/// peer event EVENT MEMORY: says "opened"; waits on a stream for the event,
/// whose record the memory's filling with 7 precedes, adds one, and records the event again.
void use_event(char** arguments) {
  CUevent event = nullptr;
  CUdeviceptr pointer = 0;
  CUstream stream = nullptr;
  check(cuIpcOpenEventHandle(&event, from_hex<CUipcEventHandle>(arguments[0])), 60);
  check(cuIpcOpenMemHandle(&pointer, from_hex<CUipcMemHandle>(arguments[1]),
                           CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        61);
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 62);
  if (cuEventQuery(event) != CUDA_ERROR_NOT_READY) exit(63);
  check(cuStreamWaitEvent(stream, event, 0), 64);
  std::printf("opened\n");
  std::fflush(stdout);
  unsigned char byte = 0;
  check(cuMemcpyDtoHAsync(&byte, pointer, 1, stream), 65);
  check(cuStreamSynchronize(stream), 66);
  if (byte != 7) exit(67);
  check(cuEventSynchronize(event), 68);
  check(cuEventQuery(event), 69);
  check(cuMemsetD8Async(pointer, 8, 1, stream), 70);
  check(cuEventRecord(event, stream), 71);
  check(cuEventSynchronize(event), 72);
  float ms = 0;
  if (cuEventElapsedTime(&ms, event, event) != CUDA_ERROR_INVALID_HANDLE) exit(73);
  check(cuEventDestroy(event), 74);
}

/// Records the event behind a wait for a word of its own that nobody sets, and says so.
void record(char** arguments) {
  CUevent event = nullptr;
  CUdeviceptr word = 0;
  CUstream stream = nullptr;
  check(cuIpcOpenEventHandle(&event, from_hex<CUipcEventHandle>(arguments[0])), 80);
  check(cuMemAlloc(&word, 4), 81);
  check(cuMemsetD32(word, 0, 1), 82);
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 83);
  check(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ), 84);
  check(cuEventRecord(event, stream), 85);
  std::printf("recorded\n");
  std::fflush(stdout);
}

/// peer record EVENT: records the event, and stays.
void record_and_stay(char** arguments) {
  record(arguments);
  for (;;) pause();
}

/// peer pool FD POINTER BYTES BYTE: imports the pool and the allocation twice, adds one, frees it
/// in stream order each time.
void use_pool(char** arguments) {
  CUmemoryPool pool = nullptr;
  check(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(std::atol(arguments[0])),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        90);
  auto data = from_hex<CUmemPoolPtrExportData>(arguments[1]);
  CUdeviceptr pointer = 0, again = 0;
  if (cuMemAllocFromPoolAsync(&pointer, 16, pool, nullptr) != CUDA_ERROR_INVALID_VALUE) exit(91);
  if (cuDeviceSetMemPool(0, pool) != CUDA_ERROR_INVALID_VALUE) exit(92);
  check(cuMemPoolImportPointer(&pointer, pool, &data), 93);
  if (cuMemPoolImportPointer(&again, pool, &data) == CUDA_SUCCESS) exit(94);
  add_one(pointer, static_cast<std::size_t>(std::atol(arguments[2])),
          static_cast<unsigned char>(std::atoi(arguments[3])));
  check(cuMemFreeAsync(pointer, nullptr), 95);
  check(cuCtxSynchronize(), 96);
  unsigned char byte = 0;
  if (cuMemcpyDtoH(&byte, pointer, 1) == CUDA_SUCCESS) exit(97);
  check(cuMemPoolImportPointer(&pointer, pool, &data), 98);
  check(cuMemFree(pointer), 99);
  check(cuMemPoolDestroy(pool), 100);
}

/// peer multicast FD: adds device 1 to the object's team, binds memory of it that is full of fives,
/// says "bound" and stays.
void join_multicast(char** arguments) {
  CUmemGenericAllocationHandle object = 0, memory = 0;
  CUdeviceptr base = 0;
  check(cuMemImportFromShareableHandle(&object, reinterpret_cast<void*>(std::atol(arguments[0])),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        120);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  check(cuMemCreate(&memory, kBytes, &properties, 0), 121);
  check(cuMemAddressReserve(&base, kBytes, 0, 0, 0), 122);
  check(cuMemMap(base, kBytes, 0, memory, 0), 123);
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(cuMemSetAccess(base, kBytes, &access, 1), 124);
  CUcontext context = nullptr;
  check(cuCtxCreate(&context, nullptr, 0, 1), 125);
  check(cuMemsetD32(base, 5, kBytes / 4), 126);
  check(cuCtxSynchronize(), 127);
  check(cuMulticastAddDevice(object, 1), 128);
  check(cuMulticastBindMem(object, 0, memory, 0, kBytes, 0), 129);
  std::printf("bound\n");
  std::fflush(stdout);
  for (;;) pause();
}

/// peer hold BYTES: says "held" and stays.
void hold(char** arguments) {
  CUdeviceptr pointer = 0;
  check(cuMemAlloc(&pointer, static_cast<std::size_t>(std::atol(arguments[0]))), 40);
  std::printf("held\n");
  std::fflush(stdout);
  for (;;) pause();
}

/// Memory with a descriptor that stays open.
void describe() {
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.requestedHandleTypes = kDescriptor;
  CUmemGenericAllocationHandle handle = 0;
  int descriptor = -1;
  check(cuMemCreate(&handle, kBytes, &properties, 0), 131);
  check(cuMemExportToShareableHandle(&descriptor, handle, kDescriptor, 0), 132);
}

/// peer obeys BYTES: fills so many bytes with 5 and says "ready". Then a word a line: "add" adds
/// one to each byte, "hang" submits work that waits for "let_go", "managed" takes managed memory,
/// "export" says a handle of the bytes, "describe" makes memory and a descriptor of it, "exit"
/// exits. Says "done" after each, or the error.
void obey(char** arguments) {
  const auto bytes = static_cast<std::size_t>(std::atol(arguments[0]));
  CUdeviceptr pointer = 0, word = 0, managed = 0;
  CUstream stream = nullptr;
  unsigned char expected = 5;
  check(cuMemAlloc(&pointer, bytes), 120);
  check(cuMemAlloc(&word, 4), 121);
  check(cuMemsetD8(pointer, expected, bytes), 122);
  check(cuMemsetD32(word, 0, 1), 123);
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 124);
  check(cuCtxSynchronize(), 125);
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const std::string order(line, std::strcspn(line, "\n"));
    if (order == "add") {
      add_one(pointer, bytes, expected++);
    } else if (order == "hang") {
      check(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ), 126);
    } else if (order == "let_go") {
      check(cuStreamWriteValue32(nullptr, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT), 127);
    } else if (order == "managed") {
      check(cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL), 128);
    } else if (order == "export") {
      CUipcMemHandle handle;
      check(cuIpcGetMemHandle(&handle, pointer), 129);
      std::printf("%s\n", hex(handle).c_str());
    } else if (order == "describe") {
      describe();
    } else if (order == "exit") {
      exit(0);
    }
    std::printf("done\n");
    std::fflush(stdout);
  }
}

/// peer opens HEX: opens the handle, says "ready" and stays.
void open_and_stay(char** arguments) {
  CUdeviceptr pointer = 0;
  check(cuIpcOpenMemHandle(&pointer, from_hex<CUipcMemHandle>(arguments[0]),
                           CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        130);
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) pause();
}

/// peer lives BYTES N: takes so many bytes and becomes itself by exec, N times in all.
void live_again(char** arguments) {
  CUdeviceptr pointer = 0;
  check(cuMemAlloc(&pointer, static_cast<std::size_t>(std::atol(arguments[0]))), 110);
  const int left = std::atoi(arguments[1]) - 1;
  if (left == 0) return;
  const std::string text = std::to_string(left);
  execl("/proc/self/exe", "peer", "lives", arguments[0], text.c_str(), nullptr);
  exit(111);
}

/// peer become EVENT: as `record`, and becomes another program, which says "another" and stays. So
/// does a child that was made before, until stdin ends.
void become_another(char** arguments) {
  record(arguments);
  if (fork() == 0) {
    char nothing = 0;
    while (read(0, &nothing, 1) > 0) {
    }
    _exit(0);
  }
  execl("/bin/sh", "sh", "-c", "echo another; exec sleep infinity", nullptr);
  exit(120);
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
  } else if (what == "obeys") {
    obey(argv + 2);
  } else if (what == "opens") {
    open_and_stay(argv + 2);
  } else if (what == "multicast") {
    join_multicast(argv + 2);
  } else if (what == "lives") {
    live_again(argv + 2);
  } else if (what == "event") {
    use_event(argv + 2);
  } else if (what == "pool") {
    use_pool(argv + 2);
  } else if (what == "record") {
    record_and_stay(argv + 2);
  } else if (what == "become") {
    become_another(argv + 2);
  } else if (what == "leave") {
    CUdeviceptr pointer = 0;  // exits with work in flight and nothing freed
    check(cuMemAlloc(&pointer, kBytes), 50);
    check(cuMemsetD8Async(pointer, 1, kBytes, nullptr), 51);
  } else {
    return 3;
  }
  return 0;
}
