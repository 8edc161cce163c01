#include "nodemgr/bpf/blame.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::observer {
namespace {

using Nanoseconds = std::chrono::nanoseconds;
/// Shares of a thread's time, by cause; their sum is 1.
using Shares = std::map<std::pair<Kind, std::string>, double>;

/// A chain of locks is followed so far: longer ones tell nothing that a reader could follow.
constexpr int kLongestChain = 4;

bool is_nobodys(const ThreadTimes& thread) {
  constexpr const char* kOurs[] = {"plexrl-", "simgpu-", "cuda-EvtHandlr"};
  return std::any_of(std::begin(kOurs), std::end(kOurs),
                     [&](const char* prefix) { return thread.name.starts_with(prefix); });
}

class Blame {
 public:
  Blame(const std::vector<ThreadTimes>& threads,
        const std::function<std::string(pid_t)>& command_of)
      : command_of_(command_of) {
    for (const ThreadTimes& thread : threads) threads_[thread.thread] = &thread;
  }

  /// Adds what the thread did, with the weight.
  void add(const ThreadTimes& thread, double weight, std::set<pid_t> chain, Shares& shares) const {
    double all = 0;
    for (const auto& [doing, time] : thread.did) all += static_cast<double>(time.count());
    if (all <= 0) return;
    chain.insert(thread.thread);
    for (const auto& [doing, time] : thread.did) {
      const double part = weight * static_cast<double>(time.count()) / all;
      if (doing.kind == Kind::kLock) {
        add_lock(thread, time, part, chain, shares);
      } else {
        shares[{doing.kind, detail(thread, doing)}] += part;
      }
    }
  }

 private:
  std::string detail(const ThreadTimes& thread, const Doing& doing) const {
    switch (doing.kind) {
      case Kind::kCpu:
      case Kind::kCpuQueue:
        return thread.name;
      case Kind::kPipe:
        return doing.number != 0 ? command_of_(static_cast<pid_t>(doing.number)) : doing.what;
      case Kind::kOther:
        if (doing.what.empty() && doing.number != 0) {
          return nodemgr::cat("system call ", doing.number);
        }
        return doing.what;
      default:
        return doing.what;
    }
  }

  void add_lock(const ThreadTimes& thread, Nanoseconds time, double part,
                const std::set<pid_t>& chain, Shares& shares) const {
    double left = part;
    for (const auto& [waker, waited] : thread.woken_by) {
      const auto other = threads_.find(waker);
      const bool goes_on = static_cast<int>(chain.size()) < kLongestChain && !chain.contains(waker);
      if (other == threads_.end() || !goes_on || time.count() <= 0) continue;
      const double share =
          std::min(1.0, static_cast<double>(waited.count()) / static_cast<double>(time.count()));
      const double put_down = std::min(left, part * share);
      ThreadTimes without_locks = *other->second;
      std::erase_if(without_locks.did,
                    [](const auto& entry) { return entry.first.kind == Kind::kLock; });
      if (without_locks.did.empty()) continue;
      add(without_locks, put_down, chain, shares);
      left -= put_down;
    }
    if (left > 0) shares[{Kind::kLock, ""}] += left;
  }

  std::map<pid_t, const ThreadTimes*> threads_;
  const std::function<std::string(pid_t)>& command_of_;
};

/// The threads whose time counts.
std::vector<const ThreadTimes*> relevant(const std::vector<ThreadTimes>& threads, pid_t ender) {
  std::vector<const ThreadTimes*> jobs, ran;
  for (const ThreadTimes& thread : threads) {
    if (ender != 0 && thread.thread == ender) return {&thread};
    if (is_nobodys(thread)) continue;
    jobs.push_back(&thread);
    if (thread.runs > 0) ran.push_back(&thread);
  }
  return ran.empty() ? jobs : ran;
}

}  // namespace

std::vector<Cause> blame(const std::vector<ThreadTimes>& threads, Nanoseconds length, pid_t ender,
                         const std::function<std::string(pid_t)>& command_of) {
  const Blame all(threads, command_of);
  const std::vector<const ThreadTimes*> counted = relevant(threads, ender);
  Shares shares;
  for (const ThreadTimes* thread : counted) {
    all.add(*thread, 1.0 / static_cast<double>(counted.size()), {}, shares);
  }
  std::vector<Cause> causes;
  for (const auto& [what, share] : shares) {
    const auto time = static_cast<std::int64_t>(share * static_cast<double>(length.count()));
    if (time > 0) causes.push_back({what.first, what.second, Nanoseconds(time)});
  }
  std::stable_sort(causes.begin(), causes.end(),
                   [](const Cause& a, const Cause& b) { return a.time > b.time; });
  return causes;
}

}  // namespace plexrl::observer
