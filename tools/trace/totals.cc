#include "tools/trace/totals.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace plexrl::trace {

void Totals::pass(const Model& model, const OpenGaps& open_gaps, std::int64_t from_ns,
                  std::int64_t to_ns) {
  GapsByGang gaps = gaps_by_gang(model);
  for (const auto& [gang, gap] : open_gaps) {
    Pieces& its = gaps[gang];
    its.emplace_back(gap.start_ns, to_ns);
    its = merge(std::move(its));
  }
  sums_.add_gpus(model, gaps, from_ns, to_ns);
}

void Totals::settle(const Model& settled, const std::vector<Gap>& new_gaps) {
  sums_.add_settled(settled);
  for (const Gap& gap : new_gaps) gaps_.add(gap);
}

void Recent::settle(const Model& settled, const std::vector<Gap>& new_gaps) {
  for (const Gang& gang : settled.gangs) {
    auto its = std::find_if(kept_.gangs.begin(), kept_.gangs.end(), [&](const Gang& one) {
      return one.id == gang.id && one.job_id == gang.job_id;
    });
    if (its == kept_.gangs.end()) its = kept_.gangs.insert(its, Gang{gang.job_id, gang.id, {}});
    its->slices.insert(its->slices.end(), gang.slices.begin(), gang.slices.end());
    entries_ += gang.slices.size();
  }
  kept_.swaps.insert(kept_.swaps.end(), settled.swaps.begin(), settled.swaps.end());
  kept_.gaps.insert(kept_.gaps.end(), new_gaps.begin(), new_gaps.end());
  entries_ += settled.swaps.size() + new_gaps.size();
  if (entries_ > most_) let_oldest_go();
}

/// Half of them.
void Recent::let_oldest_go() {
  std::vector<std::int64_t> ends;
  ends.reserve(entries_);
  for (const Gang& gang : kept_.gangs) {
    for (const Slice& slice : gang.slices) ends.push_back(slice.end_ns);
  }
  for (const Gap& gap : kept_.gaps) ends.push_back(gap.end_ns);
  for (const Swap& swap : kept_.swaps) ends.push_back(swap.at_ns);
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  const std::int64_t from_ns = *middle;
  entries_ = 0;
  for (Gang& gang : kept_.gangs) {
    std::erase_if(gang.slices, [&](const Slice& slice) { return slice.end_ns <= from_ns; });
    entries_ += gang.slices.size();
  }
  std::erase_if(kept_.gangs, [](const Gang& gang) { return gang.slices.empty(); });
  std::erase_if(kept_.gaps, [&](const Gap& gap) { return gap.end_ns <= from_ns; });
  std::erase_if(kept_.swaps, [&](const Swap& swap) { return swap.at_ns <= from_ns; });
  entries_ += kept_.gaps.size() + kept_.swaps.size();
  kept_.start_ns = from_ns;
  is_cut_ = true;
}

Model Recent::model(Model ended) const {
  // In the order in which gangs appeared, as in a model of the whole trace.
  std::map<std::pair<std::string, std::uint64_t>, const Gang*> kept;
  for (const Gang& gang : kept_.gangs) kept[{gang.job_id, gang.id}] = &gang;
  for (Gang& gang : ended.gangs) {
    const auto its = kept.find({gang.job_id, gang.id});
    gang.slices = its == kept.end() ? std::vector<Slice>{} : its->second->slices;
  }
  if (is_cut_) {
    std::erase_if(ended.gangs, [](const Gang& gang) { return gang.slices.empty(); });
    ended.start_ns = std::max(ended.start_ns, kept_.start_ns);
  }
  ended.gaps = kept_.gaps;
  ended.swaps = kept_.swaps;
  std::stable_sort(ended.swaps.begin(), ended.swaps.end(),
                   [](const Swap& a, const Swap& b) { return a.at_ns < b.at_ns; });
  return ended;
}

}  // namespace plexrl::trace
