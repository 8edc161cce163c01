// A thread that reserves, maps and frees addresses all the time, while the memory of the program is
// taken and brought back: what is allocated stays where it is, and nothing is given out twice.
#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kMiB = 1 << 20;

struct Span {
  CUdeviceptr start;
  std::size_t bytes;
  bool overlaps(const Span& other) const {
    return start < other.start + other.bytes && other.start < start + bytes;
  }
};

/// Reserves at random, and where the program's memory is; allocates and frees between.
class Churn {
 public:
  Churn(CUcontext context, std::vector<Span> kept)
      : context_(context), kept_(std::move(kept)), thread_([this] { run(); }) {}
  ~Churn() {
    has_ended_ = true;
    thread_.join();
    std::printf("rounds of churn: %s, overlaps: %u\n", rounds_ != 0 ? "some" : "none", overlaps_);
  }

 private:
  void run() {
    CHECK(cuCtxSetCurrent(context_));
    std::mt19937 random(1);
    std::deque<Span> held;
    for (; !has_ended_; ++rounds_) {
      Span span = {0, (1 + random() % 32) * 2 * kMiB};
      // The driver takes an address as a hint; where memory is none may be given out.
      const CUdeviceptr hint = random() % 2 == 0 ? 0 : kept_[random() % kept_.size()].start;
      CHECK(cuMemAddressReserve(&span.start, span.bytes, 0, hint, 0));
      look_at(span, held);
      held.push_back(span);
      if (held.size() > 6) {
        CHECK(cuMemAddressFree(held.front().start, held.front().bytes));
        held.pop_front();
      }
      Span allocated = {0, 2 * kMiB};
      CHECK(cuMemAlloc(&allocated.start, allocated.bytes));
      look_at(allocated, held);
      CHECK(cuMemFree(allocated.start));
    }
    for (const Span& span : held) CHECK(cuMemAddressFree(span.start, span.bytes));
  }
  void look_at(const Span& fresh, const std::deque<Span>& held) {
    const auto is_in_the_way = [&](const Span& other) { return fresh.overlaps(other); };
    overlaps_ += std::any_of(kept_.begin(), kept_.end(), is_in_the_way);
    overlaps_ += std::any_of(held.begin(), held.end(), is_in_the_way);
  }

  CUcontext context_;
  std::vector<Span> kept_;
  std::atomic<bool> has_ended_{false};
  unsigned overlaps_ = 0;
  std::atomic<unsigned> rounds_{0};
  std::thread thread_;
};

}  // namespace

int main() {
  Program program;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  std::vector<Span> kept;
  for (const std::size_t bytes : {6 * kMiB, 2 * kMiB, 9 * kMiB}) {
    kept.push_back({allocate(bytes), bytes});
    CHECK(cuMemsetD32(kept.back().start, static_cast<unsigned>(kept.size()), bytes / 4));
  }
  {
    const Churn churn(context, kept);
    for (unsigned round = 0; round < 4; ++round) {
      for (const Span& span : kept) {
        launch(program.kernel("mix"), span.bytes / 4, nullptr, span.start,
               static_cast<unsigned long long>(span.bytes / 4), round);
      }
      CHECK(cuCtxSynchronize());
      program.pause();
    }
  }
  for (const Span& span : kept) print_device("kept", span.start, span.bytes);
}
