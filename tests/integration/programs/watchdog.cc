// A watchdog as frameworks have one (PyTorch's of NCCL): it keeps a list of the main thread's work,
// polls the events around each piece, and would end the job if one took too long. It sees nothing
// odd however often the GPU is taken away in between.
//
// Its deadline is counted in rounds of the neighbour, not in seconds, so that no machine is too
// slow for it: in a whole round the GPU was the neighbour's, and then nothing that had been
// submitted before can be outstanding still.
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;
constexpr int kPauses = 3, kPollsInPause = 20;
constexpr double kRounding = 1.001, kResolutionMs = 0.01;  // of the figures compared
constexpr auto kPeriod = std::chrono::milliseconds(1);

using Clock = std::chrono::steady_clock;

/// One piece of the main thread's work, all of it submitted.
struct Work {
  CUevent start = nullptr, end = nullptr;
  Clock::time_point before{};  ///< the first of the calls that submitted it
  std::uint64_t round = 0;     ///< of the neighbour, when the last of them had returned
};

class Watchdog {
 public:
  explicit Watchdog(CUstream stream) : stream_(stream), peer_(map_peer()) {
    CHECK(cuCtxGetCurrent(&context_));
    thread_ = std::thread([this] { watch(); });
  }

  void add(Work work) {
    work.round = round();
    const std::lock_guard lock(mutex_);
    pending_.push_back(work);
    ++added_;
  }

  void wait_for_polls(std::uint64_t more) const {
    for (const std::uint64_t first = polls_.load(); polls_.load() < first + more;)
      std::this_thread::sleep_for(kPeriod);
  }

  /// Watches until nothing is pending, then says what it saw.
  void end() {
    is_over_.store(true);
    thread_.join();
    std::printf("late: %d, odd: %d, %s\n", late_, odd_,
                ended_ == added_ ? "all ended" : "some never ended");
  }

 private:
  std::uint64_t round() const { return peer_ == nullptr ? 0 : peer_->antagonist_rounds.load(); }

  void watch() {
    CHECK(cuCtxSetCurrent(context_));
    for (bool is_empty = false; !is_empty || !is_over_.load();) {
      {
        const std::lock_guard lock(mutex_);
        std::erase_if(pending_, [this](const Work& work) { return look(work); });
        is_empty = pending_.empty();
      }
      if (last_.end != nullptr && cuEventQuery(last_.end) != CUDA_SUCCESS) ++odd_;
      const CUresult state = cuStreamQuery(stream_);
      if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) ++odd_;
      polls_.fetch_add(1);
      std::this_thread::sleep_for(kPeriod);
    }
    forget_last();
  }

  /// True once the work has ended.
  bool look(const Work& work) {
    const std::uint64_t asked_in = round();
    const CUresult state = cuEventQuery(work.end);
    if (state == CUDA_ERROR_NOT_READY) {
      // The first of these rounds may have left the GPU before the work came; the second is whole.
      if (asked_in >= work.round + 2) ++late_;
      return false;
    }
    const std::chrono::duration<double, std::milli> watched = Clock::now() - work.before;
    float elapsed_ms = -1;
    if (state != CUDA_SUCCESS || cuEventQuery(work.start) != CUDA_SUCCESS ||
        cuEventElapsedTime(&elapsed_ms, work.start, work.end) != CUDA_SUCCESS || elapsed_ms < 0 ||
        elapsed_ms > watched.count() * kRounding + kResolutionMs)
      ++odd_;
    ++ended_;
    forget_last();
    last_ = work;
    return true;
  }

  void forget_last() {
    if (last_.end == nullptr) return;
    CHECK(cuEventDestroy(last_.start));
    CHECK(cuEventDestroy(last_.end));
    last_ = {};
  }

  CUcontext context_ = nullptr;
  CUstream stream_;
  Peer* peer_;
  std::mutex mutex_;
  std::vector<Work> pending_;
  Work last_;  ///< the last that ended: it never becomes unfinished again
  int added_ = 0, ended_ = 0, late_ = 0, odd_ = 0;
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

/// Runs `submit` on the stream between two events, and has it watched.
template <typename Submit>
void watched(Watchdog& watchdog, CUstream stream, Submit submit) {
  Work work;
  CHECK(cuEventCreate(&work.start, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&work.end, CU_EVENT_DEFAULT));
  work.before = Clock::now();
  CHECK(cuEventRecord(work.start, stream));
  submit();
  CHECK(cuEventRecord(work.end, stream));
  watchdog.add(work);
}

}  // namespace

int main() {
  Program program;
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = allocate(kBytes), scratch = allocate(kBytes);
  CHECK(cuMemsetD32(data, 1, kWords));
  CHECK(cuCtxSynchronize());
  Watchdog watchdog(stream);
  const auto step = [&](CUdeviceptr of, unsigned add) {
    launch(program.kernel("mix"), kWords, stream, of, static_cast<unsigned long long>(kWords), add);
  };
  for (unsigned round = 0; round < kPauses; ++round) {
    watched(watchdog, stream, [&] { step(data, round); });
    // Busy: the GPU is taken between two pieces of work, and between a piece's own calls.
    program.pause([&] {
      watched(watchdog, stream, [&] { step(scratch, 1); });
      CHECK(cuStreamSynchronize(stream));
    });
    watched(watchdog, stream, [&] { step(data, 77); });
    // Idle, with work of which nobody but the watchdog has asked whether it has ended.
    program.pause();
    watchdog.wait_for_polls(kPollsInPause);
  }
  watchdog.end();
  CHECK(cuStreamSynchronize(stream));
  print_device("data", data, kBytes);
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(data));
  CHECK(cuMemFree(scratch));
}
