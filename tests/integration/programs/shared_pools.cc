// A memory pool between processes, by descriptor: a child maps allocations of its parent's pool,
// before and after a switch, frees and maps again in stream order; then the parent maps what a
// child's pool has, and goes on with it after that child was killed.
#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 5 << 20, kWords = kBytes / 4, kSmallBytes = 3000;

CUmemoryPool make_pool(CUdevice device) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool;
  CHECK(cuMemPoolCreate(&pool, &props));
  cuuint64_t keep = ~cuuint64_t{0};
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  return pool;
}

CUstream make_stream() {
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUdeviceptr take(CUmemoryPool pool, std::size_t bytes, CUstream stream) {
  CUdeviceptr address;
  CHECK(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
  return address;
}

void offer(Channel& channel, CUmemoryPool pool) {
  int fd = -1;
  CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  channel.send_fd(fd);
  close(fd);
}

void offer(Channel& channel, CUdeviceptr address) {
  CUmemPoolPtrExportData data;
  CHECK(cuMemPoolExportPointer(&data, address));
  channel.send(data);
}

CUmemoryPool import_pool(Channel& channel) {
  const int fd = channel.receive_fd();
  CUmemoryPool pool;
  CHECK(cuMemPoolImportFromShareableHandle(&pool, as_handle(fd),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  return pool;
}

CUdeviceptr import(CUmemoryPool pool, CUmemPoolPtrExportData data) {
  CUdeviceptr address;
  CHECK(cuMemPoolImportPointer(&address, pool, &data));
  return address;
}

void mix(Program& program, CUdeviceptr address, unsigned add, CUstream stream = nullptr) {
  launch(program.kernel("mix"), kWords, stream, address, static_cast<unsigned long long>(kWords),
         add);
}

void show_kind(CUmemoryPool pool, CUdeviceptr address) {
  CUmemoryPool owner = nullptr;
  std::size_t size = 0;
  CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address + 100));
  CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 100));
  std::printf("pointer: %s, %zu bytes\n", owner == pool ? "of the imported pool" : "of another",
              size);
}

int child(const char* socket) {
  Program program;
  Channel parent(socket);
  const CUstream stream = make_stream();
  const CUmemoryPool pool = import_pool(parent);
  const auto data = parent.receive<CUmemPoolPtrExportData>();
  const CUdeviceptr large = import(pool, data);
  const CUdeviceptr small = import(pool, parent.receive<CUmemPoolPtrExportData>());
  CUdeviceptr again = 0;
  auto twice = data;
  std::printf("child: imported twice: %s\n",
              error_name(cuMemPoolImportPointer(&again, pool, &twice)).c_str());
  std::printf("child: allocated from it: %s\n",
              error_name(cuMemAllocFromPoolAsync(&again, 512, pool, stream)).c_str());
  std::printf("child: made the device's: %s\n",
              error_name(cuDeviceSetMemPool(program.device(), pool)).c_str());
  show_kind(pool, large);
  print_device("child: large", large, kBytes);
  print_device("child: small", small, kSmallBytes);
  mix(program, large, 1);
  CHECK(cuCtxSynchronize());
  parent.tell();
  parent.wait();  // a switch has been meanwhile
  print_device("child: large, after a switch", large, kBytes);
  print_device("child: small, after a switch", small, kSmallBytes);
  // Freed in the order of the work that uses it; mapped again once that is over.
  mix(program, large, 2, stream);
  CHECK(cuMemFreeAsync(large, stream));
  CHECK(cuStreamSynchronize(stream));
  const CUdeviceptr back = import(pool, data);
  print_device("child: large, freed and back", back, kBytes);
  const CUdeviceptr late = import(pool, parent.receive<CUmemPoolPtrExportData>());
  print_device("child: late", late, kBytes);
  CHECK(cuMemFreeAsync(back, stream));
  CHECK(cuMemFree(late));
  CHECK(cuMemFree(small));
  CHECK(cuStreamSynchronize(stream));
  std::printf("child: freed twice: %s\n", error_name(cuMemFreeAsync(small, stream)).c_str());
  CHECK(cuMemPoolDestroy(pool));
  parent.tell();
  parent.wait();
  return 0;
}

/// Offers memory of its pool, and is killed while that is away.
int dying_child(const char* socket) {
  Program program;
  Channel parent(socket);
  const CUstream stream = make_stream();
  const CUmemoryPool pool = make_pool(program.device());
  offer(parent, pool);
  const CUdeviceptr own = take(pool, kBytes, stream);
  CHECK(cuMemsetD32Async(own, 90, kWords, stream));
  CHECK(cuStreamSynchronize(stream));
  offer(parent, own);
  parent.wait();  // for ever
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PLEXRL_TEST_BALLAST", "20971520", 1);  // the processes of the job have to fit together
  if (argc > 2) return std::strcmp(argv[1], "child") == 0 ? child(argv[2]) : dying_child(argv[2]);
  Program program;
  const CUstream stream = make_stream();
  const CUmemoryPool pool = make_pool(program.device());
  const CUdeviceptr large = take(pool, kBytes, stream), small = take(pool, kSmallBytes, stream);
  const CUdeviceptr late = take(pool, kBytes, stream);
  CHECK(cuMemsetD32Async(large, 5, kWords, stream));
  CHECK(cuMemsetD8Async(small, 6, kSmallBytes, stream));
  CHECK(cuMemsetD32Async(late, 7, kWords, stream));
  CHECK(cuStreamSynchronize(stream));
  Channel channel = Channel::to_child();
  offer(channel, pool);
  offer(channel, large);
  offer(channel, small);
  channel.wait();
  program.pause();
  print_device("parent: large", large, kBytes);
  mix(program, large, 9);
  CHECK(cuCtxSynchronize());
  channel.tell();
  offer(channel, late);
  channel.wait();
  program.pause();
  print_device("parent: large", large, kBytes);
  print_device("parent: late", late, kBytes);
  CHECK(cuMemFreeAsync(large, stream));
  CHECK(cuMemFreeAsync(small, stream));
  CHECK(cuMemFreeAsync(late, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolTrimTo(pool, 0));
  cuuint64_t reserved = 1;
  CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  std::printf("parent: reserved at the end %llu\n", static_cast<unsigned long long>(reserved));
  channel.tell();
  channel.join_child();

  Channel dying = Channel::to_child("dying");
  const CUmemoryPool theirs = import_pool(dying);
  const CUdeviceptr left = import(theirs, dying.receive<CUmemPoolPtrExportData>());
  mix(program, left, 11);
  CHECK(cuCtxSynchronize());
  program.pause();
  dying.kill_child();
  print_device("parent: of the dead", left, kBytes);
  mix(program, left, 12);
  program.pause();  // now there is nobody else
  print_device("parent: of the dead", left, kBytes);
  CHECK(cuMemFreeAsync(left, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolDestroy(theirs));
  CHECK(cuMemPoolDestroy(pool));
  CHECK(cuStreamDestroy(stream));
}
