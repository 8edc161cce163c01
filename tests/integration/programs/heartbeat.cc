// For run_waiting.py: a thread that sends a heartbeat over TCP, with what it can ask about the GPU
// and about the main thread's work, to a process that sends each back; meanwhile the main thread
// waits in one call for a GPU that does not come.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 6 << 20, kWords = kBytes / 4;
constexpr auto kPeriod = std::chrono::milliseconds(2);

void require(bool done, const char* what) {
  if (done) return;
  std::perror(what);
  std::_Exit(1);
}

struct Beat {
  std::uint64_t number;
  std::uint64_t free_bytes;
};

/// The other process: sends back what it gets until the connection ends. Its status is 0 if it got
/// every number once and in order, and the same figure of free memory each time.
[[noreturn]] void monitor(int listener) {
  const int connection = accept(listener, nullptr, nullptr);
  require(connection >= 0, "accept");
  Beat beat;
  std::uint64_t next = 0, free_bytes = 0;
  while (recv(connection, &beat, sizeof beat, MSG_WAITALL) == sizeof beat) {
    if (next == 0) free_bytes = beat.free_bytes;
    if (beat.number != next++ || beat.free_bytes != free_bytes) _exit(1);
    require(send(connection, &beat, sizeof beat, 0) == sizeof beat, "send");
  }
  _exit(next > 0 ? 0 : 1);
}

/// Starts the monitor, before CUDA: returns a connection to it.
int start_monitor(pid_t* child) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  require(listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
              listen(listener, 1) == 0 &&
              getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
          "listen");
  *child = fork();
  if (*child == 0) monitor(listener);
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(connect(connection, reinterpret_cast<sockaddr*>(&address), length) == 0, "connect");
  close(listener);
  return connection;
}

/// What both threads see. The main thread's work so far has all ended.
struct Shared {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr data = 0;
  std::atomic<std::uint64_t> beats{0};
  std::atomic<bool> is_over{false};
};

/// Each beat asks what loggers and watchdogs ask. None of it may wait, and all of it answers as
/// before the main thread began to wait.
void beat_until_over(Shared& shared, int connection) {
  CHECK(cuCtxSetCurrent(shared.context));
  for (Beat beat = {}; !shared.is_over.load(); ++beat.number) {
    std::size_t free_bytes = 0, total_bytes = 0;
    unsigned type = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    CHECK(cuEventQuery(shared.event));
    CHECK(cuStreamQuery(shared.stream));
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, shared.data));
    beat.free_bytes = free_bytes;
    require(send(connection, &beat, sizeof beat, MSG_NOSIGNAL) == sizeof beat, "send");
    Beat back;
    require(recv(connection, &back, sizeof back, MSG_WAITALL) == sizeof back, "recv");
    if (std::memcmp(&back, &beat, sizeof beat) != 0) std::_Exit(1);
    shared.beats.fetch_add(1);
    std::this_thread::sleep_for(kPeriod);
  }
  close(connection);
}

/// Tells the runner of the beats so far, in place of pauses, as long as the main thread waits.
void tell_beats(Shared& shared, Peer* peer, std::atomic<bool>& is_waiting) {
  while (is_waiting.load()) {
    peer->program_pauses.store(1 + shared.beats.load());
    std::this_thread::sleep_for(kPeriod);
  }
}

}  // namespace

int main() {
  Peer* const peer = map_peer();
  unsetenv("PLEXRL_TEST_PEER");  // this program's pauses are the runner's
  pid_t child = 0;
  const int connection = start_monitor(&child);
  Program program;
  Shared shared;
  CHECK(cuCtxGetCurrent(&shared.context));
  CHECK(cuStreamCreate(&shared.stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&shared.event, CU_EVENT_DISABLE_TIMING));
  shared.data = allocate(kBytes);
  CHECK(cuMemsetD32Async(shared.data, 1, kWords, shared.stream));
  CHECK(cuEventRecord(shared.event, shared.stream));
  CHECK(cuStreamSynchronize(shared.stream));
  std::thread heart([&] { beat_until_over(shared, connection); });
  while (shared.beats.load() == 0) std::this_thread::sleep_for(kPeriod);
  if (peer != nullptr) {
    peer->program_pauses.store(1);
    while (peer->stop.load() == 0) std::this_thread::sleep_for(kPeriod);
  }
  // In another stream: what the beats ask about is not this work.
  std::atomic<bool> is_waiting{true};
  std::thread teller;
  if (peer != nullptr) teller = std::thread([&] { tell_beats(shared, peer, is_waiting); });
  launch(program.kernel("mix"), kWords, nullptr, shared.data,
         static_cast<unsigned long long>(kWords), 1u);
  is_waiting.store(false);
  if (teller.joinable()) teller.join();
  CHECK(cuCtxSynchronize());
  shared.is_over.store(true);
  heart.join();
  int status = 1;
  require(waitpid(child, &status, 0) == child, "waitpid");
  std::printf("monitor: %s\n", status == 0 ? "every beat came" : "something was odd");
  print_device("data", shared.data, kBytes);
  CHECK(cuStreamDestroy(shared.stream));
  CHECK(cuEventDestroy(shared.event));
  CHECK(cuMemFree(shared.data));
}
