// What an intercepted launch and stream query cost more than the bare call, in ns of thread CPU
// time: through the preload, with an open gate, activity tracking on, several streams, 1 and 4
// threads, against a driver that returns at once. Prints {"schema":1,"rows":[…]}.
//
// The program runs itself again with the preload, as a process of a job whose manager is a fake in
// the parent. Bare and intercepted calls are measured in turns in the same threads.

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/wire.h"
#include "tests/unit/shim/fake_manager.h"

namespace {

constexpr int kRounds = 15;
constexpr int kCalls = 200'000;
constexpr int kStreams = 8;
constexpr double kGoalNs = 8;

using Launch = decltype(&::cuLaunchKernel);
using Query = decltype(&::cuStreamQuery);

struct Functions {
  Launch launch;
  Query query;
};

double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

CUstream stream(int i) { return reinterpret_cast<CUstream>(0x10000 + 0x140 * (i % kStreams)); }

double launch_ns(Launch launch) {
  const double start = thread_ns();
  for (int i = 0; i < kCalls; ++i) {
    launch(nullptr, 1, 1, 1, 1, 1, 1, 0, stream(i), nullptr, nullptr);
  }
  return (thread_ns() - start) / kCalls;
}

double query_ns(Query query) {
  const double start = thread_ns();
  for (int i = 0; i < kCalls; ++i) query(stream(i));
  return (thread_ns() - start) / kCalls;
}

/// Differences, one per round: the mean over the threads.
template <typename Measure>
std::vector<double> differences(int threads, Measure measure) {
  std::vector<std::vector<double>> by_thread(threads, std::vector<double>(kRounds));
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      measure(true);  // the first call of a thread makes its slot and its marks
      for (double& difference : by_thread[t]) {
        const double bare = measure(false);
        difference = measure(true) - bare;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  std::vector<double> means(kRounds);
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& of_thread : by_thread) means[round] += of_thread[round] / threads;
  }
  return means;
}

void print_row(bool first, const char* call, int threads, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double median = values[values.size() / 2];
  const double spread = (values[values.size() * 3 / 4] - values[values.size() / 4]) / 2;
  std::printf(
      "%s{\"name\":\"%s_%d_thread%s\",\"value\":%.2f,\"unit\":\"ns more\",\"against\":\"the bare "
      "call\","
      "\"goal\":%.0f,\"better\":\"lower\",\"met\":%s,\"simulated\":false,\"rounds\":%d,\"spread\":%"
      ".2f}",
      first ? "" : ",", call, threads, threads == 1 ? "" : "s", median, kGoalNs,
      median <= kGoalNs ? "true" : "false", kRounds, spread);
}

int measure_here() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "gate_bench: %s\n", dlerror());
    return 1;
  }
  const auto find = [&](const char* name) { return dlsym(library, name); };
  const Functions bare{reinterpret_cast<Launch>(find("bare_launch")),
                       reinterpret_cast<Query>(find("bare_query"))};
  const Functions caught{reinterpret_cast<Launch>(find("cuLaunchKernel")),
                         reinterpret_cast<Query>(find("cuStreamQuery"))};
  if (caught.launch == nullptr || bare.launch == nullptr || caught.launch == bare.launch) {
    std::fprintf(stderr, "gate_bench: the preload is not in the way\n");
    return 1;
  }
  std::printf("{\"schema\":1,\"rows\":[");
  bool first = true;
  for (const int threads : {1, 4}) {
    print_row(first, "launch_overhead", threads, differences(threads, [&](bool is_caught) {
                return launch_ns(is_caught ? caught.launch : bare.launch);
              }));
    first = false;
    print_row(first, "stream_query_overhead", threads, differences(threads, [&](bool is_caught) {
                return query_ns(is_caught ? caught.query : bare.query);
              }));
  }
  std::printf("]}\n");
  return 0;
}

plexrl::shim::ScopedFd listen_at(const std::string& path) {
  plexrl::shim::ScopedFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    std::perror("gate_bench: listen");
    return {};
  }
  return listener;
}

[[noreturn]] void run_child(const char* self, const std::string& socket) {
  const std::string stub = std::filesystem::path(PLEXRL_STUB).parent_path();
  ::setenv("LD_PRELOAD", PLEXRL_PRELOAD, 1);
  ::setenv("LD_LIBRARY_PATH", stub.c_str(), 1);
  ::setenv("PLEXRL_JOB_ID", "00000000000000000000000000000001", 1);
  ::setenv("PLEXRL_JOB_SECRET", "00000000000000000000000000000001", 1);
  ::setenv("PLEXRL_SOCKET", socket.c_str(), 1);
  ::execl(self, self, "--child", nullptr);
  std::perror("gate_bench: exec");
  ::_exit(1);
}

int measure_in_child(const char* self) {
  char folder[] = "/tmp/gate_bench.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  const std::string socket = std::string(folder) + "/s";
  const auto listener = listen_at(socket);
  const pid_t child = listener.valid() ? ::fork() : -1;
  if (child == 0) run_child(self, socket);
  int status = 1;
  if (child > 0) {
    plexrl::shim::testing::FakeManager manager;
    std::thread([&] {
      manager.adopt(
          plexrl::shim::ScopedFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      manager.wait_for(plexrl::wire::Type::kWantLease);
      manager.grant(plexrl::wire::kGrantRunNow);
    }).detach();
    ::waitpid(child, &status, 0);
    std::filesystem::remove_all(folder);
    std::_Exit(status == 0 ? 0 : 1);  // the thread may still wait for a child that never came
  }
  std::filesystem::remove_all(folder);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--child") == 0) return measure_here();
  return measure_in_child("/proc/self/exe");
}
