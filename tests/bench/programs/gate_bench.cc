// What intercepted calls cost more than the bare ones (against_stub.h): with an open gate, activity
// tracking on, several streams, 1 to 8 threads. Prints {"schema":1,"rows":[…]}.
//
// Bare and intercepted calls are measured in turns in the same threads: those that pass or enter
// the gate in ns of thread CPU time; allocation and free, which ask the manager for room where a
// new range is needed, in µs of the clock.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "interpose/cuda_api.h"
#include "tests/bench/programs/against_stub.h"

namespace {

constexpr int kRounds = 15;
constexpr int kCalls = 200'000;
constexpr int kStreams = 8;
constexpr double kGoalNs = 8;
constexpr int kThreads[] = {1, 2, 4, 8};

template <typename Function>
struct Both {
  Function caught, bare;

  explicit Both(const char* name) {
    void *caught_address, *bare_address;
    plexrl::bench::find_both(name, &caught_address, &bare_address);
    caught = reinterpret_cast<Function>(caught_address);
    bare = reinterpret_cast<Function>(bare_address);
  }
  Function of(bool is_caught) const { return is_caught ? caught : bare; }
};

double now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

CUstream stream(int i) { return reinterpret_cast<CUstream>(0x10000 + 0x140 * (i % kStreams)); }

template <typename Call>
double ns_per_call(Call call) {
  const double start = now_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < kCalls; ++i) call(i);
  return (now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / kCalls;
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

class Rows {
 public:
  Rows() { std::printf("{\"schema\":1,\"rows\":["); }
  ~Rows() { std::printf("]}\n"); }

  /// A row for each number of threads. `goal` 0: none.
  template <typename Measure>
  void add(const char* call, const char* unit, double goal, Measure measure) {
    for (const int threads : kThreads) {
      print(std::string(call) + "_" + std::to_string(threads) +
                (threads == 1 ? "_thread" : "_threads"),
            unit, goal, differences(threads, measure));
    }
  }

 private:
  void print(const std::string& name, const char* unit, double goal, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const double median = values[values.size() / 2];
    const double spread = (values[values.size() * 3 / 4] - values[values.size() / 4]) / 2;
    const std::string goal_text = goal == 0 ? "null" : std::to_string(goal);
    const char* met = goal == 0 ? "null" : median <= goal ? "true" : "false";
    std::printf(
        "%s{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s more\",\"against\":\"the bare call\","
        "\"goal\":%s,\"better\":\"lower\",\"met\":%s,\"simulated\":false,\"rounds\":%d,"
        "\"spread\":%.3f}",
        is_first_ ? "" : ",", name.c_str(), median, unit, goal_text.c_str(), met, kRounds, spread);
    is_first_ = false;
  }

  bool is_first_ = true;
};

void add_gated_calls(Rows& rows) {
  const Both<decltype(&::cuLaunchKernel)> launch("cuLaunchKernel");
  rows.add("launch_overhead", "ns", kGoalNs, [&](bool is_caught) {
    return ns_per_call([call = launch.of(is_caught)](int i) {
      call(nullptr, 1, 1, 1, 1, 1, 1, 0, stream(i), nullptr, nullptr);
    });
  });
  const Both<decltype(&::cuStreamQuery)> query("cuStreamQuery");
  rows.add("stream_query_overhead", "ns", kGoalNs, [&](bool is_caught) {
    return ns_per_call([call = query.of(is_caught)](int i) { call(stream(i)); });
  });
  const Both<decltype(&::cuMemcpyDtoDAsync_v2)> copy("cuMemcpyDtoDAsync_v2");
  rows.add("copy_overhead", "ns", 0, [&](bool is_caught) {
    return ns_per_call([call = copy.of(is_caught)](int i) { call(0, 0, 4, stream(i)); });
  });
  const Both<decltype(&::cuEventRecord)> record("cuEventRecord");
  rows.add("event_record_overhead", "ns", 0, [&](bool is_caught) {
    return ns_per_call([call = record.of(is_caught)](int i) { call(nullptr, stream(i)); });
  });
  const Both<decltype(&::cuEventQuery)> event_query("cuEventQuery");
  rows.add("event_query_overhead", "ns", 0, [&](bool is_caught) {
    return ns_per_call([call = event_query.of(is_caught)](int) { call(nullptr); });
  });
  const Both<decltype(&::cuGraphLaunch)> graph("cuGraphLaunch");
  rows.add("graph_launch_overhead", "ns", 0, [&](bool is_caught) {
    return ns_per_call([call = graph.of(is_caught)](int i) { call(nullptr, stream(i)); });
  });
}

/// Allocates `count` times `bytes` and frees them: µs of the clock for each call of one kind.
template <typename Allocate, typename Free>
double us_per_call(Allocate allocate, Free free, std::size_t bytes, int count, bool of_free) {
  std::vector<CUdeviceptr> made(count);
  const double start = now_ns(CLOCK_MONOTONIC);
  for (CUdeviceptr& address : made) {
    if (allocate(&address, bytes) == CUDA_SUCCESS) continue;
    std::fprintf(stderr, "gate_bench: no memory\n");
    std::_Exit(1);
  }
  const double between = now_ns(CLOCK_MONOTONIC);
  for (const CUdeviceptr address : made) free(address);
  const double end = now_ns(CLOCK_MONOTONIC);
  return (of_free ? end - between : between - start) / count * 1e-3;
}

void add_allocation(Rows& rows) {
  const Both<decltype(&::cuMemAlloc_v2)> allocate("cuMemAlloc_v2");
  const Both<decltype(&::cuMemFree_v2)> free("cuMemFree_v2");
  struct Size {
    const char* name;
    std::size_t bytes;
    int count;
  };
  for (const Size size : {Size{"small", 4096, 500}, Size{"large", std::size_t{32} << 20, 8}}) {
    for (const bool of_free : {false, true}) {
      const std::string name =
          std::string(of_free ? "free_" : "allocation_") + size.name + "_overhead";
      rows.add(name.c_str(), "us", 0, [&, of_free](bool is_caught) {
        return us_per_call(allocate.of(is_caught), free.of(is_caught), size.bytes, size.count,
                           of_free);
      });
    }
  }
}

int measure() {
  Rows rows;
  add_gated_calls(rows);
  add_allocation(rows);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return plexrl::bench::run_against_stub(argc, argv, &measure); }
