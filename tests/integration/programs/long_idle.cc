// For run_checkpoint.py: works, does nothing for as long as the runner likes, and works on with
// what it had, beginning with a launch. Arguments: "managed" for managed memory too; "two" for a
// second process of the same kind beside; "frees" and "asks" to begin with a free or a query after
// the idle time, which need no lease.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

extern char** environ;

using namespace plexrl::integration;

namespace {

constexpr std::size_t kWords = 4 << 20;

void mix(CUfunction kernel, CUdeviceptr data, CUstream stream, unsigned seed) {
  launch(kernel, kWords, stream, data, static_cast<unsigned long long>(kWords), seed);
}

/// No call of the driver meanwhile.
void be_idle() {
  Peer* const peer = map_peer();
  if (peer == nullptr) return;
  peer->program_pauses.fetch_add(1);
  while (peer->stop.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

pid_t start_second(char* program) {
  std::string words[] = {program, "second"};
  char* argv[] = {words[0].data(), words[1].data(), nullptr};
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv, environ) != 0) std::_Exit(3);
  return pid;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  Program program;
  const CUfunction kernel = program.kernel("mix");
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr managed = 0;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  if (how == "managed") CHECK(cuMemAllocManaged(&managed, 1 << 20, CU_MEM_ATTACH_GLOBAL));
  const CUdeviceptr data = allocate(kWords * 4);
  const CUdeviceptr spare = allocate(8 << 20);
  CHECK(cuMemsetD32(data, 7, kWords));
  CHECK(cuCtxSynchronize());  // the stream is not ordered behind it
  mix(kernel, data, stream, 1);
  CHECK(cuEventRecord(event, stream));
  CHECK(cuStreamSynchronize(stream));
  const pid_t second = how == "two" ? start_second(argv[0]) : 0;
  be_idle();
  if (how == "frees") CHECK(cuMemFree(spare));
  if (how == "asks") CHECK(cuEventQuery(event));
  mix(kernel, data, stream, 2);
  CHECK(cuEventQuery(event));  // recorded before
  CHECK(cuStreamSynchronize(stream));
  if (second != 0) {
    int status = 0;
    waitpid(second, &status, 0);
    if (status != 0) return 4;
  }
  print_device(how == "second" ? "second" : "data", data, kWords * 4);
}
