#include "clustermgr/placement/recorded_tasks.h"

#include <algorithm>
#include <tuple>

namespace plexrl::clustermgr::placement {
namespace {

struct Seen {
  Burst burst;
  int gang = 0;
};

/// All gangs' bursts by the time they were wanted.
std::vector<Seen> merged(const std::vector<const std::vector<Burst>*>& gangs) {
  std::vector<Seen> all;
  for (std::size_t gang = 0; gang < gangs.size(); ++gang) {
    for (const Burst& burst : *gangs[gang]) all.push_back({burst, static_cast<int>(gang)});
  }
  std::sort(all.begin(), all.end(), [](const Seen& a, const Seen& b) {
    return std::tie(a.burst.wanted, a.burst.ended, a.gang) <
           std::tie(b.burst.wanted, b.burst.ended, b.gang);
  });
  return all;
}

/// The gang that has the fewest bursts: one a step, most likely.
int pacing_gang(const std::vector<const std::vector<Burst>*>& gangs) {
  int best = 0;
  for (std::size_t gang = 1; gang < gangs.size(); ++gang) {
    if (gangs[gang]->size() < gangs[best]->size()) best = static_cast<int>(gang);
  }
  return best;
}

}  // namespace

RecordedRound::RecordedRound(const std::vector<const std::vector<Burst>*>& gangs) {
  if (gangs.empty()) return;
  const int pace = pacing_gang(gangs);
  const std::vector<Burst>& pacing = *gangs[pace];
  if (pacing.size() < 2) return;
  Instant from = pacing.front().wanted;
  Instant to = pacing.back().wanted;
  // Records of the other gangs may begin later than the pacing gang's.
  for (const std::vector<Burst>* gang : gangs) {
    for (const Burst& burst : pacing) {
      if (from >= gang->front().wanted) break;
      from = burst.wanted;
    }
  }
  length_ = to - from;
  if (length_ <= Duration{0}) return;

  std::vector<Seen> round;
  for (const Seen& seen : merged(gangs)) {
    if (seen.burst.wanted >= from && seen.burst.wanted < to) round.push_back(seen);
  }
  const int count = static_cast<int>(round.size());
  for (int i = 0; i < count; ++i) {
    Task task;
    task.gang = round[i].gang;
    task.work = round[i].burst.work;
    task.ends_step = task.gang == pace;
    std::size_t used = 0;
    std::vector<bool> found(gangs.size(), false);
    int latest = -1;
    Instant latest_end = Instant::min();
    // A burst that waits for one more than two rounds back waits for it through others.
    for (int back = 1; back <= std::min(2 * count, kMaxBack) && used < task.after.size(); ++back) {
      int position = i - back;
      Duration shift{0};
      while (position < 0) {
        position += count;
        shift += length_;
      }
      const Seen& before = round[position];
      Instant ended = before.burst.ended - shift;
      bool same_gang = before.gang == task.gang;
      if (found[before.gang] || (ended > round[i].burst.wanted && !same_gang)) continue;
      found[before.gang] = true;
      if (ended > latest_end) {
        latest_end = ended;
        latest = static_cast<int>(used);
      }
      task.after[used++].back = back;
    }
    if (latest >= 0) {
      task.after[latest].delay = std::max(Duration{0}, round[i].burst.wanted - latest_end);
    }
    tasks_.push_back(task);
  }
}

bool RepeatedRound::next(Task& task) {
  task = round_.tasks()[position_];
  position_ = (position_ + 1) % round_.tasks().size();
  return true;
}

}  // namespace plexrl::clustermgr::placement
