// Two processes of a job share memory, and one of them, the victim, dies. `shares CASE`: what the
// survivor sees, in lines that run_share_faults.py knows.
//
// owner      the victim exports and hands over, dying where PLEXRL_TEST_FAULT says
// importer   the victim opens what the survivor exports, likewise
// forgotten  the victim is killed after it has exported and before the survivor opens it
// orphaned   both have it mapped; the survivor says so, and goes on when FILE (argument) is written
// replaced   the same; the victim becomes another program by exec when it gets SIGUSR1
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

CUresult open_handle(int fd, CUmemGenericAllocationHandle* handle) {
  const CUresult result = cuMemImportFromShareableHandle(handle, as_handle(fd),
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  close(fd);
  return result;
}

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

void become_another(int) {
  execl("/bin/sleep", "sleep", "infinity", static_cast<char*>(nullptr));
  _exit(127);
}

/// Dies in its first passage of the point that PLEXRL_TEST_FAULT names, if any.
int victim(const std::string& role, const char* socket) {
  if (const char* const point = std::getenv("PLEXRL_TEST_FAULT")) setenv("PLEXRL_FAULT", point, 1);
  signal(SIGUSR1, become_another);
  Program program;
  Channel survivor(socket);
  if (role == "victim-owner") {
    const CUmemGenericAllocationHandle handle = create_handle(program.device(), kBytes);
    CHECK(cuMemsetD32(map_handle(program.device(), handle, kBytes), 7, kWords));
    CHECK(cuCtxSynchronize());
    offer_handle(survivor, handle);
  } else {
    CUmemGenericAllocationHandle handle;
    CHECK(open_handle(survivor.receive_fd(), &handle));
    CHECK(cuMemsetD32(map_handle(program.device(), handle, kBytes), 8, kWords));
    CHECK(cuCtxSynchronize());
  }
  survivor.wait();  // for ever
  return 1;
}

/// The survivor's own work still runs.
void work(Program& program, CUdeviceptr own) {
  launch(program.kernel("mix"), kWords, nullptr, own, static_cast<unsigned long long>(kWords), 3u);
  CHECK(cuCtxSynchronize());
  std::printf("works on\n");
}

void survive_owner(Program& program, CUdeviceptr own) {
  Channel channel = Channel::to_child("victim-owner");
  const int fd = channel.try_receive_fd();
  if (fd < 0) {
    std::printf("nothing was handed over\n");
  } else {
    CUmemGenericAllocationHandle handle;
    CHECK(open_handle(fd, &handle));
    const CUdeviceptr address = map_handle(program.device(), handle, kBytes);
    channel.wait_for_end();
    work(program, own);
    std::vector<unsigned char> bytes(kBytes);
    // It dies with its sticky error after that, so this comes last.
    std::printf("what did not come in time: %s\n",
                error_name(cuMemcpyDtoH(bytes.data(), address, kBytes)).c_str());
    std::fflush(stdout);
    std::_Exit(0);
  }
  channel.wait_for_end();
  work(program, own);
}

void survive_importer(Program& program, CUdeviceptr own) {
  const std::size_t before = free_bytes();
  const CUmemGenericAllocationHandle handle = create_handle(program.device(), kBytes);
  const CUdeviceptr address = map_handle(program.device(), handle, kBytes);
  CHECK(cuMemsetD32(address, 7, kWords));
  CHECK(cuCtxSynchronize());
  Channel channel = Channel::to_child("victim-importer");
  offer_handle(channel, handle);
  channel.wait_for_end();
  work(program, own);
  std::uint32_t first = 0;
  CHECK(cuMemcpyDtoH(&first, address, sizeof first));
  std::printf("it has %u\n", first);
  CHECK(cuMemUnmap(address, kBytes));
  CHECK(cuMemRelease(handle));
  CHECK(cuMemAddressFree(address, kBytes));
  // What nobody has any more is given back, when the death has been seen.
  while (free_bytes() < before) usleep(10'000);
  std::printf("all of it is free again\n");
}

void survive_forgotten(Program& program, CUdeviceptr own) {
  Channel channel = Channel::to_child("victim-owner");
  const int fd = channel.receive_fd();
  channel.kill_child();
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = open_handle(dup(fd), &handle);
  // Until its death has been seen it can still be opened; then nobody has it.
  while (result == CUDA_SUCCESS) {
    CHECK(cuMemRelease(handle));
    usleep(10'000);
    result = open_handle(dup(fd), &handle);
  }
  std::printf("what a dead process exported: %s\n", error_name(result).c_str());
  work(program, own);
}

void survive_orphaned(Program& program, CUdeviceptr own, const char* fifo) {
  Channel channel = Channel::to_child("victim-owner");
  CUmemGenericAllocationHandle handle;
  CHECK(open_handle(channel.receive_fd(), &handle));
  const CUdeviceptr address = map_handle(program.device(), handle, kBytes);
  launch(program.kernel("mix"), kWords, nullptr, address, static_cast<unsigned long long>(kWords),
         1u);
  CHECK(cuCtxSynchronize());
  std::printf("%d of %d\n", channel.child(), getpid());
  std::fflush(stdout);
  char byte = 0;
  const int fd = open(fifo, O_RDONLY);
  if (fd < 0 || read(fd, &byte, 1) != 1) std::exit(1);
  work(program, own);
  std::vector<std::uint32_t> words(kWords);
  CHECK(cuMemcpyDtoH(words.data(), address, kBytes));
  const std::uint32_t wanted = hash32(7 + 1);
  std::size_t right = 0;
  for (const std::uint32_t word : words) right += word == wanted ? 1 : 0;
  std::printf("%zu of %zu words are right\n", right, kWords);
  CHECK(cuMemUnmap(address, kBytes));
  CHECK(cuMemRelease(handle));
  channel.kill_child();
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PLEXRL_TEST_BALLAST", "4194304", 1);
  const std::string role = argc > 1 ? argv[1] : "";
  if (role.rfind("victim", 0) == 0) return victim(role, argv[2]);
  Program program;
  const CUdeviceptr own = allocate(kBytes);
  CHECK(cuMemsetD32(own, 1, kWords));
  if (role == "owner") survive_owner(program, own);
  if (role == "importer") survive_importer(program, own);
  if (role == "forgotten") survive_forgotten(program, own);
  if (role == "orphaned" || role == "replaced") survive_orphaned(program, own, argv[2]);
  CHECK(cuMemFree(own));
}
