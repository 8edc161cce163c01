// Memory of another API, whose part a process that is not of the job plays: imported by descriptor,
// written by both in turn, while the job's own memory comes and goes. It is the other's, and stays.
#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;
constexpr unsigned kRounds = 3;

/// Owns the memory and adds to each word when it is told to.
int other(const char* socket) {
  const Program program(false);
  Channel job(socket);
  CUcontext context;
  CHECK(cuCtxCreate(&context, nullptr, 0, program.device()));
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemCreate(&handle, kBytes, &prop, 0));
  const CUdeviceptr memory = map_handle(program.device(), handle, kBytes);
  CHECK(cuMemsetD32(memory, 1, kWords));
  CHECK(cuCtxSynchronize());
  int fd = -1;
  CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  job.send_fd(fd);
  std::vector<std::uint32_t> words(kWords);
  for (unsigned round = 0; round < kRounds; ++round) {
    job.wait();
    CHECK(cuMemcpyDtoH(words.data(), memory, kBytes));
    for (std::uint32_t& word : words) word += round + 1;
    CHECK(cuMemcpyHtoD(memory, words.data(), kBytes));
    job.tell();
  }
  job.wait();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) return other(argv[2]);
  Program program;
  Channel owner = Channel::to_stranger("other");
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {};
  what.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  what.handle.fd = owner.receive_fd();
  what.size = kBytes;
  CUexternalMemory memory;
  CHECK(cuImportExternalMemory(&memory, &what));
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC all = {};
  all.size = kBytes;
  CUdeviceptr buffer;
  CHECK(cuExternalMemoryGetMappedBuffer(&buffer, memory, &all));
  const CUdeviceptr sum = allocate(kBytes);
  CHECK(cuMemsetD32(sum, 0, kWords));
  for (unsigned round = 0; round < kRounds; ++round) {
    launch(program.kernel("combine"), kWords, nullptr, sum, sum, buffer,
           static_cast<unsigned long long>(kWords), 3u);
    launch(program.kernel("mix"), kWords, nullptr, buffer, static_cast<unsigned long long>(kWords),
           round);
    CHECK(cuCtxSynchronize());
    program.pause();
    owner.tell();  // the GPU is still the neighbour's
    owner.wait();
    print_device("of the other API", buffer, kBytes);
    print_device("sum", sum, kBytes);
  }
  std::size_t bytes = 0;
  CHECK(cuMemGetAddressRange(nullptr, &bytes, buffer + 9));
  std::printf("range: %zu bytes\n", bytes);
  CHECK(cuMemFree(buffer));
  CHECK(cuDestroyExternalMemory(memory));
  CHECK(cuMemFree(sum));
  owner.tell();
  owner.wait_for_end();
}
